/* Why a communicator has failed: the same on all its ranks. And what may come to be the reason. */
#ifndef COLLECTIVES_CONTROL_FAILURE_H
#define COLLECTIVES_CONTROL_FAILURE_H

#include "collectives/trace/trace.h"
#include "core/status.h"

#define FAILURE_NO_RANK (-1)
/* In the message about a rank that has left in peace. */
#define FAILURE_HAS_LEFT "has left the communicator"

struct failure {
	tutti_status status;
	int rank; /* that the failure is about (it has died, left, or lost its connection), or
		   * FAILURE_NO_RANK */
	uint64_t sequence; /* calls before this one may still come to a good end */
	bool is_common;    /* a TIMEOUT that all ranks report as it is: a rank is silent */
	bool is_of_replay; /* of a collective that has no sequence: a graph's */
	const char *message;
};

/* The failure of this rank when rank says that it has failed with *theirs. A mismatch, a death, a
 * timeout, an abort and what is_common are the same for all; anything else is a peer's failure. Its
 * message is theirs, or text, of ERROR_BYTES. */
struct failure failure_of_peer(int rank, const struct failure *theirs, char *text);

/* A suspicion: a connection has ended, or brought what was not expected. The rank at its other
 * end may have failed, and the reason be on its way here; then that is the failure. If no rank
 * explains it in time, what this rank has seen is the failure. Knows no clock. */
struct suspicion {
	struct failure failure; /* status OK: nothing is suspected. sequence: of the call that saw
				 * it, or NO_CALL */
	uint64_t since_ns;
	char message[ERROR_BYTES];
};

/* Whether another rank can explain a failure of this kind. */
bool suspicion_may_be_explained(tutti_status status);
/* Notes failure, unless the one that is noted says as much. Returns whether it did. */
bool suspicion_note(struct suspicion *suspicion, const struct failure *failure, uint64_t now_ns);
/* Whether the suspicion is the failure by now. all_agree: all ranks have made its call, and all
 * made the same, so no other rank can explain it. */
bool suspicion_is_over(const struct suspicion *suspicion, bool all_agree, uint64_t now_ns);

static inline bool suspicion_is_open(const struct suspicion *suspicion)
{
	return suspicion->failure.status != TUTTI_OK;
}

/* An unexpected message: ranks have made different calls, or one of them misbehaves. */
static inline bool suspicion_is_mismatch(const struct suspicion *suspicion)
{
	return suspicion->failure.status == TUTTI_ERR_MISMATCH;
}

#endif
