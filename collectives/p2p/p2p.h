/* Point-to-point: messages between two ranks of one engine, matched by (peer, tag) in order.
 *
 * Each peer has a channel of its own, which collectives never use, opened when the first of the two
 * needs it. What the engine knows of it is here; everything is under the engine's lock. */
#ifndef COLLECTIVES_P2P_P2P_H
#define COLLECTIVES_P2P_P2P_H

#include <tutti/tutti.h>

#include <stdbool.h>

struct engine;
struct engine_io;
struct tutti_work;

enum p2p_side { P2P_NONE, P2P_SEND, P2P_RECV };

/* What a send or recv has besides buffer, count and dtype. */
struct p2p_args {
	enum p2p_side side;
	int peer; /* recv: or TUTTI_ANY                                          */
	int tag;
	int *source; /* recv: where the sender's rank goes; or NULL                 */
};

/* Starts work. Where its buffer travels through a host copy that is still being made, p2p_prepared
 * tells when it is there. An error is the communicator's. */
tutti_status p2p_begin(struct engine *e, struct tutti_work *work);
void p2p_prepared(struct engine *e, struct tutti_work *work);
/* The work is over, well or not: gives back what was needed for it. */
void p2p_finish(struct engine *e, struct tutti_work *work);

/* An io of IO_P2P has ended. */
void p2p_io_done(struct engine *e, struct engine_io *io);
void p2p_io_failed(struct engine *e, struct engine_io *io);

/* Whether all that was sent and is done for its caller has left, or has had its time. */
bool p2p_is_drained(struct engine *e);
/* Before a rank leaves: tells those that may still wait for anybody. Then they are not posted for
 * longer than a moment. Takes the lock by itself. */
void p2p_leave(struct engine *e);
void p2p_disconnect(struct engine *e); /* closes the connections                         */
void p2p_clean_up(struct engine *e);   /* after that: forgets everything but works       */
void p2p_free(struct engine *e);

/* For sentences; both return text. "recv(f32, 100, tag 3) from rank 2"; what it waits for. */
const char *p2p_in_words(const struct tutti_work *work, char *text, size_t text_bytes);
const char *p2p_explain(const struct tutti_work *work, char *text, size_t text_bytes);

#endif
