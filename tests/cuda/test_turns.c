/* slow: 10 s */
/* Processes that share a GPU: calls that go by the engine or end wrong, a call in a graph, a stream
 * that stays when a rank differs, does not come, dies, or has failed before the stream came to the
 * call, or whose staging one rank cannot map. On the fake driver kernels of one process keep off
 * those of the others, so that one that waits for another process never ends. */
#include "turn_ranks.h"

#include "tests/limit.h"

#include <pthread.h>
#include <signal.h>

#include "tests/unit.h"

#define ROUNDS 4
#define MOST   8 /* ranks */

/* In streams, with handles, and without either; long and short ones. */
static void calls(struct gpu_rank *r)
{
	CUstream streams[2] = {r->stream, gpu_stream()};

	for (int round = 0; round < ROUNDS; round++) {
		size_t n = round % 2 ? FEW : N - (size_t)round;
		tutti_work *work = NULL;
		tutti_call call = {.stream = streams[round % 2]};
		uint64_t before = ended_on_device(r);

		fill(r, n, round);
		gpu_rank_must(sum_up(r, n, &call), "in a stream");
		gpu_sync(call.stream);
		check(r, n, round);
		must(ended_on_device(r) != before, "a call in a stream is on the device");
		before = ended_on_device(r);
		call.work = &work;
		gpu_rank_must(sum_up(r, n, &call), "with a handle");
		gpu_rank_must(tutti_work_wait(&work, 0), "wait");
		check(r, n, round);
		must(ended_on_device(r) != before, "a call with a handle is on the device");
		gpu_rank_must(sum_up(r, n, NULL), "that waits");
		check(r, n, round);
	}
	gpu_stream_free(streams[1]);
}

/* Ranks do not know each other's counts of an all_to_allv, and so not the number of turns. */
static void by_engine(struct gpu_rank *r)
{
	size_t counts[MOST];
	uint64_t before = ended_on_device(r);

	for (int i = 0; i < tutti_size(r->comm); i++)
		counts[i] = FEW;
	gpu_rank_must(tutti_all_to_allv(r->send, counts, NULL, r->recv, counts, NULL, TUTTI_F32,
					r->comm, NULL),
		      "all_to_allv");
	must(ended_on_device(r) == before, "all_to_allv goes by the engine");
}

static int run_calls(int rank, int unused)
{
	struct gpu_rank r;

	(void)rank;
	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	calls(&r);
	by_engine(&r);
	calls(&r);
	close_rank(&r);
	return 0;
}

/* Two threads of each process are ranks, too. */
static void *run_thread(void *arg)
{
	const tutti_config *config = arg;
	struct gpu_rank r;

	open_rank(&r, config);
	for (int round = 0; round < ROUNDS; round++) {
		tutti_call call = {.stream = r.stream};
		size_t n = round % 2 ? FEW : N;
		fill(&r, n, round);
		gpu_rank_must(sum_up(&r, n, &call), "of a thread");
		gpu_sync(r.stream);
		check(&r, n, round);
	}
	must(sum_up(&r, FEW, &(tutti_call){.stream = NULL}) == TUTTI_ERR_INVALID,
	     "threads share a default stream");
	close_rank(&r);
	return NULL;
}

static int run_threads(int rank, int processes)
{
	tutti_config configs[2];
	pthread_t threads[2];
	char meeting[64];

	snprintf(meeting, sizeof meeting, "tcp://127.0.0.1:%s", getenv("MASTER_PORT"));
	for (int t = 0; t < 2; t++) {
		configs[t] = (tutti_config){
			.rank = 2 * rank + t, .world_size = 2 * processes, .rendezvous = meeting};
		pthread_create(&threads[t], NULL, run_thread, &configs[t]);
	}
	for (int t = 0; t < 2; t++)
		pthread_join(threads[t], NULL);
	return 0;
}

/* A captured call goes by the engine, beside calls by turns in the same stream. */
static int run_captured(int rank, int unused)
{
	struct gpu_rank r;
	CUgraph graph;
	CUgraphExec exec;

	(void)rank;
	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	GPU(stream_begin_capture, r.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	gpu_rank_must(sum_up(&r, N, &(tutti_call){.stream = r.stream}), "captured");
	GPU(stream_end_capture, r.stream, &graph);
	GPU(graph_instantiate, &exec, graph, 0);
	GPU(graph_destroy, graph);
	for (int round = 0; round < ROUNDS; round++) {
		fill(&r, N, round);
		GPU(graph_launch, exec, r.stream);
		gpu_rank_must(sum_up(&r, FEW, &(tutti_call){.stream = r.stream}), "by turns");
		gpu_sync(r.stream);
		check(&r, N, round);
	}
	calls(&r);
	GPU(graph_exec_destroy, exec);
	close_rank(&r);
	return 0;
}

static CUdeviceptr staging_of(const tutti_comm *comm)
{
	return channels_of(comm)->segment->staging;
}

/* Rank 1 may still read what rank 0 has staged, when rank 0 has destroyed the communicator. */
static int run_one_after_the_other(int rank, int unused)
{
	struct gpu_rank r;
	tutti_comm *first, *second, *third;

	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	gpu_rank_must(tutti_comm_dup(r.comm, &first), "dup");
	CUdeviceptr staging = staging_of(first);
	if (rank == 0)
		tutti_comm_destroy(first);
	gpu_rank_must(tutti_comm_dup(r.comm, &second), "dup");
	must(rank == 1 || staging_of(second) != staging, "staging is not used while it is read");
	if (rank == 1)
		tutti_comm_destroy(first);
	gpu_rank_must(tutti_barrier(r.comm, NULL), "barrier");
	gpu_rank_must(tutti_comm_dup(r.comm, &third), "dup");
	must(staging_of(third) == staging, "and used again afterwards");
	tutti_comm_destroy(second);
	tutti_comm_destroy(third);
	close_rank(&r);
	return 0;
}

static void await_failure(const struct gpu_rank *r, tutti_status status, const char *says)
{
	if (!gpu_ranks_fail(r->comm, status, says))
		_exit(1);
}

/* Behind a call that is well, rank 1 makes another one than the rest, with other turns. */
static int run_different(int rank, int unused)
{
	struct gpu_rank r;
	tutti_call call = {.timeout_ms = 20000};

	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	call.stream = r.stream;
	gpu_rank_must(sum_up(&r, FEW, &call), "the first");
	gpu_rank_must(sum_up(&r, rank == 1 ? FEW : N, &call), "the second");
	sum_up(&r, FEW, &call);
	gpu_sync(r.stream);
	await_failure(&r, TUTTI_ERR_MISMATCH, "rank 1");
	close_rank(&r);
	return 0;
}

/* Rank 0 does not come to the second call. */
static int run_late(int rank, int unused)
{
	struct gpu_rank r;
	tutti_comm *other;
	tutti_call call = {.timeout_ms = 20000};

	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	gpu_rank_must(tutti_comm_dup(r.comm, &other), "dup");
	call.stream = r.stream;
	gpu_rank_must(sum_up(&r, FEW, &call), "the first");
	call.timeout_ms =
		2000; /* on a busy machine it takes a while until all know who is missing */
	if (rank > 0)
		for (int i = 0; i < 3; i++)
			sum_up(&r, N, &call);
	gpu_sync(r.stream);
	if (rank > 0)
		await_failure(&r, TUTTI_ERR_TIMEOUT, "rank 0");
	gpu_rank_must(tutti_barrier(other, NULL), "barrier");
	tutti_comm_destroy(other);
	close_rank(&r);
	return 0;
}

/* Rank 0's stream comes to its calls after they have failed, and after the others told it turns. */
static int run_held(int rank, int unused)
{
	struct gpu_rank r;
	tutti_call call = {.timeout_ms = 20000};
	uint32_t *gate = gpu_alloc_pinned(sizeof *gate);
	CUdeviceptr address;

	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	call.stream = r.stream;
	GPU(mem_host_get_device_pointer, &address, gate, 0);
	__atomic_store_n(gate, 0, __ATOMIC_SEQ_CST);
	if (rank == 0)
		GPU(stream_wait_value32, r.stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ);
	gpu_rank_must(sum_up(&r, N, &call), "a call");
	gpu_rank_must(sum_up(&r, N, &call), "another");
	gpu_rank_must(tutti_barrier(r.comm, NULL), "all have mapped the staging of all");
	if (rank == 1)
		gpu_rank_must(tutti_comm_abort(r.comm), "abort");
	await_failure(&r, TUTTI_ERR_ABORTED, "");
	__atomic_store_n(gate, 1, __ATOMIC_SEQ_CST);
	gpu_sync(r.stream);
	close_rank(&r);
	return 0;
}

/* Rank 1 is killed before its n-th call: before the first one nobody has mapped its staging. */
static int run_killed(int rank, int n)
{
	struct gpu_rank r;
	tutti_call call = {.timeout_ms = 30000};

	open_rank(&r, &(tutti_config){.rank = 0});
	call.stream = r.stream;
	for (int i = 0; i < n; i++)
		gpu_rank_must(sum_up(&r, i % 2 ? N : FEW, &call), "a call before");
	gpu_sync(r.stream);
	tutti_barrier(r.comm, NULL);
	if (rank == 1)
		raise(SIGKILL);
	for (int i = 0; i < 3; i++)
		sum_up(&r, N, &call);
	gpu_sync(r.stream);
	await_failure(&r, TUTTI_ERR_PEER, "ank 1");
	close_rank(&r);
	return 0;
}

/* Rank 0's driver does not map rank 1's staging, though that lives and waits in the call. */
static int run_unmapped(int rank, int unused)
{
	struct gpu_rank r;
	tutti_call call = {.timeout_ms = 50000};

	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	call.stream = r.stream;
	tutti_status status = sum_up(&r, FEW, &call);
	must(rank > 0 || status == TUTTI_ERR_DEVICE, "the rank that sees it says so at once");
	gpu_sync(r.stream);
	status = rank == 0 ? TUTTI_ERR_DEVICE : TUTTI_ERR_PEER;
	await_failure(&r, status, "ank 0");
	await_failure(&r, status, "all_reduce #");
	await_failure(&r, status, "rank 1 of those on this host, cannot be mapped");
	await_failure(&r, status, "CUDA_ERROR_MAP_FAILED");
	close_rank(&r);
	return 0;
}

static void test_calls(void **state)
{
	gpu_ranks_run(2, run_calls, 0, 0);
	gpu_ranks_run(3, run_calls, 0, 0);
	gpu_ranks_run(8, run_calls, 0, 0);
}

static void test_threads(void **state)
{
	/* A stream that waits must not keep off one whose call it waits for. */
	setenv("FAKE_CUDA_CONNECTIONS", "0", 1);
	gpu_ranks_run(2, run_threads, 2, 0);
	setenv("FAKE_CUDA_CONNECTIONS", "1", 1);
}

static void test_captured(void **state)
{
	/* What opens a gate must not stand behind the stream that waits there. */
	setenv("FAKE_CUDA_CONNECTIONS", "0", 1);
	gpu_ranks_run(2, run_captured, 0, 0);
	setenv("FAKE_CUDA_CONNECTIONS", "1", 1);
}

static void test_one_after_the_other(void **state)
{
	gpu_ranks_run(2, run_one_after_the_other, 0, 0);
}

static void test_different(void **state)
{
	gpu_ranks_run(2, run_different, 0, 0);
	gpu_ranks_run(4, run_different, 0, 0);
}

static void test_late(void **state)
{
	gpu_ranks_run(2, run_late, 0, 0);
	gpu_ranks_run(4, run_late, 0, 0);
}

static void test_held(void **state)
{
	gpu_ranks_run(3, run_held, 0, 0);
}

static void test_killed(void **state)
{
	gpu_ranks_run(2, run_killed, 0, 1u << 1);
	gpu_ranks_run(3, run_killed, 0, 1u << 1);
	gpu_ranks_run(3, run_killed, 2, 1u << 1);
}

/* Its first handle of another process is the segment of rank 1, and so on; then come stagings. */
static void test_unmapped(void **state)
{
	if (!gpu_is_emulated()) {
		print_message("only an emulated driver refuses a handle when it is told to\n");
		skip();
	}
	setenv("FAKE_CUDA_FAULTS_RANK", "0", 1);
	setenv("FAKE_CUDA_FAULTS", "0:ipc=2", 1);
	gpu_ranks_run(2, run_unmapped, 0, 0);
	setenv("FAKE_CUDA_FAULTS", "0:ipc=4", 1);
	gpu_ranks_run(4, run_unmapped, 0, 0);
	unsetenv("FAKE_CUDA_FAULTS");
	unsetenv("FAKE_CUDA_FAULTS_RANK");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),    cmocka_unit_test(test_threads),
		cmocka_unit_test(test_captured), cmocka_unit_test(test_different),
		cmocka_unit_test(test_late),     cmocka_unit_test(test_held),
		cmocka_unit_test(test_killed),   cmocka_unit_test(test_one_after_the_other),
		cmocka_unit_test(test_unmapped),
	};

	test_limit(200);
	gpu_ranks_together();
	setenv("FAKE_CUDA_CONNECTIONS", "1", 1); /* a stream that waits keeps all others off */
	setenv("TUTTI_WINDOW_BYTES", "65536", 1);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	gpu_ranks_apart();
	return failed;
}
