/* Writes to stdout, and says why where that fails. */
#include "core/program/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool has_failed;

static void output_complain(int error)
{
	fprintf(stderr, "%s: stdout cannot be written: %s.\n", program_invocation_short_name,
		strerror(error));
}

/* A socket of the library's must not become the stdin or stderr that is missing. */
static void output_open_missing(int fd)
{
	if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
		fprintf(stderr, "%s: descriptor %d is closed, and so is /dev/null.\n",
			program_invocation_short_name, fd);
}

/* A write that stdio does in between would fail and leave no reason. */
void output_buffer(void)
{
	static char buffer[1 << 16];

	if (!isatty(STDOUT_FILENO))
		setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
}

bool output_open(void)
{
	output_open_missing(STDIN_FILENO);
	if (fcntl(STDOUT_FILENO, F_GETFD) < 0) {
		output_complain(errno);
		return false;
	}
	output_open_missing(STDERR_FILENO);
	output_buffer();
	signal(SIGPIPE, SIG_IGN); /* all ranks are to end, not the one that writes */
	return true;
}

void output_flush(void)
{
	errno = 0;
	if (has_failed || (fflush(stdout) == 0 && !ferror(stdout)))
		return;
	has_failed = true;
	if (errno != EPIPE)
		output_complain(errno ? errno : EIO);
}

bool output_is_well(void)
{
	return !has_failed;
}

int output_end(int code, int failure)
{
	output_flush();
	return has_failed && code == 0 ? failure : code;
}
