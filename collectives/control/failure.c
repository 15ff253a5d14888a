/* What of a failure another rank reports as its own, and what becomes a peer's failure. */
#include "collectives/control/failure.h"

#include <stdio.h>

struct failure failure_of_peer(int rank, const struct failure *theirs, char *text)
{
	struct failure failure = *theirs;

	if (theirs->is_common || theirs->status == TUTTI_ERR_MISMATCH ||
	    theirs->status == TUTTI_ERR_PEER || theirs->status == TUTTI_ERR_ABORTED)
		return failure;
	snprintf(text, ERROR_BYTES, "Rank %d has failed: %.440s", rank, theirs->message);
	failure.status = TUTTI_ERR_PEER;
	failure.message = text;
	return failure;
}
