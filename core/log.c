/* Logging: one write per line, so that lines of several ranks do not mix. */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum log_level log_level = LOG_OFF;
static _Thread_local int log_rank = -1;

void log_set_rank(int rank)
{
	log_rank = rank;
}

void log_line(const char *format, ...)
{
	char line[1024];
	int n = log_rank < 0 ? snprintf(line, sizeof line, "tutti: ")
			     : snprintf(line, sizeof line, "tutti: rank %d: ", log_rank);
	va_list args;

	va_start(args, format);
	n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
	va_end(args);
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	line[n++] = '\n';
	/* A log line that cannot be written has nowhere to be reported. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}
