/* no_tsan: its ranks are processes */
/* What would break: a program that copies to pageable memory in the legacy default stream, behind a
 * call that the engine serves, there or in a stream which that one waits for. The driver then has
 * the engine's own calls wait for that copy: both would wait for ever. */
#include "gpu_ranks.h"

#include "tests/limit.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

#define ROUNDS 20

enum ending { IN_STREAM, BY_WORK, AS_GROUP };

static void add(tutti_comm *comm, int32_t *x, CUstream stream, int ending)
{
	tutti_work *work = NULL;
	tutti_call call = {.stream = stream, .work = ending == BY_WORK ? &work : NULL};

	if (ending == AS_GROUP)
		gpu_rank_must(tutti_group_begin(), "begin");
	gpu_rank_must(tutti_all_reduce(x, x, 1, TUTTI_I32, TUTTI_SUM, comm, &call), "all_reduce");
	if (ending == AS_GROUP)
		gpu_rank_must(tutti_group_end(&call), "end");
	if (ending == BY_WORK)
		gpu_rank_must(tutti_work_wait_stream(work, stream), "wait_stream");
	tutti_work_release(&work);
}

/* Those of which the legacy default stream waits for what is in them, and itself. */
static CUstream blocking_stream(int round)
{
	static CUstream own;

	if (!own)
		GPU(stream_create_with_priority, &own, CU_STREAM_DEFAULT, 0);
	return (CUstream[]){NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, own}[round % 4];
}

static int sums(int rank, int ending)
{
	tutti_config config = {.device = 1, .timeout_ms = 20000};
	tutti_comm *comm;
	int32_t pageable;

	gpu_use(0);
	setenv("TUTTI_CUDA", "1", 1); /* by the engine */
	gpu_rank_must(tutti_init(&comm, &config), "init");
	int32_t *x = gpu_alloc(sizeof *x);
	for (int round = 0; round < ROUNDS; round++) {
		CUstream stream = blocking_stream(round);
		int32_t own = rank + round;
		GPU(memcpy_async, (CUdeviceptr)(uintptr_t)x, (CUdeviceptr)(uintptr_t)&own,
		    sizeof own, stream);
		add(comm, x, stream, ending);
		GPU(memcpy_async, (CUdeviceptr)(uintptr_t)&pageable, (CUdeviceptr)(uintptr_t)x,
		    sizeof pageable, NULL);
		if (pageable != 1 + 2 * round) {
			fprintf(stderr, "rank %d, round %d: %d\n", rank, round, pageable);
			return 1;
		}
	}
	tutti_comm_destroy(comm);
	gpu_free(x);
	return 0;
}

static void test_in_stream(void **state)
{
	gpu_ranks_run(2, sums, IN_STREAM, 0);
}

static void test_by_work(void **state)
{
	gpu_ranks_run(2, sums, BY_WORK, 0);
}

static void test_as_group(void **state)
{
	gpu_ranks_run(2, sums, AS_GROUP, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_in_stream),
					   cmocka_unit_test(test_by_work),
					   cmocka_unit_test(test_as_group)};

	test_limit(120);
	gpu_ranks_together();
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	gpu_ranks_apart();
	return failed;
}
