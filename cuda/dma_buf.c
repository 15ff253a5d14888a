/* The driver's dma-bufs: descriptors by which an RDMA adapter reaches a GPU's memory. */
#include "cuda/driver.h"
#include "cuda/kind.h"

#include "core/status.h"
#include "memory/dma_buf.h"

#include <stdint.h>
#include <unistd.h>

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
	if (error == CUDA_SUCCESS)
		return TUTTI_OK;
	cuda->get_error_name(error, &name);
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "the GPU's driver gives no dma-buf of %zu bytes at %p "
		    "(cuMemGetHandleForAddressRange: %s, %u); it takes Linux 5.12 and the open "
		    "kernel modules of driver 515 or later",
		    bytes, ptr, name ? name : "an unknown error", error);
}
