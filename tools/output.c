/* The tools' words besides their results. */
#include "tools/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int usage_error(const char *format, ...)
{
	const char *program = program_invocation_short_name;
	va_list args;

	fprintf(stderr, "%s: ", program);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fprintf(stderr, " %s --help says more.\n", program);
	return USAGE_WRONG;
}

static void tools_output_complain(int error)
{
	fprintf(stderr, "%s: stdout cannot be written: %s.\n", program_invocation_short_name,
		strerror(error));
}

/* A write in the middle would fail and leave no reason: what a tool says goes out at its end. */
static char buffer[1 << 16];

bool output_open(void)
{
	if (fcntl(STDOUT_FILENO, F_GETFD) >= 0) {
		if (!isatty(STDOUT_FILENO))
			setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
		return true;
	}
	tools_output_complain(errno);
	return false;
}

int output_end(int code)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	tools_output_complain(errno ? errno : EIO);
	return code ? code : OUTPUT_FAILED;
}
