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

#endif
