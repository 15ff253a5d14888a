/* See ranks.h. */
#include "tests/limit.h"
#include "tests/limits/ranks.h"

#include "core/clock.h"
#include "core/net.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

/* Shared with the ranks. */
static struct outcome *outcomes;

static _Noreturn void be_a_rank(const struct scene *scene, int rank, int port)
{
	struct outcome *o = &outcomes[rank];
	int files = job_open_files();
	long blocks = shim_blocks(), calls[SHIM_KINDS];
	uint64_t begun_ns = clock_now_ns();

	for (int kind = 0; kind < SHIM_KINDS; kind++)
		calls[kind] = shim_calls((enum shim_kind)kind);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	test_limit(RANKS_ALARM_S);
	setenv("TUTTI_WINDOW", scene->window ? "1" : "0", 1);
	o->job = (struct job_of){.rank = rank,
				 .size = scene->size,
				 .port = port,
				 .timeout_ms = scene->timeout_ms,
				 .transports = scene->transports};
	if (scene->prepare)
		scene->prepare(rank, scene->arg);
	job_run(&o->job);
	o->was_refused = shim_stop();
	for (int kind = 0; kind < SHIM_KINDS; kind++)
		o->calls[kind] = shim_calls((enum shim_kind)kind) - calls[kind];
	o->blocks = shim_blocks() - blocks;
	o->files = job_open_files() - files;
	o->ms = (int)((clock_now_ns() - begun_ns) / 1000000);
	o->is_over = true;
	_exit(0);
}

static pid_t start(const struct scene *scene, int rank, int port)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		be_a_rank(scene, rank, port);
	outcomes[rank].was_started = true;
	return pid;
}

static void reap(pid_t pid, int rank)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	outcomes[rank].signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* True when rank 0 serves the meeting, false when it has ended without: by itself, or by a signal.
 */
static bool serves(int port, pid_t pid)
{
	for (;;) {
		siginfo_t end = {.si_pid = 0};
		int fd;
		if (net_try_connect("127.0.0.1", port, deadline_after_ms(1000), &fd) == TUTTI_OK) {
			close(fd);
			return true;
		}
		assert_int_equal(waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT), 0);
		if (end.si_pid == pid)
			return false;
		usleep(500); /* rank 0 has RANKS_ALARM_S */
	}
}

struct outcome *ranks_run(const struct scene *scene)
{
	pid_t pids[RANKS_MOST] = {0};
	int port = job_free_port();
	bool come = true;

	if (!outcomes) {
		outcomes = mmap(NULL, RANKS_MOST * sizeof *outcomes, PROT_READ | PROT_WRITE,
				MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		assert_true(outcomes != MAP_FAILED);
	}
	memset(outcomes, 0, RANKS_MOST * sizeof *outcomes);
	pids[0] = start(scene, 0, port);
	if (scene->first)
		come = serves(port, pids[0]);
	for (int r = 1; r < scene->size && come; r++)
		pids[r] = start(scene, r, port);
	for (int r = 0; r < scene->size; r++)
		if (pids[r])
			reap(pids[r], r);
	return outcomes;
}

/* Two that put it together each said who speaks, or one put an end in the middle. */
static bool is_botched(const char *message)
{
	char twice[64];
	size_t bytes;
	int rank;

	if (strstr(message, ".;") || strstr(message, ".:"))
		return true;
	if (sscanf(message, "rank %d: ", &rank) != 1)
		return false;
	bytes = (size_t)snprintf(twice, sizeof twice, "rank %d: rank %d", rank, rank);
	return strncasecmp(message, twice, bytes) == 0 && strchr(": ", message[bytes]);
}

static void show(const struct outcome *all, int size, const char *what)
{
	for (int r = 0; r < size; r++)
		print_message("%s: rank %d: %d ms: %s %s\n", what, r, all[r].ms,
			      all[r].job.where ? all[r].job.where : "well", all[r].job.error);
}

void ranks_expect_decent(const struct outcome *all, int size, const char *what)
{
	if (getenv("LIMITS_SHOW"))
		show(all, size, what);
	for (int r = 0; r < size; r++) {
		const struct outcome *o = &all[r];
		if (!o->was_started)
			continue;
		if (!o->is_over)
			fail_msg("%s: rank %d was ended by signal %d in %s", what, r, o->signal,
				 o->job.where ? o->job.where : "the job");
		if (o->job.wrong)
			fail_msg("%s: rank %d has %d wrong values", what, r, o->job.wrong);
		if (o->job.where && !o->job.error[0])
			fail_msg("%s: rank %d: %s failed without a message", what, r, o->job.where);
		if (is_botched(o->job.error))
			fail_msg("%s: rank %d: %s", what, r, o->job.error);
		if ((o->blocks && o->blocks != o->job.kept) || o->files)
			fail_msg("%s: rank %d left %ld blocks and %ld descriptors (%s: %s)", what,
				 r, o->blocks, o->files, o->job.where ? o->job.where : "all well",
				 o->job.error);
	}
}

bool ranks_all_well(const struct outcome *all, int size)
{
	for (int r = 0; r < size; r++)
		if (!all[r].was_started || all[r].job.where)
			return false;
	return true;
}
