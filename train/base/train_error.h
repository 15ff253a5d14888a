/* Errors of the training layer. The layer uses the public API only, so it stores messages with
 * tutti_set_error, and tutti_comm_error(NULL) returns them. */
#ifndef TRAIN_ERROR_H
#define TRAIN_ERROR_H

#include <tutti/tutti.h>

#include <stdint.h>

/* Returns a failure to the caller. The function that detected the failure has stored the message.
 */
#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

/* Stores the message as this thread's last error and returns status. */
tutti_status train_fail(tutti_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3), cold));

#define train_invalid(...) train_fail(TUTTI_ERR_INVALID, __VA_ARGS__)
/* MEMORY: "There is no memory for <format>." */
tutti_status train_no_memory(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

/* The path as messages show it: all of it, or its end, which says most. */
const char *path_shown(const char *path);

/* A status with its message, to be reported later: after a cleanup, by another thread or on another
 * rank. */
struct train_failure {
	int32_t status; /* tutti_status */
	char message[512];
};
/* status with this thread's last message. */
struct train_failure failure_of(tutti_status status);
/* Returns the status and stores the message again. OK stores nothing. */
tutti_status failure_return(const struct train_failure *failure);
/* Keeps the first failure of several calls that are all made. first starts as {0}. */
void failure_note(struct train_failure *first, tutti_status status);

/* Collective: OK if own is OK on every rank. Otherwise all ranks return the same failure: of the
 * first rank whose error does not follow from another rank's, if there is one. */
tutti_status failure_agree(tutti_comm *comm, tutti_status own);
/* Collective: all ranks return the failure of rank root, which is not OK. Elsewhere its message
 * begins with "On rank 3: ". */
tutti_status failure_broadcast(tutti_comm *comm, struct train_failure *failure, int root);

#endif
