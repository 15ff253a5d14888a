/* The driver of tests, and short forms of its calls. */
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
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
	CUDA_PROGRAM_FUNCTIONS(FIND)
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

/* Retained once, by the first thread. */
static CUcontext context_of(int device)
{
	static CUcontext contexts[64];
	static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
	CUdevice number;

	pthread_mutex_lock(&opening);
	if (!contexts[device]) {
		GPU(device_get, &number, device);
		GPU(primary_ctx_retain, &contexts[device], number);
	}
	pthread_mutex_unlock(&opening);
	return contexts[device];
}

void gpu_use(int device)
{
	GPU(ctx_set_current, context_of(device));
}

static CUdeviceptr address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

/* Memory that was given back is used again and never freed: the driver would wait for all that runs
 * on the device, which may be a call of another rank that waits for this one. */
struct kept {
	struct kept *next;
	CUcontext context; /* NULL: the host's */
	size_t bytes;
	void *ptr;
	bool is_used;
};
static struct kept *all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct kept *find_free(CUcontext context, size_t bytes)
{
	struct kept *k = all;

	while (k && (k->is_used || k->context != context || k->bytes != bytes))
		k = k->next;
	return k;
}

static struct kept *add(CUcontext context, size_t bytes)
{
	struct kept *k = malloc(sizeof *k);
	CUdeviceptr pointer = 0;

	*k = (struct kept){all, context, bytes, NULL, false};
	if (context)
		GPU(mem_alloc, &pointer, bytes);
	else
		GPU(mem_host_alloc, &k->ptr, bytes,
		    CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (context)
		k->ptr = (void *)(uintptr_t)pointer;
	all = k;
	return k;
}

static void *take(CUcontext context, size_t bytes)
{
	size_t room = 256;

	while (room < bytes)
		room *= 2;
	pthread_mutex_lock(&lock);
	struct kept *k = find_free(context, room);
	if (!k)
		k = add(context, room);
	k->is_used = true;
	pthread_mutex_unlock(&lock);
	return k->ptr;
}

static void give(const void *ptr)
{
	pthread_mutex_lock(&lock);
	struct kept *k = all;
	while (k->ptr != ptr)
		k = k->next;
	k->is_used = false;
	pthread_mutex_unlock(&lock);
}

void *gpu_alloc(size_t bytes)
{
	CUcontext context;

	GPU(ctx_get_current, &context);
	return take(context, bytes);
}

void gpu_free(void *ptr)
{
	give(ptr);
}

void *gpu_alloc_pinned(size_t bytes)
{
	return take(NULL, bytes);
}

void gpu_free_pinned(void *ptr)
{
	give(ptr);
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
