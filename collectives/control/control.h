/* Control: which ranks of a communicator are there, which have failed and why, and how all are told.
 * docs/failure.md has the picture. Here: the ring of the ranks that have no window.
 *
 * Every rank has a connection to its two neighbours, on an endpoint of its own. While all goes well nothing is sent. The
 * helper thread serves the ring, so a rank that computes passes messages on as well. Where a neighbour leaves or dies the
 * ring is closed again: the next rank in that direction becomes the neighbour.
 *
 *     CALLS    the last calls of a rank whose wait has become slow. A rank that has made them too compares: the first
 *              pair that differs is the mismatch. If they agree it tells its other neighbour. A rank that has not come so
 *              far keeps them, passes them on and compares later. So the records of any two ranks that differ meet
 *              somewhere, whether these ranks wait, compute or have finished.
 *     WHO      goes round once before a deadline; ranks that have not made the call put their name on it.
 *     DEAD     a neighbour's connection ended without a word. Matters to calls that become slow afterwards.
 *     FAILED   a rank's communicator has failed, and why: a struct failure. The receiver passes it on.
 *     LEAVING  tutti_comm_destroy, after so many calls.
 *     WATCH    are you there? Asked of both neighbours while a wait lasts, and passed on, so that every rank is asked.
 *              A rank that gives no sign of life for silence_ms is stopped, or its machine is gone: a failure.
 *     HERE     the answer, to the neighbour alone.
 *
 * Control knows no engine: it calls back, without its lock. */
#ifndef COLLECTIVES_CONTROL_CONTROL_H
#define COLLECTIVES_CONTROL_CONTROL_H

#include "collectives/trace/recorder.h"
#include "core/status.h"

#include <tutti/transport.h>

struct control;
struct pollfd;

#define CONTROL_CHANNEL 2
#define CONTROL_LINKS   2

#define FAILURE_NO_RANK (-1)

/* Why a communicator has failed. All its ranks get the same. */
struct failure {
	tutti_status status;
	int rank;            /* that the failure is about (it has died, left, or lost its connection), or
			      * FAILURE_NO_RANK */
	uint64_t sequence;   /* calls before this one may still come to a good end              */
	bool is_common;      /* a TIMEOUT that all ranks report as it is: a rank is silent      */
	const char *message;
};

/* A rank as the others see it. */
struct control_peer {
	size_t address_bytes;   /* 0: it cannot be reached, nor reach this rank                */
	uint8_t address[TUTTI_ADDRESS_BYTES];
	int process;            /* its number, as it sees it                                   */
	bool is_visible;        /* ... and this rank too: /proc has it                         */
	char host[64];
};

struct control_config {
	int rank, size;                     /* size is 2 or more                               */
	struct tutti_endpoint *endpoint;    /* the control ring's own, which it destroys, also
	                                     * when control_create fails                       */
	/* All ranks; they live as long as the ring. Where neighbours do not reach each other it is open. */
	const struct control_peer *peers;
	const struct recorder *recorder;
	int silence_ms;                     /* after that a silent rank is a failed one; 0: never */
};

/* Begins to connect to the neighbours and returns at once. */
tutti_status control_create(struct control **control, const struct control_config *config);
/* Before anything else. on_failure is told what this rank's communicator is to fail with, once, without the ring's
 * lock; the other ranks know it by then. wake wakes a thread that sleeps on control_arm, to arm anew. */
void control_bind(struct control *control, void (*on_failure)(void *arg, const struct failure *failure),
                  void (*wake)(void), void *arg);
/* Returns when both neighbours are connected, or soon after is_over(arg), which may be NULL. Their threads have to
 * make progress meanwhile. */
tutti_status control_wait(struct control *control, uint64_t deadline_ns, bool (*is_over)(void *arg),
                          void *arg);
/* This rank makes no calls any more: says so, once, unless the communicator has failed. It still serves the
 * ring, but its neighbours pass nothing on through it. */
void control_leave(struct control *control);
/* Leaves. Nobody else may use it any more. NULL is fine. */
void control_destroy(struct control *control);

/* From any thread. */
void control_progress(struct control *control);
/* What to sleep on, after which progress is due. Returns 1, 0 (there is no such descriptor), or -1: it is
 * due now. *timeout_ms (-1: none) is lowered to when it is due in any case. */
int control_arm(struct control *control, struct pollfd *fd, int *timeout_ms);
/* A wait in call sequence, the oldest of this rank or NO_CALL, has turned slow or, is_bad, looks broken:
 * tells the neighbours, once for each call, and fails it if it is known to be in vain. To be called again
 * and again. */
void control_slow(struct control *control, uint64_t sequence, bool is_bad);
/* The deadline of call sequence is near: asks who has not made it. Once for each call. */
void control_ask(struct control *control, uint64_t sequence);
/* The answer, as "ranks 1, 3"; "" when there is none. Returns text. */
const char *control_missing(struct control *control, uint64_t sequence, char *text,
                            size_t text_bytes);
/* After control_ask and control_slow: whether the question has come home, all have made this call, and all
 * made the same one, since on its way every two neighbours have compared their records. */
bool control_all_agree(struct control *control, uint64_t sequence);
/* This rank's communicator has failed, with so many calls that were not done: the others are told. The first
 * failure stays. failure->sequence is found here. */
void control_fail(struct control *control, const struct failure *failure, int pending);

/* What another rank fails with when rank has failed with status and message: a mismatch, a death or an
 * abort is everybody's, anything else a peer's failure. Writes text, of ERROR_BYTES. */
tutti_status control_remote_error(int rank, tutti_status status, const char *message, char *text);

#endif
