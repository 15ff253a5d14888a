#include "guard.h"

#include "options.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* The end of the pipe comes when the launcher has gone: the ranks' copies of it were closed by
 * exec. */
__attribute__((noreturn)) static void watch(int fd)
{
	static pid_t ranks[RANKS_MAX];
	int n = 0;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	setpgid(0, 0);
	dup2(fd, STDIN_FILENO);
	close_range(STDIN_FILENO + 1, ~0u, 0);
	while (n < RANKS_MAX && read(STDIN_FILENO, &ranks[n], sizeof ranks[n]) == sizeof ranks[n])
		n++;
	for (char byte; read(STDIN_FILENO, &byte, 1) > 0;)
		continue;
	for (int i = 0; i < n; i++)
		kill(-ranks[i], SIGKILL);
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
		watch(ends[0]);
	close(ends[0]);
	return guard;
}

void guard_join(const struct guard *guard)
{
	pid_t self = getpid();

	/* Without a guard there is nobody to tell. */
	if (guard->pid > 0 && write(guard->fd, &self, sizeof self) < 0)
		return;
}

/* Killed before the pipe ends, or it would take that for the launcher's death. */
void guard_end(struct guard *guard)
{
	if (guard->pid > 0) {
		kill(guard->pid, SIGKILL);
		waitpid(guard->pid, NULL, 0);
	}
	if (guard->fd >= 0)
		close(guard->fd);
}
