/* tutti-trace, which is installed beside tuttirun, looks at the ranks: they need not help, and
 * tuttirun knows nothing of what they remember. */
#include "hangs.h"

#include "now.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS 10000 /* a process that is stuck in the kernel may stop a look at it */

/* In the folder of this program, or, where nothing is installed, beside that in the build's. */
static bool hangs_find_tool(char path[PATH_MAX])
{
	static const char *const names[] = {"tutti-trace", "../tools/tutti-trace"};
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 40);

	if (n <= 0)
		return false;
	path[n] = '\0';
	char *name = strrchr(path, '/') + 1;
	for (int i = 0; i < 2; i++) {
		strcpy(name, names[i]);
		if (access(path, X_OK) == 0)
			return true;
	}
	return false;
}

/* Passes what the tool says on, a line at a time. */
static void hangs_pass_lines(struct sink *sink, int fd)
{
	uint64_t end = now_ms() + LOOK_MS;
	char text[4096], line[sizeof text + 20];
	size_t used = 0;
	ssize_t n;

	for (;;) {
		struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
		uint64_t now = now_ms();

		if (now >= end || poll(&poll_fd, 1, (int)(end - now)) <= 0)
			return;
		n = read(fd, text + used, sizeof text - 1 - used);
		if (n <= 0)
			return;
		used += (size_t)n;
		text[used] = '\0';
		char *at = text, *newline;
		while ((newline = strchr(at, '\n')) || (at == text && used == sizeof text - 1)) {
			size_t length = newline ? (size_t)(newline - at) : used;

			snprintf(line, sizeof line, "tuttirun: %.*s\n", (int)length, at);
			sink_say(sink, line);
			at += length + (newline ? 1 : 0);
			used -= length + (newline ? 1 : 0);
		}
		memmove(text, at, used);
	}
}

/* Returns the tool's exit code, or -1. */
static int hangs_run(const struct start *s, struct sink *sink, char *const arguments[])
{
	int ends[2], status;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		sigprocmask(SIG_SETMASK, s->signals, NULL);
		execv(arguments[0], arguments);
		_exit(127);
	}
	close(ends[1]);
	if (pid > 0)
		hangs_pass_lines(sink, ends[0]);
	close(ends[0]);
	if (pid < 0)
		return -1;
	kill(pid, SIGKILL); /* it has ended, or takes too long */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		continue;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void hangs_say_where(struct sink *sink, const char *file, int code)
{
	char line[PATH_MAX + 80];

	if (code < 0 || access(file, R_OK) != 0)
		return; /* tutti-trace has said why, or no rank has a communicator */
	snprintf(line, sizeof line, "tuttirun: the traces of the ranks are in %s\n", file);
	sink_say(sink, line);
}

void hangs_report(struct ranks *ranks, const struct start *s)
{
	const char *folder = getenv("TUTTI_TRACE_DIR");
	char tool[PATH_MAX], launcher[24], file[PATH_MAX];
	char *calls[] = {tool, "calls", launcher, NULL};
	char *dump[] = {tool, "dump", "-o", file, launcher, NULL};

	if (!hangs_find_tool(tool)) {
		sink_say(&ranks->err,
			 "tuttirun: there is no tutti-trace beside it to say which calls the ranks "
			 "are in\n");
		return;
	}
	snprintf(launcher, sizeof launcher, "%d", (int)s->launcher);
	hangs_run(s, &ranks->err, calls);
	if (!folder || !*folder)
		return;
	snprintf(file, sizeof file, "%s/tutti-trace.node%d.json", folder, s->options->node_rank);
	unlink(file); /* an older job's */
	hangs_say_where(&ranks->err, file, hangs_run(s, &ranks->err, dump));
}
