/* A failure as this rank reports it when another rank has reported it; suspicions, and when they
 * become failures. */
#include "collectives/control/failure.h"

#include "collectives/control/deadlines.h"
#include "core/clock.h"

#include <stdio.h>
#include <string.h>

struct failure failure_of_peer(int rank, const struct failure *theirs, char *text)
{
	struct failure failure = *theirs;

	/* Not that rank's failure, as another one was late; or it says so already. */
	if (theirs->is_common || theirs->status == TUTTI_ERR_TIMEOUT ||
	    theirs->status == TUTTI_ERR_MISMATCH || theirs->status == TUTTI_ERR_PEER ||
	    theirs->status == TUTTI_ERR_ABORTED)
		return failure;
	/* That rank's own message begins with its number. */
	int begins = snprintf(text, ERROR_BYTES, "rank %d: ", rank);
	bool has_name = strncmp(theirs->message, text, (size_t)begins) == 0;
	snprintf(text, ERROR_BYTES, "Rank %d has failed: %.440s", rank,
		 theirs->message + (has_name ? begins : 0));
	failure.status = TUTTI_ERR_PEER;
	failure.message = text;
	return failure;
}

bool suspicion_may_be_explained(tutti_status status)
{
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_MISMATCH;
}

/* A connection may have broken because its other end saw the mismatch, so a mismatch replaces a
 * broken connection. */
bool suspicion_note(struct suspicion *s, const struct failure *failure, uint64_t now_ns)
{
	bool is_better =
		s->failure.status == TUTTI_ERR_PEER && failure->status == TUTTI_ERR_MISMATCH;

	if (suspicion_is_open(s) && !is_better)
		return false;
	snprintf(s->message, sizeof s->message, "%s", failure->message);
	s->failure = *failure;
	s->failure.message = s->message;
	s->since_ns = now_ns;
	return true;
}

bool suspicion_is_over(const struct suspicion *s, bool all_agree, uint64_t now_ns)
{
	bool has_call = s->failure.sequence != NO_CALL;
	int ms = has_call || s->failure.is_of_replay ? EXPLAIN_LOST_MS : EXPLAIN_LOST_MESSAGE_MS;

	if (suspicion_is_mismatch(s)) {
		if (has_call && all_agree)
			return true;
		ms = EXPLAIN_MISMATCH_MS;
	}
	return suspicion_is_open(s) && now_ns - s->since_ns > MS_TO_NS(ms);
}
