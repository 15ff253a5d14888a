/* What a driver may do and programs must live with: streams that share a connection to the device
 * run in the order of enqueuing, and a kernel that is loaded late waits for an idle device. */
#include "tests/cuda/driver/check.h"
#include "tests/cuda/driver/own_kernels.h"
#include "tests/limit.h"

#include <pthread.h>
#include <stdatomic.h>

/* Of two connections: the default stream has the first, a the second, b the first and c the second.
 */
static void streams_share_connections(void **state)
{
	_Atomic uint32_t *gate = pinned_memory(4);
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUstream c = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p = device_memory(4);

	ok(cuStreamWaitValue32_v2(a, address((void *)(uintptr_t)gate), 1, 0));
	ok(cuMemsetD8Async(p, 1, 4, c));
	ok(cuMemsetD8Async(p, 2, 4, b));
	ok(cuStreamSynchronize(b));
	let_others_run();
	fails(cuStreamQuery(c), CUDA_ERROR_NOT_READY);
	assert_int_equal(read_word(p, b), 0x02020202);
	atomic_store(gate, 1);
	ok(cuStreamSynchronize(c));
	assert_int_equal(read_word(p, b), 0x01010101);
	ok(cuStreamDestroy_v2(a));
	ok(cuStreamDestroy_v2(b));
	ok(cuStreamDestroy_v2(c));
	ok(cuMemFree_v2(p));
	ok(cuMemFreeHost((void *)(uintptr_t)gate));
}

/* The next streams, a and b, have different connections. A graph has that of its launch. */
static void graphs_share_connections(void **state)
{
	_Atomic uint32_t *gate = pinned_memory(4);
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUstream c = new_stream(CU_STREAM_NON_BLOCKING); /* a's */
	CUdeviceptr p = device_memory(4);
	CUgraphExec exec;
	CUgraph graph;

	ok(cuStreamBeginCapture_v2(b, CU_STREAM_CAPTURE_MODE_RELAXED));
	ok(cuMemsetD8Async(p, 3, 4, b));
	ok(cuStreamEndCapture(b, &graph));
	ok(cuGraphInstantiateWithFlags(&exec, graph, 0));
	ok(cuStreamWaitValue32_v2(a, address((void *)(uintptr_t)gate), 1, 0));
	ok(cuGraphLaunch(exec, b));
	ok(cuStreamSynchronize(b));
	assert_int_equal(read_word(p, b), 0x03030303);
	ok(cuGraphLaunch(exec, c));
	let_others_run();
	fails(cuStreamQuery(c), CUDA_ERROR_NOT_READY);
	atomic_store(gate, 1);
	ok(cuStreamSynchronize(c));
	ok(cuGraphExecDestroy(exec));
	ok(cuGraphDestroy(graph));
	ok(cuStreamDestroy_v2(a));
	ok(cuStreamDestroy_v2(b));
	ok(cuStreamDestroy_v2(c));
	ok(cuMemFree_v2(p));
	ok(cuMemFreeHost((void *)(uintptr_t)gate));
}

static _Atomic int steps; /* that the other thread has done */

static void *load_kernel(void *unused)
{
	(void)unused;
	use_gpu(0);
	kernel("tutti_scale");
	atomic_store(&steps, 1);
	return NULL;
}

static void loading_waits(void **state)
{
	_Atomic uint32_t *gate = pinned_memory(4);
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	struct fake_wait_args wait = {(const uint32_t *)(uintptr_t)gate, 1};
	pthread_t thread;

	launch("fake_wait", 1, &wait, s);
	pthread_create(&thread, NULL, load_kernel, NULL);
	let_others_run();
	assert_int_equal(atomic_load(&steps), 0);
	atomic_store(gate, 1);
	pthread_join(thread, NULL);
	ok(cuStreamSynchronize(s));
	kernel("tutti_scale"); /* loaded already */
	ok(cuStreamDestroy_v2(s));
	ok(cuMemFreeHost((void *)(uintptr_t)gate));
}

static void *free_memory(void *memory)
{
	use_gpu(0);
	ok(cuMemFree_v2((CUdeviceptr)(uintptr_t)memory));
	atomic_store(&steps, 2);
	return NULL;
}

/* cuMemFree waits for the work that may still use the memory. */
static void freeing_waits(void **state)
{
	_Atomic uint32_t *gate = pinned_memory(4);
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p = device_memory(4);
	pthread_t thread;

	ok(cuStreamWaitValue32_v2(s, address((void *)(uintptr_t)gate), 1, 0));
	ok(cuMemsetD8Async(p, 1, 4, s));
	pthread_create(&thread, NULL, free_memory, (void *)(uintptr_t)p);
	let_others_run();
	assert_int_equal(atomic_load(&steps), 1);
	atomic_store(gate, 1);
	pthread_join(thread, NULL);
	ok(cuStreamSynchronize(s));
	ok(cuStreamDestroy_v2(s));
	ok(cuMemFreeHost((void *)(uintptr_t)gate));
}

static int begin(void **state)
{
	use_gpu(0);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(streams_share_connections),
		cmocka_unit_test(graphs_share_connections),
		cmocka_unit_test(loading_waits),
		cmocka_unit_test(freeing_waits),
	};

	test_limit(60);
	setenv("FAKE_CUDA_CONNECTIONS", "2", 1);
	return cmocka_run_group_tests(tests, begin, NULL);
}
