/* The driver of tests, and short forms of its calls. */
#include "gpu.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gpu_functions gpu;

static void find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	if (!symbol) {
		fprintf(stderr, "libcuda.so.1 has no %s\n", name);
		exit(1);
	}
	memcpy(function, &symbol, sizeof symbol);
}

bool gpu_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	int count = 0;

	if (!library)
		return false;
#define FIND(name, symbol, parameters) find(library, #symbol, &gpu.name);
	CUDA_FUNCTIONS(FIND)
	CUDA_GRAPH_FUNCTIONS(FIND)
#undef FIND
	return gpu.init(0) == CUDA_SUCCESS && gpu.device_get_count(&count) == CUDA_SUCCESS &&
	       count > 0;
}

void gpu_must(CUresult error, const char *what)
{
	const char *name = "?";

	if (error == CUDA_SUCCESS)
		return;
	gpu.get_error_name(error, &name);
	fprintf(stderr, "%s: %s (%u)\n", what, name, error);
	abort();
}

int gpu_count(void)
{
	int count;

	GPU(device_get_count, &count);
	return count;
}

void gpu_use(int device)
{
	CUdevice number;
	CUcontext context;

	GPU(device_get, &number, device);
	GPU(primary_ctx_retain, &context, number);
	GPU(ctx_set_current, context);
}

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

void *gpu_alloc(size_t bytes)
{
	CUdeviceptr pointer;

	GPU(mem_alloc, &pointer, bytes);
	return (void *)(uintptr_t)pointer;
}

void gpu_free(void *ptr)
{
	GPU(mem_free, address(ptr));
}

void *gpu_alloc_pinned(size_t bytes)
{
	void *ptr;

	GPU(mem_host_alloc, &ptr, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	return ptr;
}

void gpu_free_pinned(void *ptr)
{
	GPU(mem_free_host, ptr);
}

/* On a stream of its own: the legacy one would wait for all others of the process. */
static void copy(void *to, const void *from, size_t bytes)
{
	CUstream stream = gpu_stream();

	gpu_copy_in(stream, to, from, bytes);
	gpu_sync(stream);
	gpu_stream_free(stream);
}

void gpu_write(void *to, const void *from, size_t bytes)
{
	copy(to, from, bytes);
}

void gpu_read(void *to, const void *from, size_t bytes)
{
	copy(to, from, bytes);
}

CUstream gpu_stream(void)
{
	CUstream stream;

	GPU(stream_create_with_priority, &stream, CU_STREAM_NON_BLOCKING, 0);
	return stream;
}

void gpu_stream_free(CUstream stream)
{
	GPU(stream_destroy, stream);
}

void gpu_copy_in(CUstream stream, void *to, const void *from, size_t bytes)
{
	if (bytes)
		GPU(memcpy_async, address(to), address(from), bytes, stream);
}

void gpu_sync(CUstream stream)
{
	GPU(stream_synchronize, stream);
}
