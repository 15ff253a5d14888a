/* Device memory of the driver: the CPU faults on it; copies reach exactly what is allocated;
 * pointers say what they are. */
#include "tests/cuda/driver/check.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void nothing_before_init(void **state)
{
	CUdeviceptr p;
	int n;

	fails(cuMemAlloc_v2(&p, 64), CUDA_ERROR_NOT_INITIALIZED);
	fails(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	ok(cuInit(0));
	ok(cuInit(0));
	fails(cuMemAlloc_v2(&p, 64), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuDeviceGetCount(&n));
	assert_int_equal(n, 3);
}

static void touch(volatile const char *p)
{
	struct rlimit none = {0, 0};
	pid_t child = fork();
	int status;

	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		setrlimit(RLIMIT_CORE, &none);
		(void)*p;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void the_cpu_faults(void **state)
{
	use_gpu(0);
	CUdeviceptr p = device_memory(1000);
	assert_int_equal(p % 512, 0);
	touch((const char *)(uintptr_t)p);
	touch((const char *)(uintptr_t)p + 999);
	ok(cuMemFree_v2(p));
}

static void memory_begins_as_garbage(void **state)
{
	use_gpu(0);
	CUdeviceptr p = device_memory(64);
	assert_int_not_equal(read_word(p, NULL), 0);
	uint32_t word = 17;
	ok(cuMemcpyAsync(p + 4, address(&word), 4, NULL));
	assert_int_equal(read_word(p + 4, NULL), 17);
	ok(cuMemsetD8Async(p, 3, 8, NULL));
	assert_int_equal(read_word(p + 4, NULL), 0x03030303);
	ok(cuMemFree_v2(p));
	fails(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

static void pointers_say_what_they_are(void **state)
{
	CUcontext context = use_gpu(1), of;
	CUdeviceptr p = device_memory(100), base, last = 0;
	unsigned long long id, other_id;
	unsigned type, managed = 1;
	unsigned char ipc;
	size_t bytes;
	int ordinal;

	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 99));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p));
	assert_int_equal(ordinal, 1);
	ok(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	assert_ptr_equal(of, context);
	ok(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	assert_int_equal(managed, 0);
	ok(cuPointerGetAttribute(&ipc, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, p));
	assert_int_equal(ipc, 1);
	ok(cuMemGetAddressRange_v2(&base, &bytes, p + 50));
	assert_true(base == p && bytes == 100);
	fails(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 100),
	      CUDA_ERROR_INVALID_VALUE);
	fails(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(&type)),
	      CUDA_ERROR_INVALID_VALUE);

	char *host = pinned_memory(100);
	ok(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address(host + 5)));
	assert_int_equal(type, CU_MEMORYTYPE_HOST);
	ok(cuMemHostGetDevicePointer_v2(&last, host, 0));
	assert_true(last == address(host));
	ok(cuMemFreeHost(host));

	/* The same address, but another allocation. */
	ok(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	ok(cuMemFree_v2(p));
	assert_true(device_memory(100) == p);
	ok(cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, p));
	assert_true(id != other_id);
	ok(cuMemFree_v2(p));
}

static void memory_ends(void **state)
{
	size_t left, total;
	CUdeviceptr p;

	use_gpu(0);
	ok(cuMemGetInfo_v2(&left, &total));
	assert_int_equal(total, 1 << 20);
	fails(cuMemAlloc_v2(&p, left + 1), CUDA_ERROR_OUT_OF_MEMORY);
	p = device_memory(left);
	fails(cuMemAlloc_v2(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	ok(cuMemFree_v2(p));
}

/* Devices 0 and 1 reach each other, 2 does not. */
static void peers_need_access(void **state)
{
	CUcontext one = use_gpu(1);
	CUdeviceptr there = device_memory(64);
	CUcontext two = use_gpu(2);
	int can;

	CUcontext zero = use_gpu(0);
	ok(cuDeviceCanAccessPeer(&can, 0, 1));
	assert_int_equal(can, 1);
	ok(cuDeviceCanAccessPeer(&can, 0, 2));
	assert_int_equal(can, 0);
	fails(cuCtxEnablePeerAccess(two, 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	fails(cuCtxEnablePeerAccess(zero, 0), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuCtxEnablePeerAccess(one, 0));
	fails(cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	ok(cuMemsetD8Async(there, 1, 64, NULL));
	assert_int_equal(read_word(there, NULL), 0x01010101);
}

/* The last test: device 2 is lost until its context is released. */
static void errors_stay(void **state)
{
	CUdeviceptr p, zeros;
	CUcontext context;

	use_gpu(0);
	zeros = device_memory(64);
	use_gpu(2);
	p = device_memory(64);
	uint32_t word;
	fails(cuMemcpyAsync(address(&word), p + 62, 4, NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	fails(cuMemFree_v2(p), CUDA_ERROR_ILLEGAL_ADDRESS);
	use_gpu(0);
	ok(cuStreamSynchronize(NULL)); /* other devices go on */
	for (int i = 0; i < 2; i++)
		ok(cuDevicePrimaryCtxRelease_v2(2));
	fails(cuDevicePrimaryCtxRelease_v2(2), CUDA_ERROR_INVALID_CONTEXT);
	ok(cuDevicePrimaryCtxRetain(&context, 2));
	ok(cuCtxSetCurrent(context));
	p = device_memory(64);
	ok(cuMemcpyAsync(p, zeros, 64, NULL)); /* no peer */
	fails(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_before_init),
		cmocka_unit_test(the_cpu_faults),
		cmocka_unit_test(memory_begins_as_garbage),
		cmocka_unit_test(pointers_say_what_they_are),
		cmocka_unit_test(memory_ends),
		cmocka_unit_test(peers_need_access),
		cmocka_unit_test(errors_stay),
	};

	setenv("FAKE_CUDA_DEVICES", "3", 1);
	setenv("FAKE_CUDA_PEERS", "0-1", 1);
	setenv("FAKE_CUDA_MEMORY", "1048576", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
