/* slow: 5 s */
/* Processes that share a GPU: a rank that has kernels or copies in a call though its leader maps
 * its buffers; a buffer that is found where another one was before; a driver without what turns
 * need. */
#include "turn_ranks.h"

#include "tests/limit.h"

#include "tests/unit.h"

#define ROUNDS 4

/* Since before: a real driver counts nothing, and so none is missed there. */
static bool has_worked(unsigned before, bool is_expected)
{
	unsigned now;

	return gpu_ask_emulated("fake_cuda_works", &now) ? now != before : is_expected;
}

static unsigned works(void)
{
	unsigned now;

	gpu_ask_emulated("fake_cuda_works", &now);
	return now;
}

/* An allocation of its own. */
static float *allocate(size_t floats)
{
	CUdeviceptr memory;

	GPU(mem_alloc, &memory, floats * sizeof(float));
	return (float *)(uintptr_t)memory;
}

static void give_back(float *memory)
{
	GPU(mem_free, (CUdeviceptr)(uintptr_t)memory);
}

/* A call on memory that all map; works says what this process has for it. */
static void call_mapped(const struct gpu_rank *r, size_t n, int round, float *recv)
{
	struct gpu_rank here = *r;
	tutti_call call = {.stream = r->stream};
	int size = tutti_size(r->comm), rank = tutti_rank(r->comm);

	here.recv = recv;
	fill(r, n, round);
	gpu_rank_must(tutti_barrier(r->comm, NULL), "barrier");
	unsigned before = works();
	gpu_rank_must(sum_up(&here, n, &call), "mapped");
	gpu_sync(r->stream);
	must(rank == 0 || !has_worked(before, false),
	     "who does not lead has no kernel and no copy");
	check(&here, n, round);
	if (recv == r->send)
		return;
	before = works();
	gpu_rank_must(tutti_all_gather(r->send, recv, FEW, TUTTI_F32, r->comm, &call), "gathered");
	gpu_sync(r->stream);
	must(rank == 0 || !has_worked(before, false), "nor when blocks are gathered");
	gpu_read(r->host, recv, (size_t)size * FEW * sizeof *recv);
	for (size_t i = 0; i < (size_t)size * FEW; i++)
		must(r->host[i] == (float)(i / FEW) + (float)round + (float)(i % FEW % 7),
		     "the block of each rank");
}

static int run_mapped(int rank, int unused)
{
	struct gpu_rank r;
	void *memory[2];

	(void)rank;
	(void)unused;
	open_rank(&r, &(tutti_config){.rank = 0});
	for (int i = 0; i < 2; i++)
		gpu_rank_must(tutti_mem_alloc(&memory[i], N * sizeof *r.send, r.comm), "memory");
	r.send = memory[0];
	for (int round = 0; round < ROUNDS; round++)
		call_mapped(&r, round % 2 ? FEW : N, round, memory[round < 2]);
	must(ended_on_device(&r) != 0, "on the device");
	/* Some ranks' buffers are mapped, and those of others are not. */
	r.recv = gpu_alloc(N * sizeof *r.recv);
	if (rank % 2)
		r.send = gpu_alloc(N * sizeof *r.send);
	fill(&r, N, 1);
	gpu_rank_must(tutti_barrier(r.comm, NULL), "barrier");
	unsigned before = works();
	gpu_rank_must(sum_up(&r, N, &(tutti_call){.stream = r.stream}), "half mapped");
	gpu_sync(r.stream);
	must(rank == 0 || has_worked(before, true), "what is not mapped goes through staging");
	check(&r, N, 1);
	gpu_rank_must(tutti_barrier(r.comm, NULL), "barrier");
	for (int i = 0; i < 2; i++)
		gpu_rank_must(tutti_mem_free(memory[i]), "free");
	close_rank(&r);
	return 0;
}

/* Three calls, of which the last one finds the buffers opened. */
static void call_opened(const struct gpu_rank *r, bool may_open)
{
	int rank = tutti_rank(r->comm);
	unsigned before = 0;

	for (int round = 0; round < 3; round++) {
		fill(r, N, round);
		gpu_rank_must(tutti_barrier(r->comm, NULL), "barrier");
		before = works();
		gpu_rank_must(sum_up(r, N, &(tutti_call){.stream = r->stream}), "opened");
		gpu_sync(r->stream);
		must(round < 2 || rank == 0 || has_worked(before, !may_open) == !may_open,
		     "buffers are staged unless they are opened");
		check(r, N, round);
	}
}

/* More allocations than there are offers, one after the other; some stay. */
static void call_on_many(const struct gpu_rank *r)
{
	for (int i = 0; i < TURN_OFFERS + 5; i++) {
		struct gpu_rank here = *r;
		here.recv = allocate(FEW);
		fill(&here, FEW, i);
		gpu_rank_must(sum_up(&here, FEW, &(tutti_call){.stream = r->stream}), "many");
		gpu_sync(r->stream);
		check(&here, FEW, i);
		if (i % 2)
			give_back(here.recv);
	}
}

/* cuMemAlloc's memory, which the leader opens. A longer allocation comes where a freed one was:
 * only its own mapping has its end. */
static int run_opened(int rank, int may_open)
{
	struct gpu_rank r;

	(void)rank;
	open_rank(&r, &(tutti_config){.rank = 0});
	call_opened(&r, may_open);
	for (size_t i = 0; i < 3; i++) {
		size_t extra = 1000 * i;
		float *memory = allocate(2 * N + extra);
		r.send = memory + N + extra;
		call_opened(&r, may_open);
		give_back(memory);
	}
	r.send = gpu_alloc(N * sizeof *r.send);
	call_on_many(&r);
	call_opened(&r, may_open);
	close_rank(&r);
	return 0;
}

static void test_mapped(void **state)
{
	gpu_ranks_run(2, run_mapped, 0, 0);
	gpu_ranks_run(4, run_mapped, 0, 0);
}

static void test_opened(void **state)
{
	gpu_ranks_run(2, run_opened, 1, 0);
	gpu_ranks_run(3, run_opened, 1, 0);
	setenv("TUTTI_CUDA_IPC", "0", 1);
	gpu_ranks_run(2, run_opened, 0, 0);
	unsetenv("TUTTI_CUDA_IPC");
}

/* A driver without what turns need: the engine serves the calls. */
static int run_narrow(int rank, int unused)
{
	struct gpu_rank r;

	(void)rank;
	(void)unused;
	gpu_use(0);
	gpu_rank_must(tutti_init(&r.comm, &(tutti_config){.device = 1}), "init");
	must(!r.comm->device, "no turns");
	r.host = malloc(FEW * sizeof *r.host);
	r.send = gpu_alloc(FEW * sizeof *r.send);
	r.recv = gpu_alloc(FEW * sizeof *r.recv);
	fill(&r, FEW, 1);
	gpu_rank_must(sum_up(&r, FEW, NULL), "by the engine");
	check(&r, FEW, 1);
	close_rank(&r);
	return 0;
}

static void test_narrow(void **state)
{
	setenv("FAKE_CUDA_WAITS_64", "0", 1);
	gpu_ranks_run(2, run_narrow, 0, 0);
	unsetenv("FAKE_CUDA_WAITS_64");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mapped),
		cmocka_unit_test(test_opened),
		cmocka_unit_test(test_narrow),
	};

	test_limit(100);
	gpu_ranks_together();
	setenv("FAKE_CUDA_CONNECTIONS", "1", 1); /* a stream that waits keeps all others off */
	setenv("TUTTI_WINDOW_BYTES", "65536", 1);
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	gpu_ranks_apart();
	return failed;
}
