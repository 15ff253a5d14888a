/* Ranks tell the guard by a pipe; its end means that the launcher has gone. */
#include "guard.h"

#include "options.h"

#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A message on the pipe, in one piece: shorter than PIPE_BUF. */
struct word {
	int local;
	pid_t group; /* 0: it has none any more */
};

/* The end of the pipe comes when the launcher has gone: the ranks' copies of it were closed by
 * exec. */
__attribute__((noreturn)) static void guard_watch(int fd)
{
	static pid_t groups[RANKS_MAX];
	struct word word;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	setpgid(0, 0);
	dup2(fd, STDIN_FILENO);
	close_range(STDIN_FILENO + 1, ~0u, 0);
	while (read(STDIN_FILENO, &word, sizeof word) == sizeof word)
		groups[word.local] = word.group;
	for (int i = 0; i < RANKS_MAX; i++)
		if (groups[i] > 0)
			kill(-groups[i], SIGKILL);
	_exit(0);
}

struct guard guard_start(void)
{
	struct guard guard = {-1, -1};
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0)
		return guard;
	guard.fd = ends[1];
	guard.pid = fork();
	if (guard.pid == 0)
		guard_watch(ends[0]);
	close(ends[0]);
	return guard;
}

static void guard_tell_group(const struct guard *guard, int local, pid_t group)
{
	struct word word = {local, group};

	assert(local >= 0 && local < RANKS_MAX);
	/* There may be no guard process. */
	if (guard->pid > 0 && write(guard->fd, &word, sizeof word) < 0)
		return;
}

void guard_join(const struct guard *guard, int local)
{
	guard_tell_group(guard, local, getpid());
}

void guard_forget(const struct guard *guard, int local)
{
	guard_tell_group(guard, local, 0);
}

/* The guard is killed before the pipe ends: it would take that for the launcher's death. */
void guard_end(struct guard *guard)
{
	if (guard->pid > 0) {
		kill(guard->pid, SIGKILL);
		waitpid(guard->pid, NULL, 0);
	}
	if (guard->fd >= 0)
		close(guard->fd);
}
