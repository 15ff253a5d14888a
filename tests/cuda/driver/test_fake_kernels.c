/* Launches: arguments as they were, memory that may be reached, and no more blocks at once than
 * there are places. */
#include "tests/cuda/driver/check.h"
#include "tests/cuda/driver/own_kernels.h"
#include "tests/limit.h"

#include <tutti/tutti.h>
#include <stdatomic.h>

/* Two processors with two places each. */
#define PLACES 4

static uint32_t *word_at(CUdeviceptr p)
{
	return (uint32_t *)(uintptr_t)p;
}

static int begin(void **state)
{
	use_gpu(0);
	return 0;
}

static void kernels_compute(void **state)
{
	enum { N = 1000 };
	uint32_t got[N], *pinned = pinned_memory(sizeof got);
	CUdeviceptr p = device_memory(sizeof got);
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	struct fake_fill_args args = {word_at(p), N, 3};

	ok(cuMemsetD8Async(p, 0, sizeof got, s));
	launch("fake_fill", 16, &args, s); /* more than fit at once */
	args.add = 4;
	launch("fake_fill", 1, &args, s);
	args.add = 1000; /* read at the launch */
	ok(cuMemcpyAsync(address(got), p, sizeof got, s));
	for (int i = 0; i < N; i++)
		assert_int_equal(got[i], 7);
	args.to = pinned;
	launch("fake_fill", 2, &args, s);
	ok(cuStreamSynchronize(s));
	assert_int_equal(pinned[N - 1], 1000);
	ok(cuStreamDestroy_v2(s));
	ok(cuMemFree_v2(p));
	ok(cuMemFreeHost(pinned));
}

/* The product's kernels are there, too. */
static void kernels_of_the_library(void **state)
{
	float a = 1.5F, b = 2, sum = 0;
	CUdeviceptr p = device_memory(8), q = device_memory(4);
	struct reduce_args args = {.dst = {word_at(q)},
				   .src = {word_at(p), word_at(p + 4)},
				   .count = 1,
				   .n_dst = 1,
				   .n_src = 2,
				   .dtype = TUTTI_F32,
				   .op = TUTTI_SUM,
				   .divisor = 1};
	void *parameters[] = {&args};

	ok(cuMemcpyAsync(p, address(&a), 4, NULL));
	ok(cuMemcpyAsync(p + 4, address(&b), 4, NULL));
	ok(cuLaunchKernel(kernel("tutti_reduce"), 3, 1, 1, 512, 1, 1, 0, NULL, parameters, NULL));
	ok(cuMemcpyAsync(address(&sum), q, 4, NULL));
	assert_true(sum == 3.5F);
	ok(cuMemFree_v2(p));
	ok(cuMemFree_v2(q));
}

static void launches_are_checked(void **state)
{
	CUfunction f = kernel("fake_fill");
	struct fake_fill_args args = {0};
	void *parameters[] = {&args};
	CUlibrary library;
	CUkernel none;
	CUstream other;
	int blocks;

	ok(cuLibraryLoadData(&library, "any", NULL, NULL, 0, NULL, NULL, 0));
	fails(cuLibraryGetKernel(&none, library, "unknown"), CUDA_ERROR_NOT_FOUND);
	ok(cuLibraryUnload(library));
	fails(cuLaunchKernel(f, 1, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	fails(cuLaunchKernel(f, 0, 1, 1, 32, 1, 1, 0, NULL, parameters, NULL),
	      CUDA_ERROR_INVALID_VALUE);
	ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 32, 0));
	assert_int_equal(blocks, 2);
	ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, f, 1024, 0));
	assert_int_equal(blocks, 2);
	use_gpu(1);
	other = new_stream(0);
	fails(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, other, parameters, NULL),
	      CUDA_ERROR_INVALID_HANDLE);
	ok(cuStreamDestroy_v2(other));
	use_gpu(0);
}

/* Two kernels in two streams, which wait for each other: each has half of the places. */
static void kernels_meet(void **state)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	uint32_t *came = pinned_memory(4);
	struct fake_meet_args args = {came, PLACES};

	launch("fake_meet", PLACES / 2, &args, a);
	launch("fake_meet", PLACES / 2, &args, b);
	ok(cuStreamSynchronize(a));
	ok(cuStreamSynchronize(b));
	assert_int_equal(*came, PLACES);
	ok(cuStreamDestroy_v2(a));
	ok(cuStreamDestroy_v2(b));
	ok(cuMemFreeHost(came));
}

/* One block more than fit: the last one waits for a place until the others no longer wait for it.
 * The CPU stands in for it. */
static void no_more_blocks_than_places(void **state)
{
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	_Atomic uint32_t *came = pinned_memory(4);
	struct fake_meet_args args = {(uint32_t *)came, PLACES + 1};

	launch("fake_meet", PLACES, &args, a);
	while (atomic_load(came) < PLACES)
		;
	launch("fake_meet", 1, &args, b);
	let_others_run();
	assert_int_equal(atomic_load(came), PLACES);
	fails(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
	atomic_fetch_add(came, 1);
	ok(cuStreamSynchronize(a));
	ok(cuStreamSynchronize(b));
	assert_int_equal(atomic_load(came), PLACES + 2);
	ok(cuStreamDestroy_v2(a));
	ok(cuStreamDestroy_v2(b));
	ok(cuMemFreeHost((void *)(uintptr_t)came));
}

/* Memory of the CPU, of another device, and freed memory, each on a device that is lost by it; the
 * error ends a kernel that waits in another stream, too. */
static void kernels_reach_no_further(void **state)
{
	CUcontext context = use_gpu(0);
	CUdeviceptr elsewhere = device_memory(64);
	static uint32_t own;
	uint32_t *gate = pinned_memory(4);
	uint32_t *to[] = {&own, word_at(elsewhere), NULL, NULL, NULL};

	for (int i = 0; i < 5; i++) {
		use_gpu(1);
		CUdeviceptr p = device_memory(64);
		if (i == 3)
			to[i] = word_at(p) + 16; /* behind it */
		if (i == 4) {
			to[i] = word_at(p);
			ok(cuMemFree_v2(p));
		}
		CUstream a = new_stream(CU_STREAM_NON_BLOCKING);
		CUstream b = new_stream(CU_STREAM_NON_BLOCKING);
		struct fake_wait_args wait = {gate, 1};
		launch("fake_wait", 1, &wait, a);
		struct fake_fill_args fill = {to[i], 1, 1};
		launch("fake_fill", 1, &fill, b);
		fails(cuStreamSynchronize(b), CUDA_ERROR_ILLEGAL_ADDRESS);
		fails(cuStreamSynchronize(a), CUDA_ERROR_ILLEGAL_ADDRESS);
		cuStreamDestroy_v2(a);
		cuStreamDestroy_v2(b);
		while (cuDevicePrimaryCtxRelease_v2(1) == CUDA_SUCCESS)
			;
	}
	assert_int_equal(own, 0);
	ok(cuCtxSetCurrent(context));
	ok(cuMemFree_v2(elsewhere));
	ok(cuMemFreeHost(gate));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_compute),
		cmocka_unit_test(kernels_of_the_library),
		cmocka_unit_test(launches_are_checked),
		cmocka_unit_test(kernels_meet),
		cmocka_unit_test(no_more_blocks_than_places),
		cmocka_unit_test(kernels_reach_no_further),
	};

	test_limit(60);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	setenv("FAKE_CUDA_SMS", "2", 1);
	setenv("FAKE_CUDA_BLOCKS_PER_SM", "2", 1);
	return cmocka_run_group_tests(tests, begin, NULL);
}
