/* Would break: ranks that name different roots in calls in which no rank waits for another, and
 * make no call after them, all end well with different data, and no rank says a word. */
#include "tests/limit.h"

#include "collectives/engine/engine_internal.h"

#include <tutti/tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS 3
#define COUNT 5
#define CALLS 4 /* fewer than lines of a window, after which a call notices */

enum program { RIGHT, BROADCASTS, SCATTERS, REDUCES };

static tutti_status call(enum program program, tutti_comm *comm)
{
	int rank = tutti_rank(comm), next = (rank + 1) % RANKS;
	int32_t send[RANKS * COUNT] = {0}, recv[COUNT] = {0};

	switch (program) {
	case RIGHT:
		return tutti_broadcast(send, recv, COUNT, TUTTI_I32, 0, comm, NULL);
	case BROADCASTS:
		return tutti_broadcast(send, recv, COUNT, TUTTI_I32, rank, comm, NULL);
	case SCATTERS:
		return tutti_scatter(send, recv, COUNT, TUTTI_I32, rank, comm, NULL);
	case REDUCES:
		return tutti_reduce(send, recv, COUNT, TUTTI_I32, TUTTI_SUM, next, comm, NULL);
	}
	return TUTTI_ERR_INTERNAL;
}

/* One thread plays all ranks: the calls wait for none, but for a root that comes first. */
static void be_job(enum program program)
{
	tutti_comm *comms[RANKS];

	if (tutti_init_all(comms, RANKS, NULL) != TUTTI_OK)
		_exit(77);
	for (int i = 0; i < CALLS; i++)
		for (int r = 0; r < RANKS; r++)
			if (call(program, comms[r]) != TUTTI_OK)
				_exit(1);
	for (int r = 0; r < RANKS; r++)
		tutti_comm_destroy(comms[r]);
	_exit(0);
}

/* What the job has written to stderr. */
static void run_job(enum program program, const char *log, char *text, size_t bytes)
{
	int ends[2], status;
	size_t at = 0;
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		test_limit(100);
		dup2(ends[1], STDERR_FILENO);
		log ? setenv("TUTTI_LOG", log, 1) : unsetenv("TUTTI_LOG");
		be_job(program);
	}
	close(ends[1]);
	while (at + 1 < bytes && (n = read(ends[0], text + at, bytes - at - 1)) > 0)
		at += (size_t)n;
	text[at] = '\0';
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (status != 0)
		fail_msg("the job ended with %#x: %s", (unsigned)status, text);
}

static void expect_mismatch(enum program program, const char *name)
{
	char text[8000], call[2][80];

	run_job(program, NULL, text, sizeof text);
	for (int r = 0; r < 2; r++) {
		int root = program == REDUCES ? r + 1 : r;
		snprintf(call[r], sizeof call[r], "rank %d called %s(", r, name);
		if (!strstr(text, call[r]))
			fail_msg("rank %d called %s with root %d, and stderr has: '%s'", r, name,
				 root, text);
	}
	for (int r = 0; r < RANKS; r++) {
		snprintf(call[0], sizeof call[0], "tutti_comm_destroy on rank %d: ", r);
		assert_non_null(strstr(text, call[0]));
	}
	run_job(program, "off", text, sizeof text);
	assert_string_equal(text, "");
}

static void test_different_roots(void **state)
{
	expect_mismatch(BROADCASTS, "broadcast");
	expect_mismatch(SCATTERS, "scatter");
	expect_mismatch(REDUCES, "reduce");
}

static void test_right_program(void **state)
{
	char text[8000];

	run_job(RIGHT, NULL, text, sizeof text);
	assert_string_equal(text, "");
}

/* Would break: with a timeout of some ms a destroy gives up on a thread that only waits for a
 * processor. */
static void gives_up_late(void **state)
{
	static struct engine e;

	e.config.timeout_ms = 1;
	assert_int_equal(engine_give_up_ms(&e), 1000);
	e.config.timeout_ms = 1001;
	assert_int_equal(engine_give_up_ms(&e), 1001);
	e.config.timeout_ms = 0;
	assert_true(engine_give_up_ns(&e) == DEADLINE_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_different_roots),
		cmocka_unit_test(test_right_program),
		cmocka_unit_test(gives_up_late),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
