/* Messages of this thread, and failures that all ranks report. */
#include "train/base/base.h"

#include <stdarg.h>
#include <string.h>

tutti_status train_fail(tutti_status status, const char *format, ...)
{
	char message[512];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof message, format, args);
	va_end(args);
	return tutti_set_error(status, message);
}

tutti_status train_no_memory(const char *format, ...)
{
	char what[480];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	return train_fail(TUTTI_ERR_MEMORY, "There is no memory for %s.", what);
}

/* A message has 512 bytes, a path up to 4096. */
enum { SHOWN_BYTES = 200 };

const char *path_shown(const char *path)
{
	size_t n = strlen(path);
	return n > SHOWN_BYTES ? path + n - SHOWN_BYTES : path;
}

struct train_failure failure_of(tutti_status status)
{
	struct train_failure failure = {.status = (int32_t)status};

	snprintf(failure.message, sizeof failure.message, "%s", tutti_comm_error(NULL));
	return failure;
}

tutti_status failure_return(const struct train_failure *failure)
{
	if (failure->status == TUTTI_OK)
		return TUTTI_OK;
	return tutti_set_error((tutti_status)failure->status, failure->message);
}

void failure_note(struct train_failure *first, tutti_status status)
{
	if (first->status == TUTTI_OK && status != TUTTI_OK)
		*first = failure_of(status);
}

bool failure_is_secondary(tutti_status status)
{
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT ||
	       status == TUTTI_ERR_ABORTED;
}

/* The ranks could not agree. This rank's own failure explains more than that, unless it merely
 * follows from another rank's and a rank has died. */
static tutti_status failure_without_agreement(const struct train_failure *own, tutti_status status)
{
	bool is_cause =
		own->status != TUTTI_OK &&
		!(failure_is_secondary((tutti_status)own->status) && status == TUTTI_ERR_PEER);

	return is_cause ? failure_return(own) : status;
}

tutti_status failure_broadcast(tutti_comm *comm, struct train_failure *failure, int root)
{
	bool is_root = root == tutti_rank(comm);
	tutti_status sent =
		tutti_broadcast(failure, failure, sizeof *failure, TUTTI_U8, root, comm, NULL);

	if (sent != TUTTI_OK)
		return is_root ? failure_without_agreement(failure, sent) : sent;
	if (is_root)
		return failure_return(failure);
	return train_fail((tutti_status)failure->status, "On rank %d: %s", root, failure->message);
}

/* The least number is the cause: first the ranks with an error of their own, then those with a
 * secondary one, then those with none. */
tutti_status failure_agree(tutti_comm *comm, tutti_status own)
{
	struct train_failure failure = failure_of(own);
	int32_t size = tutti_size(comm);
	int32_t group = own == TUTTI_OK ? 2 : failure_is_secondary(own) ? 1 : 0;
	int32_t first = group * size + tutti_rank(comm);

	tutti_status agreed = tutti_all_reduce(&first, &first, 1, TUTTI_I32, TUTTI_MIN, comm, NULL);
	if (agreed != TUTTI_OK)
		return failure_without_agreement(&failure, agreed);
	return first / size == 2 ? TUTTI_OK : failure_broadcast(comm, &failure, first % size);
}
