/* Statuses and this thread's last error. */
#include "core/status.h"

#include "core/resource_limits.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* [1]: of what is done aside. */
static _Thread_local char messages[2][ERROR_BYTES];
_Thread_local bool fail_is_aside;
atomic_bool something_has_failed;
static _Thread_local struct kept_error *kept_error;

enum {
#define ORDER(name, symbol, text) STATUS_ORDER_##name,
	STATUS_LIST(ORDER)
#undef ORDER
};
#define CHECK(name, symbol, text)                                                                  \
	_Static_assert((int)STATUS_ORDER_##name == (int)TUTTI_##symbol, "order of " #name);
STATUS_LIST(CHECK)
#undef CHECK

const char *tutti_status_string(tutti_status status)
{
	switch (status) {
#define CASE(name, symbol, text)                                                                   \
	case TUTTI_##symbol:                                                                       \
		return text;
		STATUS_LIST(CASE)
#undef CASE
	case TUTTI_STATUS_MAX_:
		break;
	}
	return "unknown status";
}

/* Behind a message about memory: the limit of this process and what to do, unless the message,
 * which may come from an earlier failure, says so already. */
static void status_add_advice(char text[ERROR_BYTES])
{
	char advice[RESOURCE_LIMIT_BYTES];
	size_t end = strlen(text);
	bool has_stop = end > 0 && text[end - 1] == '.';

	if (!strstr(text, resource_limit_text(ENOMEM, advice)))
		snprintf(text + end - has_stop, ERROR_BYTES - end + has_stop, "%s%s", advice,
			 has_stop ? "." : "");
}

tutti_status fail(tutti_status status, const char *format, ...)
{
	char text[ERROR_BYTES]; /* the arguments may point into the old message */
	int error = errno;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (status == TUTTI_ERR_MEMORY && error == ENOMEM)
		status_add_advice(text);
	memcpy(messages[fail_is_aside], text, sizeof text);
	atomic_store_explicit(&something_has_failed, true, memory_order_relaxed);
	if (kept_error && !fail_is_aside && kept_error->status == TUTTI_OK) {
		kept_error->status = status;
		memcpy(kept_error->message, text, sizeof text);
	}
	errno = error;
	return status;
}

tutti_status fail_before(tutti_status status, const char *before)
{
	char text[ERROR_BYTES];
	char *message = messages[fail_is_aside];
	bool is_kept = kept_error && strcmp(kept_error->message, message) == 0;

	snprintf(text, sizeof text, "%.100s%.400s", before, message);
	memcpy(message, text, sizeof text);
	if (is_kept)
		memcpy(kept_error->message, text, sizeof text);
	return status;
}

void fail_keep(struct kept_error *kept)
{
	kept_error = kept;
}

tutti_status fail_errno(const char *format, ...)
{
	char text[ERROR_BYTES], limit_text[RESOURCE_LIMIT_BYTES];
	int error = errno;
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	fail(TUTTI_ERR_SYSTEM, "%.340s: %s (errno %d)%s", text, strerror(error), error,
	     resource_limit_text(error, limit_text));
	errno = error;
	return TUTTI_ERR_SYSTEM;
}

tutti_status fail_no_memory(const char *format, ...)
{
	char what[ERROR_BYTES - 32];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	return fail(TUTTI_ERR_MEMORY, "There is no memory for %s.", what);
}

struct kept_error kept_error_of(tutti_status status)
{
	struct kept_error error = {.status = status};

	memcpy(error.message, last_error(), sizeof error.message);
	return error;
}

tutti_status kept_error_return(const struct kept_error *error)
{
	return error->status == TUTTI_OK ? TUTTI_OK : fail(error->status, "%s", error->message);
}

void kept_error_note(struct kept_error *first, tutti_status status)
{
	if (first->status == TUTTI_OK && status != TUTTI_OK)
		*first = kept_error_of(status);
}

bool status_is_secondary(tutti_status status)
{
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_TIMEOUT ||
	       status == TUTTI_ERR_ABORTED;
}

const char *last_error(void)
{
	return messages[fail_is_aside];
}

void last_error_forget(void)
{
	messages[fail_is_aside][0] = '\0';
}
