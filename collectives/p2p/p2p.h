/* Point-to-point: messages between two ranks of one engine, matched by (peer, tag) in order, those
 * that are captured among themselves.
 *
 * Each peer has a channel of its own, which collectives never use, opened when the first of the two
 * needs it. Everything is under the engine's lock. */
#ifndef COLLECTIVES_P2P_P2P_H
#define COLLECTIVES_P2P_P2P_H

#include "collectives/engine/engine.h"

/* A send or recv: task_spec.p2p says which. */
extern const struct task_kind p2p_tasks;
/* Sends or receives a message by a mailbox, without a work. Under the lock. False: it needs a work;
 * may_come: or it is worth asking again soon. */
engine_try_fn p2p_at_once;

/* How the data of a long message of that kind of memory go between this rank and a peer, as both
 * see it: between GPUs through stages, by adapters that reach the memory, or through copies in the
 * host's. Of a single buffer that an adapter cannot map there are copies, too. */
enum p2p_way { P2P_BY_STAGES, P2P_BY_ADAPTERS, P2P_BY_COPIES };
enum p2p_way p2p_way_of(const struct engine *engine, int peer, int kind);

#endif
