/* A graph whose calls wait for a rank that has died, or that launches nothing: its stream would
 * wait for ever, and no call of the host would notice. Ranks are processes with a GPU each. */
#include "gpu_ranks.h"

#include "tests/limit.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS  3
#define N      20000
#define ROUNDS 4
#define MANY   200000 /* more than a mailbox has room for */

enum ending { DIES, STAYS_AWAY };

static CUgraphExec capture(tutti_comm *comm, CUstream stream, void *send, void *recv)
{
	CUgraph graph;
	CUgraphExec exec;
	tutti_call call = {.stream = stream};

	GPU(stream_begin_capture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	gpu_rank_must(tutti_all_reduce(send, recv, N, TUTTI_F32, TUTTI_SUM, comm, &call),
		      "all_reduce");
	GPU(stream_end_capture, stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	GPU(graph_destroy, graph);
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

/* Rank 1 dies, or launches nothing; the others launch once more, and look. */
static int end_replays(tutti_comm *comm, CUgraphExec exec, CUstream stream, enum ending ending)
{
	int rank = tutti_rank(comm);

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

static int rank_main(int rank, int arg)
{
	enum ending ending = (enum ending)arg;
	tutti_config config = {.timeout_ms = ending == DIES ? 20000 : 2000}; /* of joining, too */
	tutti_comm *comm;

	(void)rank;
	gpu_rank_must(tutti_init(&comm, &config), "init");
	CUstream stream = gpu_stream();
	void *send = gpu_alloc(N * sizeof(float)), *recv = gpu_alloc(N * sizeof(float));
	CUgraphExec exec = capture(comm, stream, send, recv);
	GPU(graph_launch, exec, stream);
	gpu_sync(stream);
	gpu_rank_must(tutti_barrier(comm, NULL), "barrier");
	return end_replays(comm, exec, stream, ending);
}

/* A ring of messages, in a group. */
static CUgraphExec capture_ring(tutti_comm *comm, CUstream stream, const void *send, void *recv)
{
	int rank = tutti_rank(comm);
	CUgraph graph;
	CUgraphExec exec;
	tutti_call call = {.stream = stream};

	GPU(stream_begin_capture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	gpu_rank_must(tutti_group_begin(), "group_begin");
	gpu_rank_must(tutti_send(send, MANY, TUTTI_I32, (rank + 1) % RANKS, comm, NULL), "send");
	gpu_rank_must(tutti_recv(recv, MANY, TUTTI_I32, (rank + RANKS - 1) % RANKS, comm, NULL),
		      "recv");
	gpu_rank_must(tutti_group_end(&call), "group_end");
	GPU(stream_end_capture, stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	GPU(graph_destroy, graph);
	return exec;
}

/* Returns how many of the numbers that came are wrong. */
static int turn_ring(CUgraphExec exec, CUstream stream, int rank, void *send, void *recv, int round)
{
	static int words[MANY];
	int wrong = 0;

	for (int i = 0; i < MANY; i++)
		words[i] = i ^ (rank * 1000 + round);
	gpu_write(send, words, sizeof words);
	GPU(graph_launch, exec, stream);
	gpu_sync(stream);
	gpu_read(words, recv, sizeof words);
	for (int i = 0; i < MANY; i++)
		wrong += words[i] != (i ^ ((rank + RANKS - 1) % RANKS * 1000 + round));
	return wrong;
}

/* After some rounds rank 1 dies, or stays away, and the others wait for it: its recv, and its
 * send. */
static int ring_main(int rank, int arg)
{
	enum ending ending = (enum ending)arg;
	tutti_config config = {.timeout_ms = ending == DIES ? 20000 : 2000}; /* of joining, too */
	tutti_comm *comm;
	int wrong = 0;

	gpu_rank_must(tutti_init(&comm, &config), "init");
	CUstream stream = gpu_stream();
	void *send = gpu_alloc(MANY * sizeof(int)), *recv = gpu_alloc(MANY * sizeof(int));
	CUgraphExec exec = capture_ring(comm, stream, send, recv);
	for (int round = 0; round < ROUNDS; round++)
		wrong += turn_ring(exec, stream, rank, send, recv, round);
	gpu_rank_must(tutti_barrier(comm, NULL), "barrier");
	if (wrong)
		fprintf(stderr, "rank %d: %d words are wrong\n", rank, wrong);
	return end_replays(comm, exec, stream, ending) || wrong;
}

/* A stream of another GPU is refused, and comm stays well. */
static int foreign_main(int rank, int arg)
{
	tutti_comm *comm;

	(void)arg;
	gpu_rank_must(tutti_init(&comm, NULL), "init");
	void *buffer = gpu_alloc(N * sizeof(float));
	gpu_use((rank + 1) % gpu_count());
	tutti_call call = {.stream = gpu_stream()};
	tutti_status status =
		tutti_all_reduce(buffer, buffer, N, TUTTI_F32, TUTTI_SUM, comm, &call);
	gpu_use(rank % gpu_count());
	if (gpu_count() > 1 && status != TUTTI_ERR_INVALID)
		fprintf(stderr, "a stream of another GPU: %s\n", tutti_status_string(status));
	gpu_rank_must(tutti_barrier(comm, NULL), "barrier");
	tutti_comm_destroy(comm);
	return gpu_count() > 1 && status != TUTTI_ERR_INVALID;
}

static void test_foreign_stream(void **state)
{
	gpu_ranks_run(RANKS, foreign_main, 0, 0);
}

static void run_all(int (*body)(int rank, int arg))
{
	gpu_ranks_run(RANKS, body, DIES, 1u << 1);
	gpu_ranks_run(RANKS, body, STAYS_AWAY, 0);
}

static void test_kernels(void **state)
{
	run_all(rank_main);
	run_all(ring_main);
}

/* The same where the engine replays the calls. */
static void test_engine(void **state)
{
	setenv("TUTTI_CUDA", "1", 1);
	run_all(rank_main);
	run_all(ring_main);
	unsetenv("TUTTI_CUDA");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernels),
		cmocka_unit_test(test_engine),
		cmocka_unit_test(test_foreign_stream),
	};

	test_limit(150);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
