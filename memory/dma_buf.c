/* A kind's own way to a dma-buf; CUDA's is the driver, libcuda, loaded at run time. */
#include "memory/dma_buf.h"

#include "core/status.h"
#include "memory/memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CUDA_LIBRARY "libcuda.so.1"
#define CUDA_DMA_BUF 1 /* CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD */

/* cuMemGetHandleForAddressRange and cuGetErrorName of the driver API, 11.7 or later. */
static struct {
	int (*get_handle)(void *handle, unsigned long long ptr, size_t bytes, int type,
			  unsigned long long flags);
	int (*error_name)(int error, const char **name);
} cuda;
static char reason[240]; /* why it is not loaded, or "" */

static void find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	memcpy(function, &symbol, sizeof symbol);
	if (!symbol)
		snprintf(reason, sizeof reason, CUDA_LIBRARY " has no %s: the driver is too old",
			 name);
}

static void load_cuda(void)
{
	void *library = dlopen(CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(reason, sizeof reason, "%s", dlerror());
		return;
	}
	find(library, "cuMemGetHandleForAddressRange", &cuda.get_handle);
	find(library, "cuGetErrorName", &cuda.error_name);
}

/* The driver takes whole pages. Memory that it has handed out always has them. */
static tutti_status cuda_dma_buf(struct memory_dma_buf *out, void *ptr, size_t bytes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = (uintptr_t)ptr / page * page;
	uintptr_t end = ((uintptr_t)ptr + bytes + page - 1) / page * page;
	const char *name = NULL;

	pthread_once(&once, load_cuda);
	if (reason[0])
		return fail(TUTTI_ERR_UNSUPPORTED, "there is no dma-buf of GPU memory: %s", reason);
	int error = cuda.get_handle(&out->fd, from, end - from, CUDA_DMA_BUF, 0);
	out->offset = (uintptr_t)ptr - from;
	if (error == 0)
		return TUTTI_OK;
	cuda.error_name(error, &name);
	return fail(TUTTI_ERR_UNSUPPORTED,
		    "the GPU's driver gives no dma-buf of %zu bytes at %p "
		    "(cuMemGetHandleForAddressRange: %s, %d); it takes Linux 5.12 and the open "
		    "kernel modules of driver 515 or later",
		    bytes, ptr, name ? name : "an unknown error", error);
}

tutti_status memory_dma_buf(struct memory_dma_buf *out, int kind, void *ptr, size_t bytes)
{
	const struct memory_kind *own = memory_kind(kind);

	if (own && own->dma_buf)
		return own->dma_buf(out, ptr, bytes);
	if (kind == TUTTI_MEMORY_CUDA)
		return cuda_dma_buf(out, ptr, bytes);
	return fail(TUTTI_ERR_UNSUPPORTED, "there is no dma-buf of %s memory",
		    own ? own->name : "such");
}
