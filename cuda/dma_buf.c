/* The driver's dma-bufs: descriptors by which an RDMA adapter reaches a GPU's memory; and when what
 * an adapter has written there may be read. */
#include "cuda/device.h"
#include "cuda/kind.h"

#include "core/status.h"
#include "core/memory/dma_buf.h"

#include <stdint.h>
#include <unistd.h>

/* A blocking copy of the program's, from pageable memory, may return before its bytes are there,
 * and an adapter does not wait in the driver's order. (What this is refused for has no such
 * copies.) */
static void order_copies(const void *ptr)
{
	unsigned yes = 1;

	cuda_driver()->pointer_set_attribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
					     (CUdeviceptr)(uintptr_t)ptr);
}

/* The driver takes whole pages. Memory that it has handed out always has them. */
tutti_status cuda_dma_buf(struct memory_dma_buf *out, void *ptr, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)ptr / page * page;
	uintptr_t end = ((uintptr_t)ptr + bytes + page - 1) / page * page;
	const char *name = NULL;
	CUresult error = cuda->mem_get_handle_for_address_range(
		&out->fd, from, end - from, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);

	out->offset = (uintptr_t)ptr - from;
	if (error == CUDA_SUCCESS) {
		order_copies(ptr);
		return TUTTI_OK;
	}
	cuda->get_error_name(error, &name);
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "the GPU's driver gives no dma-buf of %zu bytes at %p "
		    "(cuMemGetHandleForAddressRange: %s, %u); it takes Linux 5.12 and the open "
		    "kernel modules of driver 515 or later",
		    bytes, ptr, name ? name : "an unknown error", error);
}

static tutti_status dma_buf_attribute(int ordinal, CUdevice_attribute which, int *value)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice number;

	CUDA_TRY(device_get, &number, ordinal);
	CUDA_TRY(device_get_attribute, value, which, number);
	return TUTTI_OK;
}

/* Below OWNER the device's own work may see old bytes behind an adapter's completion. */
static bool needs_flush(int writes_ordering)
{
	return writes_ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER;
}

tutti_status cuda_dma_buf_offered(int ordinal)
{
	int has_dma_bufs, ordering, flushes;

	TRY(dma_buf_attribute(ordinal, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, &has_dma_bufs));
	TRY(dma_buf_attribute(ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING,
			      &ordering));
	TRY(dma_buf_attribute(ordinal, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
			      &flushes));
	if (!has_dma_bufs)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "the driver gives no dma-bufs of CUDA device %d: it takes Linux 5.12 "
			    "and the open kernel modules of driver 515 or later",
			    ordinal);
	if (needs_flush(ordering) && !(flushes & CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST))
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "CUDA device %d neither orders nor flushes what adapters write",
			    ordinal);
	return TUTTI_OK;
}

tutti_status cuda_dma_buf_check(int ordinal)
{
	struct cuda_device *device;

	if (ordinal < 0)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "no GPU is named or current when the communicator is made");
	TRY(cuda_device_open(&device, ordinal));
	return cuda_dma_buf_offered(ordinal);
}

bool cuda_extent(struct memory_extent *out, const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr base, pointer = (CUdeviceptr)(uintptr_t)ptr;
	unsigned long long id;

	if (cuda->mem_get_address_range(&base, &out->bytes, pointer) != CUDA_SUCCESS ||
	    cuda->pointer_get_attribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer) !=
		    CUDA_SUCCESS)
		return false;
	out->base = (void *)(uintptr_t)base;
	out->id = id;
	return true;
}

tutti_status cuda_landed(const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_device *device;
	struct cuda_visit visit;

	TRY(cuda_device_of(&device, ptr));
	if (!needs_flush(device->writes_ordering))
		return TUTTI_OK;
	TRY(cuda_enter(device, &visit));
	CUresult error = cuda->flush_gpu_direct_rdma_writes(
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
		CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
	cuda_leave(&visit);
	return cuda_status(error, "flush_gpu_direct_rdma_writes");
}
