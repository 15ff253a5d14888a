/* A graph whose calls wait for a rank that has died, or that launches nothing: its stream would
 * wait for ever, and no call of the host would notice. Ranks are processes with a GPU each. */
#include "gpu.h"

#include "tests/limit.h"
#include "tests/ports.h"

#include <tutti/tutti.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/unit.h"

#define RANKS 3
#define N     20000

enum ending { DIES, STAYS_AWAY };

static void set_number(const char *name, int number)
{
	char text[16];

	snprintf(text, sizeof text, "%d", number);
	setenv(name, text, 1);
}

static void must(tutti_status status, const char *what)
{
	if (status == TUTTI_OK)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, tutti_status_string(status), tutti_comm_error(NULL));
	_exit(1);
}

static CUgraphExec capture(tutti_comm *comm, CUstream stream, void *send, void *recv)
{
	CUgraph graph;
	CUgraphExec exec;
	tutti_call call = {.stream = stream};

	GPU(stream_begin_capture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	must(tutti_all_reduce(send, recv, N, TUTTI_F32, TUTTI_SUM, comm, &call), "all_reduce");
	GPU(stream_end_capture, stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	return exec;
}

/* What the ranks that go on see. Returns the exit status. */
static int look(tutti_comm *comm, enum ending ending)
{
	tutti_status status = tutti_comm_status(comm),
		     due = ending == DIES ? TUTTI_ERR_PEER : TUTTI_ERR_TIMEOUT;
	bool is_right =
		status == due && (ending != DIES || strstr(tutti_comm_error(comm), "ank 1"));

	if (!is_right)
		fprintf(stderr, "%s: %s\n", tutti_status_string(status), tutti_comm_error(comm));
	return is_right ? 0 : 1;
}

static int rank_main(int rank, int port, enum ending ending)
{
	tutti_comm *comm;

	test_limit(60);
	set_number("RANK", rank);
	set_number("WORLD_SIZE", RANKS);
	set_number("MASTER_PORT", port);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	set_number("TUTTI_TIMEOUT_MS", ending == DIES ? 20000 : 500);
	if (!gpu_open())
		return 77;
	gpu_use(rank % gpu_count());
	must(tutti_init(&comm, &(tutti_config){.timeout_ms = ending == DIES ? 20000 : 500}),
	     "init");
	CUstream stream = gpu_stream();
	void *send = gpu_alloc(N * sizeof(float)), *recv = gpu_alloc(N * sizeof(float));
	CUgraphExec exec = capture(comm, stream, send, recv);
	GPU(graph_launch, exec, stream);
	gpu_sync(stream);
	must(tutti_barrier(comm, NULL), "barrier");
	if (rank == 1 && ending == DIES)
		raise(SIGKILL);
	if (rank != 1)
		GPU(graph_launch, exec, stream);
	gpu_sync(stream);
	while (rank == 1 && tutti_comm_status(comm) == TUTTI_OK)
		tutti_barrier(comm, NULL);
	int result = rank == 1 ? 0 : look(comm, ending);
	GPU(graph_exec_destroy, exec);
	tutti_comm_destroy(comm);
	return result;
}

static void run(enum ending ending)
{
	pid_t pids[RANKS];
	int port = test_ports() + (int)ending;

	for (int r = 0; r < RANKS; r++) {
		pids[r] = fork();
		assert_true(pids[r] >= 0);
		if (pids[r] == 0)
			_exit(rank_main(r, port, ending));
	}
	for (int r = 0; r < RANKS; r++) {
		int status;
		assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
			skip();
		if (r == 1 && ending == DIES)
			assert_true(WIFSIGNALED(status));
		else
			assert_int_equal(status, 0);
	}
}

static void test_death(void **state)
{
	(void)state;
	run(DIES);
}

static void test_absence(void **state)
{
	(void)state;
	run(STAYS_AWAY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_death),
		cmocka_unit_test(test_absence),
	};

	test_limit(150);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
