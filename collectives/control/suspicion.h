/* A suspicion: a connection has ended, or brought what was not expected. The rank at its other
 * end may have failed, and the reason be on its way here; then that is the failure. If no rank
 * explains it in time, what this rank has seen is the failure. Knows no clock. */
#ifndef COLLECTIVES_CONTROL_SUSPICION_H
#define COLLECTIVES_CONTROL_SUSPICION_H

#include "collectives/control/failure.h"
#include "collectives/trace/trace.h"

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
