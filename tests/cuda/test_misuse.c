/* no_tsan: its ranks are processes */
/* What a program does wrong, or at a bad moment: a member of a group on another GPU that nobody
 * hears of, a call of which nodes disagree how it goes, and a communicator that is destroyed while
 * a captured kernel of it runs, whose memory the next one then shares with that kernel. */
#include "gpu_ranks.h"

#include "collectives/comm/comm.h"
#include "cuda/channels_internal.h"
#include "tests/limit.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define N ((size_t)1000)

static void must(bool is_so, const char *what)
{
	if (is_so)
		return;
	fprintf(stderr, "not so: %s\n", what);
	exit(1);
}

/* The error comes from the member and from the group's end, and nothing is started. */
static int bad_member(int rank, int unused)
{
	tutti_config config = {.device = rank + 1, .timeout_ms = 20000};
	tutti_comm *comm;

	(void)unused;
	if (gpu_count() < 3)
		return 77;
	gpu_use(2);
	float *other = gpu_alloc(N * sizeof *other);
	gpu_use(rank);
	gpu_rank_must(tutti_init(&comm, &config), "init");
	float *send = gpu_alloc(N * sizeof *send), *recv = gpu_alloc(N * sizeof *recv);
	CUstream stream = gpu_stream();
	tutti_call call = {.stream = stream};
	uint64_t before = tutti_comm_sequence(comm);

	gpu_rank_must(tutti_group_begin(), "group_begin");
	gpu_rank_must(tutti_all_reduce(send, recv, N, TUTTI_F32, TUTTI_SUM, comm, NULL), "member");
	must(tutti_all_reduce(other, other, N, TUTTI_F32, TUTTI_SUM, comm, NULL) ==
		     TUTTI_ERR_INVALID,
	     "a member on another GPU is invalid");
	must(tutti_group_end(&call) == TUTTI_ERR_INVALID, "and so is its group");
	must(tutti_comm_sequence(comm) == before, "of which nothing was started");
	gpu_rank_must(tutti_all_reduce(send, recv, N, TUTTI_F32, TUTTI_SUM, comm, NULL), "after");
	tutti_comm_destroy(comm);
	return 0;
}

/* Ranks 0 and 1 share a GPU and take turns, of which a call has 64 at most; 2 and 3 do not. */
static int mixed_nodes(int rank, int unused)
{
	int device = rank < 2 ? 0 : rank - 1;
	tutti_config config = {.device = device + 1, .timeout_ms = 60000};
	size_t n = (size_t)10 << 20;
	tutti_comm *comm;

	(void)unused;
	if (gpu_count() < 3)
		return 77;
	setenv("TUTTI_HOST_ID", rank < 2 ? "node0" : "node1", 1);
	setenv("TUTTI_WINDOW_BYTES", "65536", 1);
	gpu_use(device);
	gpu_rank_must(tutti_init(&comm, &config), "init");
	float *send = gpu_alloc(n * sizeof *send);
	gpu_rank_must(tutti_all_reduce(send, send, n, TUTTI_F32, TUTTI_SUM, comm, NULL), "a sum");
	tutti_comm_destroy(comm);
	return 0;
}

/* device_internal.h's, of which the channels are the first member. */
static const struct cuda_channels *channels_of(const tutti_comm *comm)
{
	return *(struct cuda_channels **)(void *)comm->device;
}

/* Rank 1 waits in a graph for a message that does not come, and destroys the communicator. */
static int destroyed_early(int rank, int unused)
{
	tutti_config config = {.device = rank + 1, .timeout_ms = 20000};
	tutti_comm *comm, *first, *second;
	const struct cuda_segment *segment;
	CUgraph graph;
	CUgraphExec exec;

	(void)unused;
	if (gpu_count() < 2)
		return 77;
	gpu_use(rank);
	gpu_rank_must(tutti_init(&comm, &config), "init");
	gpu_rank_must(tutti_comm_dup(comm, &first), "dup");
	float *recv = gpu_alloc(N * sizeof *recv);
	CUstream stream = gpu_stream();
	tutti_call call = {.stream = stream};
	segment = channels_of(first)->segment;
	if (rank == 1) {
		GPU(stream_begin_capture, stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
		gpu_rank_must(tutti_recv(recv, N, TUTTI_F32, 0, first, &call), "recv");
		GPU(stream_end_capture, stream, &graph);
		GPU(graph_instantiate, &exec, graph, 0);
		GPU(graph_launch, exec, stream);
		while (!cuda_channels_is_running(channels_of(first), NULL))
			sched_yield();
	}
	tutti_comm_destroy(first);
	gpu_sync(stream);
	gpu_rank_must(tutti_comm_dup(comm, &second), "dup once more");
	must(rank == 0 || channels_of(second)->segment != segment,
	     "memory of a kernel that was stopped is not used again");
	if (rank == 1) {
		GPU(graph_exec_destroy, exec);
		GPU(graph_destroy, graph);
	}
	tutti_comm_destroy(second);
	tutti_comm_destroy(comm);
	return 0;
}

static void test_bad_member(void **state)
{
	gpu_ranks_run(2, bad_member, 0, 0);
}

static void test_mixed_nodes(void **state)
{
	gpu_ranks_run(4, mixed_nodes, 0, 0);
}

static void test_destroyed_early(void **state)
{
	gpu_ranks_run(2, destroyed_early, 0, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bad_member),
		cmocka_unit_test(test_mixed_nodes),
		cmocka_unit_test(test_destroyed_early),
	};

	test_limit(150);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
