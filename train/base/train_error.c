/* How the training layer explains an error. */
#include "train/base/train_error.h"

#include <stdarg.h>
#include <stdio.h>

tutti_status train_fail(tutti_status status, const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	return tutti_set_error(status, message);
}

struct train_error train_last_error(void)
{
	struct train_error kept;

	snprintf(kept.message, sizeof kept.message, "%s", tutti_comm_error(NULL));
	return kept;
}

void failure_note(struct first_failure *first, tutti_status status)
{
	if (first->status != TUTTI_OK || status == TUTTI_OK)
		return;
	first->status = status;
	first->why = train_last_error();
}

tutti_status failure_first(const struct first_failure *first)
{
	return first->status == TUTTI_OK ? TUTTI_OK
					 : tutti_set_error(first->status, first->why.message);
}
