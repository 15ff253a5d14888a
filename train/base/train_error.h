/* Errors of the training layer. It stands on the public API alone, so it leaves its messages
 * through tutti_set_error, where tutti_comm_error(NULL) finds them. */
#ifndef TRAIN_EXPLAIN_H
#define TRAIN_EXPLAIN_H

#include <tutti/tutti.h>

/* Passes a failure up, silently: whoever decided it has explained it. */
#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

/* Records one full message as this thread's last error and returns status. */
tutti_status train_fail(tutti_status status, const char *format, ...)
	__attribute__((format(printf, 2, 3), cold));

/* This thread's last message, for a cleanup before tutti_set_error returns it. */
struct train_error {
	char message[512];
};
struct train_error train_last_error(void);

/* Of several things that are all done, whatever becomes of each: the first that failed. {0} at first. */
struct first_failure {
	tutti_status status;
	struct train_error why;
};
void failure_note(struct first_failure *first, tutti_status status);
tutti_status failure_first(const struct first_failure *first);

#endif
