/* Waits for processes, and ends all of them as soon as one has failed. */
#include "limits_watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t limits_watch_fail(const char *what)
{
	fprintf(stderr, "%s: %s: %s.\n", program_invocation_short_name, what, strerror(errno));
	return -1;
}

/* The process ends with its parent: it may spin, and wait for others. */
pid_t watch_fork(struct watch *w)
{
	int ends[2];
	pid_t parent = getpid(), pid;

	if (pipe(ends) != 0)
		return limits_watch_fail("pipe");
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		close(ends[0]);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		return 0;
	}
	close(ends[1]);
	if (pid < 0) {
		close(ends[0]);
		return limits_watch_fail("fork");
	}
	w->pids[w->started] = pid;
	w->ends[w->started++] = ends[0];
	return pid;
}

void watch_kill(struct watch *w)
{
	for (int i = 0; i < w->started; i++) {
		if (w->pids[i] == 0)
			continue;
		kill(w->pids[i], SIGKILL);
		waitpid(w->pids[i], NULL, 0);
		close(w->ends[i]);
		w->pids[i] = 0;
	}
}

/* Of one whose pipe is shut: whether all was well with it. */
static bool limits_watch_take_leave(struct watch *w, int i)
{
	const char *name = program_invocation_short_name;
	int status = -1;

	waitpid(w->pids[i], &status, 0);
	close(w->ends[i]);
	w->pids[i] = 0;
	if (WIFSIGNALED(status))
		fprintf(stderr,
			"%s: rank %d of %d was ended by signal %d (%s), so all of them were "
			"ended.\n",
			name, i, w->started, WTERMSIG(status), strsignal(WTERMSIG(status)));
	else if (status != 0)
		fprintf(stderr,
			"%s: rank %d of %d ended with exit code %d, so all of them were ended.\n",
			name, i, w->started, WEXITSTATUS(status));
	return status == 0;
}

/* Stopped, by a signal or a debugger. */
static bool limits_watch_is_stopped(pid_t pid)
{
	char path[64], line[512] = "";
	const char *state;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	file = fopen(path, "r");
	if (!file)
		return false;
	state = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
	fclose(file);
	return state && (strncmp(state, ") T", 3) == 0 || strncmp(state, ") t", 3) == 0);
}

static void explain_timeout(const struct watch *w)
{
	const char *name = program_invocation_short_name;
	int left = 0, stopped = -1;

	for (int i = 0; i < w->started; i++) {
		left += w->pids[i] != 0;
		if (w->pids[i] != 0 && limits_watch_is_stopped(w->pids[i]))
			stopped = i;
	}
	fprintf(stderr, "%s: %d of %d ranks were not done after %d s, so all of them were ended",
		name, left, w->started, w->timeout_s);
	if (stopped >= 0)
		fprintf(stderr, "; rank %d is stopped.\n", stopped);
	else
		fprintf(stderr, "; is the machine busy?\n");
}

/* -1: time is up. */
static int limits_watch_wait_for_one(struct watch *w, double end)
{
	struct pollfd polls[LIMITS_MOST];
	double left;

	for (int i = 0; i < w->started; i++)
		polls[i] = (struct pollfd){.fd = w->pids[i] ? w->ends[i] : -1, .events = POLLIN};
	while ((left = end - limits_now()) > 0) {
		if (poll(polls, (nfds_t)w->started, (int)(left * 1e3) + 1) <= 0)
			continue;
		for (int i = 0; i < w->started; i++) {
			if (polls[i].revents)
				return i;
		}
	}
	return -1;
}

bool watch_until_end(struct watch *w)
{
	double end = limits_now() + w->timeout_s;

	for (int left = w->started; left > 0; left--) {
		int i = limits_watch_wait_for_one(w, end);

		if (i < 0)
			explain_timeout(w);
		if (i < 0 || !limits_watch_take_leave(w, i)) {
			watch_kill(w);
			return false;
		}
	}
	return true;
}
