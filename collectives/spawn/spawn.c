/* tutti_spawn, as tutti.h declares it: ranks of this program without a launcher. tuttirun does more
 * for its ranks (docs/launching.md); how they are told who they are, and how long they have to end,
 * is the same, core/rank. */
#include "collectives/spawn/spawn.h"

#include "core/rank/variables.h"

#include "core/clock.h"
#include "core/forks.h"
#include "core/status.h"
#include "core/words/netaddr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Thread_local int last_code;

static tutti_status spawn_check(int (*fn)(int rank, void *arg), int nprocs)
{
	last_error_clear();
	TRY(forks_check("tutti_spawn"));
	if (!fn)
		return fail(TUTTI_ERR_INVALID, "tutti_spawn: fn is NULL");
	if (nprocs < 1 || nprocs > RANKS_MAX)
		return fail(TUTTI_ERR_INVALID, "tutti_spawn: nprocs is %d: it is from 1 to %d",
			    nprocs, RANKS_MAX);
	if (forks_communicators() > 0)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_spawn: this process has %d communicator%s, which forked ranks "
			    "cannot share: call it before tutti_init, or destroy them first",
			    forks_communicators(), forks_communicators() == 1 ? "" : "s");
	return TUTTI_OK;
}

/* Where the program has closed descriptors of these, a pipe or a connection would get the number,
 * and what is printed would go there. They stay unusable: stdin is open to write, the others to
 * read. Returns a bit for each. */
static unsigned fill_standard(void)
{
	unsigned filled = 0;

	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
		if (fcntl(fd, F_GETFD) >= 0)
			continue;
		int got = open("/dev/null", (fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
		if (got == fd)
			filled |= 1u << fd;
		else if (got >= 0) /* another thread has taken it */
			close(got);
	}
	return filled;
}

static void empty_standard(unsigned filled)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (filled & 1u << fd)
			close(fd);
}

static tutti_status spawn_prepare(struct spawn *s)
{
	s->rank = calloc((size_t)s->n, sizeof *s->rank);
	s->poll = calloc((size_t)s->n + 1, sizeof *s->poll);
	if (!s->rank || !s->poll)
		return fail(TUTTI_ERR_MEMORY, "tutti_spawn: no memory for %d ranks", s->n);
	s->host = netaddr_loopback();
	if (fresh_port_keep(&s->port, 0) != 0)
		return fail_errno("tutti_spawn: cannot bind a TCP port that the system chooses");
	s->cores = cores_deal(s->n);
	if (!getenv("TUTTI_SECRET") && !getenv("TUTTI_SECRET_FILE") && fresh_secret(s->secret) != 0)
		return fail_errno("tutti_spawn: no random bits for the job's secret");
	return TUTTI_OK;
}

/* After a failure to start one those that run are killed, and the failure is the result. */
static tutti_status spawn_start_all(struct spawn *s)
{
	tutti_status status = TUTTI_OK;

	fflush(NULL); /* what is in memory would be written by each rank */
	while (s->started < s->n && status == TUTTI_OK)
		status = spawn_fork(s);
	if (status == TUTTI_OK)
		return TUTTI_OK;

	char message[ERROR_BYTES];
	snprintf(message, sizeof message, "%s", last_error());
	spawn_kill(s, SIGKILL);
	spawn_await(s);
	return fail(status, "%s", message);
}

static tutti_status spawn_run(struct spawn *s)
{
	tutti_status status;

	TRY(outside_take(&s->outside));
	status = spawn_start_all(s);
	s->has_run = status == TUTTI_OK;
	if (s->has_run)
		spawn_await(s);
	outside_give_back(&s->outside);
	return s->has_run ? spawn_explain(s) : status;
}

tutti_status tutti_spawn(int (*fn)(int rank, void *arg), void *arg, int nprocs)
{
	struct spawn s = {
		.fn = fn,
		.arg = arg,
		.n = nprocs,
		.parent = getpid(),
		.port = FRESH_PORT_NONE,
		.term_at = DEADLINE_NONE,
		.kill_at = DEADLINE_NONE,
	};
	tutti_status status;

	last_code = 1;
	TRY(spawn_check(fn, nprocs));
	unsigned filled = fill_standard();
	status = spawn_prepare(&s);
	if (status == TUTTI_OK)
		status = spawn_run(&s);
	last_code = s.has_run ? s.exit_code : 1;
	cores_free(s.cores);
	fresh_port_free(&s.port);
	free(s.poll);
	free(s.rank);
	empty_standard(filled);
	return status;
}

int tutti_spawn_exit_code(void)
{
	return last_code;
}
