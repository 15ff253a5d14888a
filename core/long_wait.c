/* The one place that says for what a rank waits. */
#include "core/long_wait.h"

#include "core/clock.h"
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>

bool long_wait_is_due(struct long_wait *wait, uint64_t now_ns)
{
	if (wait->due_ns == 0)
		wait->due_ns = now_ns + MS_TO_NS(LONG_WAIT_MS);
	if (now_ns < wait->due_ns)
		return false;
	wait->due_ns = now_ns + MS_TO_NS(LONG_WAIT_AGAIN_MS);
	return true;
}

void long_wait_say(const char *format, ...)
{
	char what[900];
	va_list args;

	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	log_notice("still waits for %s", what);
}
