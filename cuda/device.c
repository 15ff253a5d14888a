/* Opening devices: context, kernels, what the hardware has. */
#include "cuda/device.h"

#include "core/status.h"
#include "cuda/kernels/kernels_image.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A device appears here when it is whole, and stays. */
static struct cuda_device *_Atomic devices[CUDA_DEVICES_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of opening */

static const struct {
	const char *name;
	int threads;
} kernels[CUDA_KERNEL_COUNT] = {
#define ROW(name, threads) {"tutti_" #name, threads},
	CUDA_KERNELS(ROW)
#undef ROW
};

int cuda_device_count(void)
{
	const struct cuda_driver *cuda = cuda_driver();
	int count = 0;

	if (!cuda || cuda->device_get_count(&count) != CUDA_SUCCESS)
		return 0;
	return count < CUDA_DEVICES_MAX ? count : CUDA_DEVICES_MAX;
}

static tutti_status cuda_device_load_image(CUlibrary *library)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUresult error =
		cuda->library_load_data(library, cuda_kernels_image, NULL, NULL, 0, NULL, NULL, 0);

	if (error != CUDA_SUCCESS && !cuda_kernels_are_built)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "this build of Tutti has no CUDA kernels: there was no nvcc");
	if (error == CUDA_ERROR_NO_BINARY_FOR_GPU)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "Tutti's CUDA kernels need a GPU of compute capability 7.5 or later");
	return cuda_status(error, "library_load_data");
}

/* All of them now: a kernel that is loaded while another one waits for it would never come. */
static tutti_status device_load_kernels(struct cuda_device *device)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUkernel kernel;

	TRY(cuda_device_load_image(&device->library));
	for (int i = 0; i < CUDA_KERNEL_COUNT; i++) {
		int blocks = 0;
		CUDA_TRY(library_get_kernel, &kernel, device->library, kernels[i].name);
		CUDA_TRY(kernel_get_function, &device->kernels[i], kernel);
		CUDA_TRY(occupancy_max_active_blocks, &blocks, device->kernels[i],
			 kernels[i].threads, 0);
		device->blocks_at_once[i] = blocks * device->multiprocessors;
	}
	return TUTTI_OK;
}

static bool device_has(CUdevice number, CUdevice_attribute attribute)
{
	int value = 0;

	return cuda_driver()->device_get_attribute(&value, attribute, number) == CUDA_SUCCESS &&
	       value > 0;
}

/* Memory for multicast comes in this unit; 0: there is none. Kernels need sm_90 for it. */
static size_t cuda_device_multicast_unit(CUdevice number, CUmemAllocationHandleType types)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmemAllocationHandleType plain = types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUmulticastObjectProp prop = {
		.numDevices = 2, .size = (size_t)2 << 20, .handleTypes = plain ? plain : types};
	int major = 0;
	size_t unit;

	if (!types || !device_has(number, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED) ||
	    cuda->device_get_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
				       number) != CUDA_SUCCESS ||
	    major < 9 || !cuda->multicast_create || !cuda->multicast_add_device ||
	    !cuda->multicast_bind_mem || !cuda->multicast_unbind ||
	    !cuda->multicast_get_granularity ||
	    cuda->multicast_get_granularity(&unit, &prop, CU_MULTICAST_GRANULARITY_MINIMUM) !=
		    CUDA_SUCCESS)
		return 0;
	return unit;
}

/* Attributes that an old driver does not know are not there. */
static struct cuda_pieces cuda_device_pieces_of(CUdevice number)
{
	struct cuda_pieces pieces = {.types = 0};

	if (!device_has(number, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
		return pieces;
	if (device_has(number, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
		pieces.types |= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	if (device_has(number, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED))
		pieces.types |= CU_MEM_HANDLE_TYPE_FABRIC;
	pieces.unit = cuda_device_multicast_unit(number, pieces.types);
	pieces.has_multicast = pieces.unit > 0;
	pieces.reaches_adapters =
		device_has(number, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
	return pieces;
}

static tutti_status device_make(struct cuda_device *device)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;
	CUdevice number;

	CUDA_TRY(device_get, &number, device->ordinal);
	CUDA_TRY(device_get_attribute, &device->multiprocessors,
		 CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, number);
	device->has_mps = device_has(number, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
	device->pieces = cuda_device_pieces_of(number);
	if (cuda->device_get_attribute(&device->writes_ordering,
				       CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
				       number) != CUDA_SUCCESS)
		device->writes_ordering = 0;
	CUDA_TRY(primary_ctx_retain, &device->context, number);
	tutti_status status = cuda_enter(device, &visit);
	if (status == TUTTI_OK) {
		status = device_load_kernels(device);
		if (status != TUTTI_OK && device->library)
			cuda->library_unload(device->library);
		cuda_leave(&visit);
	}
	if (status != TUTTI_OK) /* every later call would retain it once more */
		cuda->primary_ctx_release(number);
	return status;
}

static tutti_status cuda_device_open_new(int ordinal)
{
	struct cuda_device *device = calloc(1, sizeof *device);

	if (!device)
		return fail(TUTTI_ERR_MEMORY, "no memory for CUDA device %d", ordinal);
	device->ordinal = ordinal;
	tutti_status status = device_make(device);
	if (status == TUTTI_OK)
		atomic_store_explicit(&devices[ordinal], device, memory_order_release);
	else
		free(device);
	return status;
}

tutti_status cuda_device_open(struct cuda_device **device, int ordinal)
{
	tutti_status status = TUTTI_OK;

	if (ordinal < 0 || ordinal >= CUDA_DEVICES_MAX)
		return fail(TUTTI_ERR_INVALID, "there is no CUDA device %d", ordinal);
	if (!atomic_load_explicit(&devices[ordinal], memory_order_acquire)) {
		pthread_mutex_lock(&lock);
		if (!atomic_load_explicit(&devices[ordinal], memory_order_acquire))
			status = cuda_device_open_new(ordinal);
		pthread_mutex_unlock(&lock);
	}
	if (status == TUTTI_OK)
		*device = atomic_load_explicit(&devices[ordinal], memory_order_acquire);
	return status;
}

tutti_status cuda_device_of(struct cuda_device **device, const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	int ordinal;

	CUDA_TRY(pointer_get_attribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		 (CUdeviceptr)(uintptr_t)ptr);
	return cuda_device_open(device, ordinal);
}

/* One that is open, whose primary context this is. */
static struct cuda_device *device_with(CUcontext context)
{
	struct cuda_device *device = NULL;

	for (int i = 0; i < CUDA_DEVICES_MAX; i++)
		if ((device = atomic_load_explicit(&devices[i], memory_order_acquire)) &&
		    device->context == context)
			return device;
	return NULL;
}

/* The number that cuda_device_open takes, of the device that a context is of. */
static tutti_status cuda_device_ordinal_of(CUcontext context, int *ordinal)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUcontext popped;
	CUdevice number, other;

	CUDA_TRY(ctx_push_current, context);
	CUresult error = cuda->ctx_get_device(&number);
	cuda->ctx_pop_current(&popped);
	TRY(cuda_status(error, "ctx_get_device"));
	for (*ordinal = 0; *ordinal < CUDA_DEVICES_MAX; ++*ordinal) {
		CUDA_TRY(device_get, &other, *ordinal);
		if (other == number)
			return TUTTI_OK;
	}
	return fail(TUTTI_ERR_UNSUPPORTED, "there are more than %d CUDA devices", CUDA_DEVICES_MAX);
}

static tutti_status cuda_device_invalid_capture(void)
{
	return fail(TUTTI_ERR_INVALID,
		    "the capture that call.stream takes part in is invalid, by an earlier "
		    "operation that cannot be captured: end it (cuStreamEndCapture), and begin "
		    "again");
}

tutti_status cuda_device_of_stream(struct cuda_device **device, CUstream stream, const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUcontext context = NULL;
	int ordinal;

	if (cuda_stream_is_default(stream)) {
		CUDA_TRY(ctx_get_current, &context);
	} else {
		CUresult error = cuda->stream_get_ctx(stream, &context);
		if (error == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
			return cuda_device_invalid_capture();
		TRY(cuda_status(error, "stream_get_ctx"));
	}
	if (context && (*device = device_with(context)))
		return TUTTI_OK;
	if (!context && !ptr)
		return fail(TUTTI_ERR_INVALID,
			    "a default stream is meant, but no device is current in this thread");
	if (!context)
		return cuda_device_of(device, ptr);
	TRY(cuda_device_ordinal_of(context, &ordinal));
	TRY(cuda_device_open(device, ordinal));
	if ((*device)->context != context)
		return fail(
			TUTTI_ERR_INVALID,
			"call.stream belongs to a context that is not its device's primary one");
	return TUTTI_OK;
}

bool cuda_has_ipc_handle(CUdeviceptr pointer)
{
	int is_plain = 0; /* the driver writes one byte, or more */

	cuda_driver()->pointer_get_attribute(
		&is_plain, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, pointer);
	return is_plain != 0;
}

tutti_status cuda_capture_of(CUstream stream, uint64_t *id)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUstreamCaptureStatus status;

	CUDA_TRY(stream_get_capture_info, stream, &status, id, NULL, NULL, NULL);
	if (status == CU_STREAM_CAPTURE_STATUS_INVALIDATED)
		return cuda_device_invalid_capture();
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		*id = 0;
	return TUTTI_OK;
}

tutti_status cuda_capture_of_any(CUstream stream, const void *near, uint64_t *id)
{
	struct cuda_device *device;
	struct cuda_visit visit;

	TRY(cuda_device_of_stream(&device, stream, near));
	TRY(cuda_enter(device, &visit));
	tutti_status status = cuda_capture_of(stream, id);
	cuda_leave(&visit);
	return status;
}

tutti_status cuda_enter(const struct cuda_device *device, struct cuda_visit *visit)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(ctx_push_current, device->context);
	visit->mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	cuda->thread_exchange_stream_capture_mode(&visit->mode);
	return TUTTI_OK;
}

void cuda_leave(struct cuda_visit *visit)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUcontext context;

	cuda->thread_exchange_stream_capture_mode(&visit->mode);
	cuda->ctx_pop_current(&context);
}

tutti_status cuda_launch(const struct cuda_device *device, enum cuda_kernel kernel, unsigned blocks,
			 CUstream stream, const void *args)
{
	const struct cuda_driver *cuda = cuda_driver();
	void *parameters[] = {(void *)(uintptr_t)args};

	CUDA_TRY(launch_kernel, device->kernels[kernel], blocks, 1, 1,
		 (unsigned)kernels[kernel].threads, 1, 1, 0, stream, parameters, NULL);
	return TUTTI_OK;
}
