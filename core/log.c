/* Logging: one write per line, so that lines of several ranks do not mix. */
#include "core/log.h"

#include "core/clock.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum log_level log_level = LOG_NOTICE;
static _Thread_local int log_rank = -1;

void log_set_rank(int rank)
{
	log_rank = rank;
}

static void log_write_line(unsigned left_out, const char *format, va_list args)
{
	char line[1024];
	int n = log_rank < 0 ? snprintf(line, sizeof line, "tutti: ")
			     : snprintf(line, sizeof line, "tutti: rank %d: ", log_rank);

	if (left_out)
		n += snprintf(line + n, sizeof line - (size_t)n, "(%u such lines left out) ",
			      left_out);
	n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, args);
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	line[n++] = '\n';
	/* A log line that cannot be written has nowhere to be reported. */
	if (write(STDERR_FILENO, line, (size_t)n) < 0)
		return;
}

void log_line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	log_write_line(0, format, args);
	va_end(args);
}

/* Lines are paid for with time: each costs a second, and LOG_AT_ONCE seconds can be owed. */
void log_seldom_line(const char *format, ...)
{
	static _Atomic uint64_t paid_until_ns;
	static atomic_uint unsaid;
	const uint64_t second_ns = 1000000000;
	uint64_t now_ns = clock_now_ns(), paid_ns = atomic_load(&paid_until_ns), next_ns;
	va_list args;

	do {
		next_ns = (paid_ns > now_ns ? paid_ns : now_ns) + second_ns;
		if (next_ns > now_ns + LOG_AT_ONCE * second_ns) {
			atomic_fetch_add(&unsaid, 1);
			return;
		}
	} while (!atomic_compare_exchange_weak(&paid_until_ns, &paid_ns, next_ns));
	va_start(args, format);
	log_write_line(atomic_exchange(&unsaid, 0), format, args);
	va_end(args);
}
