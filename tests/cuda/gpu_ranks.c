/* Processes, forked before anything is known of CUDA. */
#include "gpu_ranks.h"

#include "tests/limit.h"
#include "tests/ports.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS_MOST 8

static void set_number(const char *name, int number)
{
	char text[16];

	snprintf(text, sizeof text, "%d", number);
	setenv(name, text, 1);
}

void gpu_rank_must(tutti_status status, const char *what)
{
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, tutti_status_string(status), tutti_comm_error(NULL));
	_exit(1);
}

static char machine[] = "/tmp/gpu_ranks.XXXXXX";

void gpu_ranks_together(void)
{
	int fd = mkstemp(machine);

	assert_true(fd >= 0);
	close(fd);
	setenv("FAKE_CUDA_MACHINE", machine, 1);
}

void gpu_ranks_apart(void)
{
	unlink(machine);
}

bool gpu_ranks_fail(tutti_comm *comm, tutti_status status, const char *says)
{
	while (tutti_comm_status(comm) == TUTTI_OK)
		sched_yield();
	if (tutti_comm_status(comm) == status && strstr(tutti_comm_error(comm), says))
		return true;
	fprintf(stderr, "rank %d: %s, not %s with '%s': %s\n", tutti_rank(comm),
		tutti_status_string(tutti_comm_status(comm)), tutti_status_string(status), says,
		tutti_comm_error(comm));
	return false;
}

static int enter(int rank, int n, int (*body)(int rank, int arg), int arg)
{
	test_limit(60);
	set_number("RANK", rank);
	set_number("WORLD_SIZE", n);
	if (!gpu_open())
		return 77;
	gpu_use(rank % gpu_count());
	return body(rank, arg);
}

void gpu_ranks_run(int n, int (*body)(int rank, int arg), int arg, unsigned may_die)
{
	static int runs;
	pid_t pids[RANKS_MOST];
	bool is_skipped = false;

	set_number("MASTER_PORT", test_ports() + runs++);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	for (int r = 0; r < n; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (pids[r] == 0)
			exit(enter(r, n, body, arg));
	}
	for (int r = 0; r < n; r++) {
		int status;
		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		is_skipped |= WIFEXITED(status) && WEXITSTATUS(status) == 77;
		if (may_die & 1u << r)
			assert_true(is_skipped || WIFSIGNALED(status));
		else
			assert_true(is_skipped || status == 0);
	}
	if (is_skipped)
		skip();
}
