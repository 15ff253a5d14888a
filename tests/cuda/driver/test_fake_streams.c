/* Streams and events of the driver: what waits for what, and what does not. */
#include "tests/cuda/driver/check.h"
#include "tests/limit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* A word that the CPU writes and a stream waits for. */
struct gate {
	_Atomic uint32_t word;
};

static struct gate *new_gate(void)
{
	return pinned_memory(sizeof(struct gate));
}

static void wait_at(struct gate *gate, CUstream stream)
{
	ok(cuStreamWaitValue32_v2(stream, address(gate), 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static void open_gate(struct gate *gate)
{
	atomic_store(&gate->word, 1);
}

static int begin(void **state)
{
	use_gpu(0);
	return 0;
}

static void work_waits_for_a_word(void **state)
{
	struct gate *gate = new_gate();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent e = new_event();
	uint32_t *out = pinned_memory(4);

	wait_at(gate, s);
	ok(cuStreamWriteValue32_v2(s, address(out), 7, 0));
	ok(cuEventRecord(e, s));
	fails(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	fails(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	assert_int_equal(*out, 0);
	open_gate(gate);
	ok(cuEventSynchronize(e));
	ok(cuEventQuery(e));
	assert_int_equal(*out, 7);
	ok(cuStreamSynchronize(s));
	ok(cuStreamQuery(s));
	ok(cuStreamDestroy_v2(s));
	ok(cuEventDestroy_v2(e));
	ok(cuMemFreeHost(gate));
	ok(cuMemFreeHost(out));
}

/* Equal, and greater around the end of the numbers; a word of device memory. */
static void words_are_compared(void **state)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr word = device_memory(4);

	ok(cuStreamWriteValue32_v2(s, word, 3, 0));
	ok(cuStreamWaitValue32_v2(s, word, 0xfffffff0, CU_STREAM_WAIT_VALUE_GEQ));
	ok(cuStreamWaitValue32_v2(s, word, 3, CU_STREAM_WAIT_VALUE_EQ));
	ok(cuStreamSynchronize(s));
	fails(cuStreamWriteValue32_v2(s, word + 1, 3, 0), CUDA_ERROR_INVALID_VALUE);
	uint32_t own;
	fails(cuStreamWriteValue32_v2(s, address(&own), 3, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuStreamDestroy_v2(s));
	ok(cuMemFree_v2(word));
}

static CUstreamBatchMemOpParams wait_for_bits(CUdeviceptr word, uint32_t bits)
{
	CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32};

	op.waitValue.address = word;
	op.waitValue.value = bits;
	op.waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
	return op;
}

/* Several at once, in memory of the program that is registered; any bit will do. */
static void bits_are_awaited(void **state)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	uint32_t *words = aligned_alloc(4096, 4096);
	CUdeviceptr at;

	memset(words, 0, 4096);
	fails(cuMemHostGetDevicePointer_v2(&at, words, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemHostRegister_v2(words, 4096, CU_MEMHOSTREGISTER_PORTABLE));
	fails(cuMemHostRegister_v2(words, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	fails(cuMemFreeHost(words), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemHostGetDevicePointer_v2(&at, words, 0));
	CUstreamBatchMemOpParams ops[2] = {wait_for_bits(at, 6), wait_for_bits(at + 4, 8)};
	ok(cuStreamBatchMemOp_v2(s, 2, ops, 0));
	fails(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&words[0], 5, __ATOMIC_SEQ_CST);
	fails(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	__atomic_store_n(&words[1], 0x18, __ATOMIC_SEQ_CST);
	ok(cuStreamSynchronize(s));
	fails(cuStreamBatchMemOp_v2(s, 2, ops, 1), CUDA_ERROR_INVALID_VALUE);
	ops[1].operation = 77;
	fails(cuStreamBatchMemOp_v2(s, 2, ops, 0), CUDA_ERROR_NOT_SUPPORTED);
	ok(cuStreamDestroy_v2(s));
}

static CUstreamBatchMemOpParams write_word(CUdeviceptr word, uint32_t value)
{
	CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32};

	op.writeValue.address = word;
	op.writeValue.value = value;
	return op;
}

static CUstreamBatchMemOpParams wait_for_wide_bits(CUdeviceptr word, uint64_t bits)
{
	CUstreamBatchMemOpParams op = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64};

	op.waitValue.address = word;
	op.waitValue.value64 = bits;
	op.waitValue.flags = CU_STREAM_WAIT_VALUE_AND;
	return op;
}

/* A batch writes and waits in its order; each half of a wide word has its own bits. */
static void batches_have_an_order(void **state)
{
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	uint32_t *words = pinned_memory(32);
	CUstreamBatchMemOpParams ops[3] = {write_word(address(words), 1),
					   wait_for_wide_bits(address(words + 2), 1ull << 33 | 4),
					   write_word(address(words + 4), 1)};

	ok(cuStreamBatchMemOp_v2(s, 3, ops, 0));
	while (__atomic_load_n(words, __ATOMIC_ACQUIRE) == 0)
		sched_yield();
	__atomic_store_n(words + 2, 3, __ATOMIC_RELEASE);
	__atomic_store_n(words + 3, 1, __ATOMIC_RELEASE);
	let_others_run();
	assert_int_equal(__atomic_load_n(words + 4, __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(words + 3, 2, __ATOMIC_RELEASE);
	ok(cuStreamSynchronize(s));
	assert_int_equal(words[4], 1);
	ops[0] = wait_for_wide_bits(address(words + 1), 1);
	fails(cuStreamBatchMemOp_v2(s, 1, ops, 0), CUDA_ERROR_INVALID_VALUE);
	ops[0] = write_word(address(words), 1);
	ops[0].writeValue.flags = 1; /* of the first version */
	fails(cuStreamBatchMemOp_v2(s, 1, ops, 0), CUDA_ERROR_NOT_SUPPORTED);
	ok(cuStreamDestroy_v2(s));
	ok(cuMemFreeHost(words));
}

/* Through an event that is destroyed before it comes to pass. */
static void streams_wait_for_events(void **state)
{
	struct gate *gate = new_gate();
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent e = new_event(), never = new_event();
	CUdeviceptr p = device_memory(4);

	ok(cuMemsetD8Async(p, 0, 4, b));
	ok(cuStreamSynchronize(b));
	wait_at(gate, a);
	ok(cuMemsetD8Async(p, 9, 4, a));
	ok(cuEventRecord(e, a));
	ok(cuStreamWaitEvent(b, e, 0));
	ok(cuStreamWaitEvent(b, never, 0)); /* no order comes of it */
	ok(cuEventDestroy_v2(e));
	fails(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
	ok(cuStreamDestroy_v2(a)); /* its work goes on */
	open_gate(gate);
	assert_int_equal(read_word(p, b), 0x09090909);
	ok(cuStreamDestroy_v2(b));
	ok(cuEventDestroy_v2(never));
	ok(cuMemFree_v2(p));
	ok(cuMemFreeHost(gate));
}

/* Blocking streams and the legacy default stream wait for each other, other streams do not. */
static void the_legacy_stream_waits(void **state)
{
	struct gate *gate = new_gate(), *gate2 = new_gate();
	CUstream blocking = new_stream(0), free_stream = new_stream(CU_STREAM_NON_BLOCKING);
	CUevent in_blocking = new_event(), in_free = new_event(), legacy = new_event();

	wait_at(gate, blocking);
	ok(cuEventRecord(legacy, NULL));
	ok(cuEventRecord(in_free, free_stream));
	ok(cuEventSynchronize(in_free));
	let_others_run();
	fails(cuEventQuery(legacy), CUDA_ERROR_NOT_READY);
	open_gate(gate);
	ok(cuEventSynchronize(legacy));

	wait_at(gate2, CU_STREAM_LEGACY);
	ok(cuEventRecord(in_blocking, blocking));
	ok(cuEventRecord(in_free, free_stream));
	ok(cuEventSynchronize(in_free));
	let_others_run();
	fails(cuEventQuery(in_blocking), CUDA_ERROR_NOT_READY);
	open_gate(gate2);
	ok(cuEventSynchronize(in_blocking));
	ok(cuStreamDestroy_v2(blocking));
	ok(cuStreamDestroy_v2(free_stream));
	ok(cuEventDestroy_v2(legacy));
	ok(cuEventDestroy_v2(in_blocking));
	ok(cuEventDestroy_v2(in_free));
	ok(cuMemFreeHost(gate));
	ok(cuMemFreeHost(gate2));
}

static void *other_thread(void *event)
{
	CUcontext context;

	fails(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuDevicePrimaryCtxRetain(&context, 0));
	ok(cuCtxPushCurrent_v2(context));
	ok(cuEventRecord(event, CU_STREAM_PER_THREAD));
	ok(cuEventSynchronize(event));
	ok(cuCtxPopCurrent_v2(NULL));
	fails(cuCtxPopCurrent_v2(NULL), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuDevicePrimaryCtxRelease_v2(0));
	return NULL;
}

static void each_thread_has_a_stream(void **state)
{
	struct gate *gate = new_gate();
	CUevent e = new_event();
	pthread_t thread;

	wait_at(gate, CU_STREAM_PER_THREAD);
	pthread_create(&thread, NULL, other_thread, e);
	pthread_join(thread, NULL);
	fails(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
	open_gate(gate);
	ok(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	ok(cuEventDestroy_v2(e));
	ok(cuMemFreeHost(gate));
}

/* Pinned memory is read when the copy runs, pageable memory before the call returns. */
static void copies_of_host_memory(void **state)
{
	struct gate *gate = new_gate();
	CUstream s = new_stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr p = device_memory(8);
	uint32_t *pinned = pinned_memory(4), pageable = 5;

	ok(cuMemcpyAsync(p + 4, address(&pageable), 4, s));
	pageable = 6;
	*pinned = 1;
	wait_at(gate, s);
	ok(cuMemcpyAsync(p, address(pinned), 4, s));
	*pinned = 2;
	open_gate(gate);
	assert_int_equal(read_word(p, s), 2);
	assert_int_equal(read_word(p + 4, s), 5);
	ok(cuStreamDestroy_v2(s));
	ok(cuMemFree_v2(p));
	ok(cuMemFreeHost(pinned));
	ok(cuMemFreeHost(gate));
}

static void elapsed_time(void **state)
{
	CUevent a = new_event(), b = new_event(), untimed;
	struct gate *gate = new_gate();
	float ms = -1;

	ok(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
	fails(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE);
	ok(cuEventRecord(a, NULL));
	wait_at(gate, NULL);
	ok(cuEventRecord(b, NULL));
	ok(cuEventRecord(untimed, NULL));
	fails(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
	open_gate(gate);
	ok(cuEventSynchronize(b));
	ok(cuEventElapsedTime(&ms, a, b));
	assert_true(ms >= 0);
	fails(cuEventElapsedTime(&ms, a, untimed), CUDA_ERROR_INVALID_HANDLE);
	ok(cuEventDestroy_v2(a));
	ok(cuEventDestroy_v2(b));
	ok(cuEventDestroy_v2(untimed));
	ok(cuMemFreeHost(gate));
}

static void add_one(void *word)
{
	++*(uint32_t *)word;
}

static void host_functions_run_in_order(void **state)
{
	CUstream s = new_stream(0);
	uint32_t word = 0;

	for (int i = 0; i < 10; i++)
		ok(cuLaunchHostFunc(s, add_one, &word));
	ok(cuStreamSynchronize(s));
	assert_int_equal(word, 10);
	ok(cuStreamDestroy_v2(s));
}

static void calls_driver(void *unused)
{
	int n;

	(void)unused;
	cuDeviceGetCount(&n);
}

/* In a process of its own, which must not have used the driver before. */
static int host_function_that_calls(void)
{
	use_gpu(0);
	freopen("/dev/null", "w", stderr);
	ok(cuLaunchHostFunc(NULL, calls_driver, NULL));
	cuStreamSynchronize(NULL);
	return 0;
}

static void host_functions_may_not_call(void **state)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		execl("/proc/self/exe", "test_fake_streams", "calls", NULL);
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* An event of one context in a stream of the other; waiting is allowed. */
static void streams_of_two_devices(void **state)
{
	CUevent e = new_event();
	CUstream s = new_stream(0), other;
	CUcontext of;

	use_gpu(1);
	other = new_stream(0);
	ok(cuStreamGetCtx(other, &of));
	use_gpu(0);
	fails(cuEventRecord(e, other), CUDA_ERROR_INVALID_HANDLE);
	ok(cuEventRecord(e, s));
	ok(cuStreamWaitEvent(other, e, 0));
	ok(cuStreamSynchronize(other));
	ok(cuStreamDestroy_v2(s));
	ok(cuStreamDestroy_v2(other));
	ok(cuEventDestroy_v2(e));
	cuCtxSetCurrent(of);
	CUcontext now;
	ok(cuCtxGetCurrent(&now));
	assert_ptr_equal(now, of);
	use_gpu(0);
}

/* A child of fork has no driver. */
static void forks_have_no_driver(void **state)
{
	int status;
	pid_t child = fork();

	if (child == 0)
		_exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
				      cuStreamSynchronize(NULL) == CUDA_ERROR_NOT_INITIALIZED
			      ? 0
			      : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_waits_for_a_word),
		cmocka_unit_test(words_are_compared),
		cmocka_unit_test(bits_are_awaited),
		cmocka_unit_test(batches_have_an_order),
		cmocka_unit_test(streams_wait_for_events),
		cmocka_unit_test(the_legacy_stream_waits),
		cmocka_unit_test(each_thread_has_a_stream),
		cmocka_unit_test(copies_of_host_memory),
		cmocka_unit_test(elapsed_time),
		cmocka_unit_test(host_functions_run_in_order),
		cmocka_unit_test(host_functions_may_not_call),
		cmocka_unit_test(streams_of_two_devices),
		cmocka_unit_test(forks_have_no_driver),
	};

	(void)argv;
	test_limit(60);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	setenv("FAKE_CUDA_DELAY", "3", 1);
	if (argc > 1)
		return host_function_that_calls();
	return cmocka_run_group_tests(tests, begin, NULL);
}
