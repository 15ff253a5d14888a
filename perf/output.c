/* Writes to stdout, and says why where that fails. */
#include "output.h"

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
static void open_missing(int fd)
{
	if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
		fprintf(stderr, "%s: descriptor %d is closed, and so is /dev/null.\n",
			program_invocation_short_name, fd);
}

bool output_open(void)
{
	open_missing(STDIN_FILENO);
	if (fcntl(STDOUT_FILENO, F_GETFD) < 0) {
		output_complain(errno);
		return false;
	}
	open_missing(STDERR_FILENO);
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
