/* Control: which ranks of a communicator are there, which have failed and why, and how all are
 * told. docs/failure.md has the picture.
 *
 * Engine and p2p ask here and know nothing else of it: not whether the ranks share memory (a
 * board, board.h) or talk to their neighbours (a ring). Control knows neither engine nor window:
 * it calls back, without its lock. */
#ifndef COLLECTIVES_CONTROL_CONTROL_H
#define COLLECTIVES_CONTROL_CONTROL_H

#include "collectives/control/board.h"
#include "collectives/control/consensus.h"
#include "collectives/control/deadlines.h"
#include "collectives/control/failure.h"
#include "collectives/control/job.h"

#include <tutti/transport.h>

struct board;
struct control;
struct pollfd;

#define CONTROL_CHANNEL 2

/* A rank as the others see it. */
struct control_peer {
	size_t address_bytes;   /* 0 if neither rank can reach the other                       */
	uint8_t address[TUTTI_ADDRESS_BYTES];
	int process;            /* its number, as it sees it                                   */
	bool is_visible;        /* ... and this rank too: /proc has it                         */
	char host[64];
};

struct control_config {
	int rank, size; /* size is 2 or more */
	/* The ring's own. It is destroyed with the ring, also when control_create fails. */
	struct tutti_endpoint *endpoint;
	/* All ranks. They live as long as control. Where neighbours do not reach each other the
	 * ring is open. */
	const struct control_peer *peers;
	const struct recorder *recorder;
	int silence_ms; /* a rank that is silent for so long has failed, unless 0 */
	struct job_view job;
};

/* A ring. Begins to connect to the neighbours and returns at once. */
tutti_status control_create(struct control **control, const struct control_config *config);
/* The ranks share board, which lives longer than control. Of config: job; and silence_ms, of a
 * stopped rank. */
tutti_status control_share(struct control **control, struct board *board,
			   const struct control_config *config);
/* Before anything else. on_failure is told once what this rank's communicator is to fail with,
 * without control's lock; the other ranks have been told, by a message or the board. wake wakes a
 * thread that sleeps on control_arm, to arm anew. */
void control_bind(struct control *control,
		  void (*on_failure)(void *arg, const struct failure *failure), void (*wake)(void),
		  void *arg);
/* Returns when both neighbours are connected, or soon after is_over(arg), which may be NULL. Their
 * threads have to make progress meanwhile. OK at once on a board. */
tutti_status control_wait(struct control *control, uint64_t deadline_ns, bool (*is_over)(void *arg),
			  void *arg);
/* This rank makes no more calls: the others are told, once. It still serves the ring. */
void control_leave(struct control *control);
/* Leaves. No other thread may use control any more. NULL is fine. */
void control_destroy(struct control *control);

/* While a call waits, under the engine's lock. */
struct control_wait {
	uint64_t sequence; /* of the oldest collective that waits, or NO_CALL */
	bool is_urgent;    /* a death matters, though the rank may have done its part */
};

/* Asks around for a wait that lasts, as often as is worth it: to be called again and again.
 * on_failure reports a failure that it finds. */
void control_check(struct control *control, const struct control_wait *wait);
/* A connection has ended (PEER), or brought what was not expected (MISMATCH). The rank at its other
 * end may have failed, and its reason be on the way. False: no rank could explain it. */
bool control_suspect(struct control *control, const struct failure *failure, uint64_t now_ns);
/* The suspected failure, or NULL. */
const struct failure *control_suspicion(const struct control *control);
/* The same, once its time to be explained is over. */
const struct failure *control_unexplained(struct control *control, uint64_t now_ns);
/* From any thread: whether control_look would report a failure that a rank has told; a load. On a
 * ring never: the helper thread reports it. */
bool control_has_news(const struct control *control);
/* Under the engine's lock. Writes the thread's last error. */
void control_look(struct control *control);
/* Asks all ranks whether they are there and have made call sequence, or NO_CALL, for
 * control_missing; once for each deadline that has passed, or 0: none has. Returns, when called
 * again and again, whether answers are still to come. After a deadline on_failure reports a rank
 * that is stopped, or gives no answer. */
bool control_ask(struct control *control, uint64_t sequence, uint64_t deadline_ns);
/* The ranks that have not made it, as "ranks 1, 3"; "": all have, or no answer has come. text has
 * RANK_LIST_LEAST bytes or more. Returns it. */
const char *control_missing(struct control *control, uint64_t sequence, char *text,
			    size_t text_bytes);
/* The failure that this rank has found on the board, or NULL. */
const struct failure *control_found(struct control *control);

/* From any thread. This rank's communicator has failed, with so many collectives that were not
 * done: the others are told, with what was decided before if anything was. */
void control_fail(struct control *control, const struct failure *failure, int pending);

/* The first failure that rank knew of, which is gone, becomes the job's (job.h). */
void control_hear_first(struct control *control, int rank);
const struct job_view *control_job(const struct control *control);

/* The helper thread's. Whether the helper thread has to serve it: a ring. */
bool control_needs_helper(const struct control *control);
void control_progress(struct control *control);
/* Finds when control_progress is due. Returns 1 (when fd is ready), 0 (there is no descriptor to
 * wait for), or -1 (now). Lowers *timeout_ms (-1: no limit) to the time when it is due anyway. */
int control_arm(struct control *control, struct pollfd *fd, int *timeout_ms);

#endif
