/* Why a communicator has failed: the same on all its ranks. */
#ifndef COLLECTIVES_CONTROL_FAILURE_H
#define COLLECTIVES_CONTROL_FAILURE_H

#include "core/status.h"

#define FAILURE_NO_RANK (-1)

struct failure {
	tutti_status status;
	int rank; /* that the failure is about (it has died, left, or lost its connection), or
		   * FAILURE_NO_RANK */
	uint64_t sequence; /* calls before this one may still come to a good end */
	bool is_common;    /* a TIMEOUT that all ranks report as it is: a rank is silent */
	const char *message;
};

/* What this rank fails with when rank says that it has failed with *theirs. A mismatch, a death, an
 * abort and what is_common are the same for all; anything else is a peer's failure. Its message is
 * theirs, or text, of ERROR_BYTES. */
struct failure failure_of_peer(int rank, const struct failure *theirs, char *text);

#endif
