/* The driver of tests, and short forms of its calls. */
#include "gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVICES_MOST 64

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

bool gpu_ask_emulated(const char *name, unsigned *answer)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *symbol = library ? dlsym(library, name) : NULL;
	unsigned (*function)(void);

	memcpy(&function, &symbol, sizeof function);
	*answer = function ? function() : 0;
	if (library)
		dlclose(library);
	return symbol != NULL;
}

bool gpu_is_emulated(void)
{
	unsigned queues;

	return gpu_ask_emulated("fake_cuda_connections", &queues);
}

#define QUEUES_MOST 32

int gpu_threads(int most, int streams)
{
	unsigned n;

	if (!gpu_ask_emulated("fake_cuda_connections", &n)) /* 0: any number */
		n = QUEUES_MOST;
	int fit = ((int)n - 2) / streams * gpu_count(); /* 2: the default stream, and copies */

	return n == 0 || most < fit ? most : fit;
}

bool gpu_open(void)
{
	/* Ranks that are threads may share a GPU, and then its queues. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);

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
	static CUcontext contexts[DEVICES_MOST];
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

/* Streams, too, are used again: the first ones of a process have queues of their own, and later
 * ones come behind these. */
struct kept_stream {
	struct kept_stream *next;
	CUcontext context;
	CUstream stream;
	bool is_used;
};
static struct kept_stream *all_streams;

/* Whether nothing runs on it, nor has a test left it in a capture. */
static bool is_idle(CUstream stream)
{
	CUstreamCaptureStatus status;

	return gpu.stream_get_capture_info(stream, &status, NULL, NULL, NULL, NULL) ==
		       CUDA_SUCCESS &&
	       status == CU_STREAM_CAPTURE_STATUS_NONE && gpu.stream_query(stream) == CUDA_SUCCESS;
}

static struct kept_stream *add_stream(CUcontext context)
{
	struct kept_stream *k = malloc(sizeof *k);

	*k = (struct kept_stream){all_streams, context, NULL, false};
	GPU(stream_create_with_priority, &k->stream, CU_STREAM_NON_BLOCKING, 0);
	all_streams = k;
	return k;
}

static CUstream take_stream(CUcontext context)
{
	pthread_mutex_lock(&lock);
	struct kept_stream *k = all_streams;
	while (k && (k->is_used || k->context != context || !is_idle(k->stream)))
		k = k->next;
	if (!k)
		k = add_stream(context);
	k->is_used = true;
	pthread_mutex_unlock(&lock);
	return k->stream;
}

CUstream gpu_stream(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* it asks other streams */
	CUcontext context;

	GPU(ctx_get_current, &context);
	GPU(thread_exchange_stream_capture_mode, &mode);
	CUstream stream = take_stream(context);
	GPU(thread_exchange_stream_capture_mode, &mode);
	return stream;
}

void gpu_stream_free(CUstream stream)
{
	pthread_mutex_lock(&lock);
	struct kept_stream *k = all_streams;
	while (k->stream != stream)
		k = k->next;
	k->is_used = false;
	pthread_mutex_unlock(&lock);
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

/* All threads use one stream of a device: the legacy one would wait for all others of the process.
 */
static CUstream copies(void)
{
	static CUstream streams[DEVICES_MOST];
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
	CUdevice device;

	GPU(ctx_get_device, &device);
	pthread_mutex_lock(&making);
	if (!streams[device])
		streams[device] = gpu_stream();
	pthread_mutex_unlock(&making);
	return streams[device];
}

static void copy(void *to, const void *from, size_t bytes)
{
	CUstream stream = copies();

	gpu_copy_in(stream, to, from, bytes);
	gpu_sync(stream);
}

void gpu_write(void *to, const void *from, size_t bytes)
{
	copy(to, from, bytes);
}

void gpu_read(void *to, const void *from, size_t bytes)
{
	copy(to, from, bytes);
}
