/* How a step of several ranks went on one of them, as it tells the others, and the one rule by
 * which all of them find the same cause of a failure. */
#ifndef CORE_OUTCOME_H
#define CORE_OUTCOME_H

#include "core/status.h"

#include <stddef.h>

struct outcome {
	int32_t status;
	char message[ERROR_BYTES]; /* of this rank's error, where status is not OK */
};

/* This rank's: the message is the thread's last error. */
void outcome_set(struct outcome *outcome, tutti_status status);
/* Whether it is an error that may be due to another rank's: PEER, TIMEOUT or ABORTED. */
bool outcome_is_secondary(const struct outcome *outcome);
/* The first rank of size whose error is no secondary one, else the first that has an error; -1:
 * none has. all: rank 0's outcome; from one rank's to the next are stride bytes. Where marks are
 * given only ranks that have this mark count. */
int outcome_cause(const struct outcome *all, size_t stride, int size, const uint8_t *marks,
		  uint8_t mark);
/* Fails with the outcome of rank: the text before it, then its message, which begins with "rank 3:
 * " unless it names that rank already. */
tutti_status outcome_fail(const struct outcome *outcome, int rank, const char *before);
/* The rest of message behind "rank 3" or "Rank 3", if it begins with that rank; else NULL. */
const char *outcome_behind_name(const char *message, int rank);

#endif
