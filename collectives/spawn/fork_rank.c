/* One rank becomes a process. It runs fn in a copy of this program, from where the caller is. */
#include "collectives/spawn/spawn.h"

#include "core/rank/variables.h"

#include "core/callback.h"
#include "core/log.h"
#include "core/status.h"
#include "core/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Variables of a launcher that has started the parent would send the rank to another job. */
static void fork_rank_set_environment(const struct spawn *s, int rank)
{
	static const char *const others[] = {"TUTTI_RESTARTED", "TUTTI_MAX_RESTARTS",
					     "TUTTIRUN_SOCKET"};
	int cores = s->cores ? wait_cores() : wait_cores() / s->n;
	struct setting settings[VARIABLES_MAX];
	const struct rank_seat seat = {
		.local = rank,
		.local_size = s->n,
		.nodes = 1,
		.host = s->host,
		.port = s->port.number,
		.starter = s->parent,
		.cores = cores < 1 ? 1 : cores,
	};
	int n = variables_of(settings, &seat);

	for (size_t i = 0; i < sizeof others / sizeof *others; i++)
		unsetenv(others[i]);
	for (int i = 0; i < n; i++)
		setenv(settings[i].name, settings[i].text, 1);
	if (s->secret[0])
		setenv("TUTTI_SECRET", s->secret, 1);
}

/* Rank 0 has the parent's. The others must not read what rank 0 shall, nor what the parent has read
 * ahead. */
static void fork_rank_set_input(int rank)
{
	int fd = rank == 0 ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	close(fd);
	__fpurge(stdin);
	clearerr(stdin);
}

/* The exit code. The parent's exit handlers are the parent's; only output is not to be lost. */
static int fork_rank_code_of(int returned, int rank)
{
	int code = returned & 0xff;

	if (code == 0 && returned != 0)
		code = 1; /* of a larger number the kernel keeps the last 8 bits */
	const char *lost = spawn_output_lost();
	if (!lost || code != 0)
		return code;
	log_notice("the output of rank %d could not be written: %s", rank, lost);
	return OUTPUT_LOST;
}

/* The program may have flushed it itself, and looked at nothing. */
const char *spawn_output_lost(void)
{
	if (fflush(NULL) != 0)
		return strerror(errno);
	return ferror(stdout) ? "an earlier write failed" : NULL;
}

__attribute__((noreturn)) static void fork_rank_become(struct spawn *s, int rank,
						       const sigset_t *mask)
{
	int (*fn)(int, void *) = s->fn;
	void *arg = s->arg;

	follow_parent(s->parent);
	for (int i = 0; i < rank; i++)
		if (s->rank[i].fd >= 0)
			close(s->rank[i].fd);
	fresh_port_free(&s->port);
	cores_bind(s->cores, rank);
	wait_count_cores();
	fork_rank_set_environment(s, rank);
	cores_free(s->cores);
	fork_rank_set_input(rank);
	clearerr(stdout); /* what the parent could not write is the parent's */
	outside_leave(&s->outside, mask);
	free(s->rank);
	free(s->poll);
	int code;
	callback_call("the function", "tutti_spawn", rank, code = fn(rank, arg));
	_exit(fork_rank_code_of(code, rank));
}

/* Without a pidfd its end could not be seen among those of the program's other children. */
static tutti_status fork_rank_watch(struct spawn *s, struct spawned *rank)
{
	rank->fd = (int)syscall(SYS_pidfd_open, rank->pid, 0);
	s->started++;
	s->alive += rank->fd >= 0;
	if (rank->fd >= 0)
		return TUTTI_OK;
	fail_errno("tutti_spawn: rank %d of %d (pid %d) cannot be watched", s->started - 1, s->n,
		   (int)rank->pid);
	if (errno == ESRCH) /* another thread has waited for it already */
		return TUTTI_ERR_SYSTEM;
	kill(rank->pid, SIGKILL);
	while (waitpid(rank->pid, NULL, 0) < 0 && errno == EINTR)
		continue;
	return TUTTI_ERR_SYSTEM;
}

tutti_status spawn_fork(struct spawn *s)
{
	struct spawned *rank = &s->rank[s->started];
	tutti_status status;
	sigset_t mask;

	rank->fd = -1;
	outside_hold(&mask);
	rank->pid = fork();
	if (rank->pid == 0)
		fork_rank_become(s, s->started, &mask);
	if (rank->pid < 0)
		status = fail_errno("tutti_spawn: rank %d of %d cannot be started", s->started,
				    s->n);
	else
		status = fork_rank_watch(s, rank);
	outside_release(&mask);
	return status;
}
