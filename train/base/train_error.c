/* How the training layer explains an error. */
#include "train/base/train_error.h"

#include <stdarg.h>
#include <stdio.h>

tutti_status train_fail(tutti_status status, const char *format, ...)
{
	char sentence[512];
	va_list args;

	va_start(args, format);
	vsnprintf(sentence, sizeof sentence, format, args);
	va_end(args);
	return tutti_set_error(status, sentence);
}

struct kept_error train_keep_error(void)
{
	struct kept_error kept;

	snprintf(kept.sentence, sizeof kept.sentence, "%s", tutti_comm_error(NULL));
	return kept;
}

void train_note(struct first_failure *first, tutti_status status)
{
	if (first->status != TUTTI_OK || status == TUTTI_OK)
		return;
	first->status = status;
	first->why = train_keep_error();
}

tutti_status train_first(const struct first_failure *first)
{
	return first->status == TUTTI_OK ? TUTTI_OK
					 : tutti_set_error(first->status, first->why.sentence);
}
