/* Multicast objects of the driver, and handles of memory: a wrong order or size that is taken, a
 * descriptor that is good without being sent, memory that stays. */
#include "tests/cuda/driver/check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE ((size_t)2 << 20)

unsigned fake_cuda_pieces(void);

static CUmemGenericAllocationHandle new_object(unsigned devices)
{
	CUmulticastObjectProp prop = {.numDevices = devices,
				      .size = PIECE,
				      .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	CUmemGenericAllocationHandle object;

	ok(cuMulticastCreate(&object, &prop));
	return object;
}

static CUmemGenericAllocationHandle new_memory(int gpu, unsigned types)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = types,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu}};
	CUmemGenericAllocationHandle memory;

	ok(cuMemCreate(&memory, PIECE, &prop, 0));
	return memory;
}

/* The driver would wait without end. */
static void bind_early(void)
{
	use_gpu(0);
	CUmemGenericAllocationHandle object = new_object(2);
	ok(cuMulticastAddDevice(object, 0));
	cuMulticastBindMem(object, 0, new_memory(0, 1), 0, PIECE, 0);
}

static void map_early(void)
{
	CUdeviceptr at;

	use_gpu(0);
	CUmemGenericAllocationHandle object = new_object(2);
	ok(cuMulticastAddDevice(object, 1));
	ok(cuMemAddressReserve(&at, PIECE, 0, 0, 0));
	cuMemMap(at, PIECE, 0, object, 0);
}

static void aborts(void (*body)(void))
{
	struct rlimit none = {0, 0};
	pid_t child = fork();
	int status;

	if (child == 0) {
		signal(SIGABRT, SIG_DFL);
		setrlimit(RLIMIT_CORE, &none);
		body();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* Before this process has a driver. */
static void all_are_added_first(void **state)
{
	aborts(bind_early);
	aborts(map_early);
}

static void objects_have_rules(void **state)
{
	CUmulticastObjectProp prop = {.numDevices = 2, .size = PIECE + 1};
	CUmemGenericAllocationHandle object, other;
	size_t unit;

	use_gpu(0);
	fails(cuMulticastCreate(&object, &prop), CUDA_ERROR_INVALID_VALUE);
	prop.size = PIECE;
	prop.handleTypes = CU_MEM_HANDLE_TYPE_FABRIC; /* of which there are none */
	fails(cuMulticastCreate(&object, &prop), CUDA_ERROR_NOT_SUPPORTED);
	prop.handleTypes = 0;
	ok(cuMulticastGetGranularity(&unit, &prop, CU_MULTICAST_GRANULARITY_MINIMUM));
	assert_int_equal(unit, PIECE);

	object = new_object(2);
	fails(cuMulticastAddDevice(object, 7), CUDA_ERROR_INVALID_DEVICE);
	ok(cuMulticastAddDevice(object, 0));
	fails(cuMulticastAddDevice(object, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMulticastAddDevice(object, 1));
	fails(cuMulticastAddDevice(object, 2), CUDA_ERROR_INVALID_VALUE);

	other = new_memory(2, 1);
	fails(cuMulticastBindMem(object, 0, other, 0, PIECE, 0), CUDA_ERROR_INVALID_DEVICE);
	ok(cuMemRelease(other));
	other = new_memory(0, 0); /* that cannot be exported */
	fails(cuMulticastBindMem(object, 0, other, 0, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemRelease(other));
	other = new_memory(0, 1);
	fails(cuMulticastBindMem(object, 0, other, 0, PIECE / 2, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMulticastBindMem(object, 0, other, 0, PIECE, 0));
	fails(cuMulticastBindMem(object, 0, other, 0, PIECE, 0), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemRelease(other));
	assert_int_equal(fake_cuda_pieces(), 2); /* it is bound */
	ok(cuMulticastUnbind(object, 0, 0, PIECE));
	fails(cuMulticastUnbind(object, 0, 0, PIECE), CUDA_ERROR_INVALID_VALUE);
	ok(cuMemRelease(object));
	assert_int_equal(fake_cuda_pieces(), 0);
}

/* Only multimem reaches a multicast address, and only of a device that was added. The last test. */
static void addresses_are_not_memory(void **state)
{
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 1},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr at;

	use_gpu(0);
	CUmemGenericAllocationHandle object = new_object(1);
	ok(cuMulticastAddDevice(object, 0));
	ok(cuMemAddressReserve(&at, PIECE, 0, 0, 0));
	ok(cuMemMap(at, PIECE, 0, object, 0));
	fails(cuMemSetAccess(at, PIECE, &access, 1), CUDA_ERROR_INVALID_DEVICE);
	access.location.id = 0;
	ok(cuMemSetAccess(at, PIECE, &access, 1));
	cuMemsetD8Async(at, 0, 16, NULL);
	fails(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	ok(cuMemUnmap(at, PIECE));
	ok(cuMemAddressFree(at, PIECE));
	ok(cuMemRelease(object));
	assert_int_equal(fake_cuda_pieces(), 0);
}

static void descriptors_are_sent(void **state)
{
	CUmemGenericAllocationHandle again;
	char path[64];
	int fd;

	use_gpu(0);
	CUmemGenericAllocationHandle memory = new_memory(0, 1);
	ok(cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	fails(cuMemExportToShareableHandle(path, memory, CU_MEM_HANDLE_TYPE_FABRIC, 0),
	      CUDA_ERROR_INVALID_VALUE);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	assert_true(open(path, O_RDWR) < 0);
	for (int i = 0; i < 2; i++) {
		ok(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		ok(cuMemRelease(again));
	}
	close(fd);
	ok(cuMemRelease(memory));
	assert_int_equal(fake_cuda_pieces(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_are_added_first),
		cmocka_unit_test(objects_have_rules),
		cmocka_unit_test(descriptors_are_sent),
		cmocka_unit_test(addresses_are_not_memory),
	};

	setenv("FAKE_CUDA_DEVICES", "3", 1);
	setenv("FAKE_CUDA_MULTICAST", "1", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
