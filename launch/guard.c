#include "guard.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Nobody writes to the pipe; its end is the launcher's. */
__attribute__((noreturn)) static void guard(const struct ranks *ranks, int launcher)
{
	sigset_t all;
	char byte;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	setpgid(0, 0);
	dup2(launcher, STDIN_FILENO);
	close_range(STDIN_FILENO + 1, ~0u, 0);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	ranks_signal(ranks, SIGKILL);
	_exit(0);
}

pid_t guard_start(const struct ranks *ranks)
{
	int ends[2];
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) != 0)
		return -1;
	pid = fork();
	if (pid == 0)
		guard(ranks, ends[0]);
	close(ends[0]); /* the other end stays open as long as this process lives */
	return pid;
}

void guard_end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}
