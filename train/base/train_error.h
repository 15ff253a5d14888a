/* Errors of the training layer. The layer uses the public API only, so it stores messages with tutti_set_error, and
 * tutti_comm_error(NULL) returns them. */
#ifndef TRAIN_TRAIN_ERROR_H
#define TRAIN_TRAIN_ERROR_H

#include <tutti/tutti.h>

/* Returns a failure to the caller. The function that detected the failure has stored the message. */
#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

/* Stores the message as this thread's last error and returns status. */
tutti_status train_fail(tutti_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3), cold));

/* A copy of a message, to store it again with tutti_set_error after a cleanup. */
struct train_error {
	char message[512];
};
struct train_error train_last_error(void);

/* The first failure of several calls that are all made. Starts as {0}. */
struct first_failure {
	tutti_status status;
	struct train_error why;
};
void failure_note(struct first_failure *first, tutti_status status);
/* The first failure with its message, or OK. */
tutti_status failure_first(const struct first_failure *first);

#endif
