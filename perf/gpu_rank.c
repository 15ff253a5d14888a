/* Finds the driver, and puts its failures into words. */
#include "gpu_rank.h"

#include "cuda/api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All functions: with those of graphs. */
static struct {
#define MEMBER(name, symbol, parameters) CUresult(*name) parameters;
	CUDA_FUNCTIONS(MEMBER)
	CUDA_PROGRAM_FUNCTIONS(MEMBER)
#undef MEMBER
} cuda;
static char missing[300]; /* why there are none, or "" */
static int devices;

struct gpu_rank {
	tutti_comm *comm;
	int ordinal;
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUevent events[GPU_RANK_EVENTS];
	CUgraphExec graph; /* or NULL */
	char name[GPU_RANK_NAME];
};

static void gpu_rank_find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	memcpy(function, &symbol, sizeof symbol);
	if (!symbol && !missing[0])
		snprintf(missing, sizeof missing,
			 "no GPU: libcuda.so.1 has no %s: the driver is too old", name);
}

static void look_for_devices(void)
{
	const char *name = "an unknown error";
	CUresult error = cuda.init(0);

	if (error == CUDA_SUCCESS)
		error = cuda.device_get_count(&devices);
	if (error != CUDA_SUCCESS) {
		cuda.get_error_name(error, &name);
		snprintf(missing, sizeof missing, "no GPU: the CUDA driver fails with %s", name);
	} else if (devices == 0) {
		snprintf(missing, sizeof missing, "no GPU: the CUDA driver has no device");
	}
}

static void gpu_rank_load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!library) {
		snprintf(missing, sizeof missing, "no GPU: there is no CUDA driver: %s", dlerror());
		return;
	}
#define FIND(name, symbol, parameters) gpu_rank_find(library, #symbol, &cuda.name);
	CUDA_FUNCTIONS(FIND)
	CUDA_PROGRAM_FUNCTIONS(FIND)
#undef FIND
	/* Ranks that are threads share a GPU's queues: docs/cuda.md, Limits. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	if (!missing[0])
		look_for_devices();
}

int gpu_rank_count(const char **why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, gpu_rank_load);
	*why = missing;
	return missing[0] ? 0 : devices;
}

static const char *gpu_rank_symbol_of(const char *call)
{
#define SYMBOL(function, symbol, parameters)                                                       \
	if (strcmp(call, #function) == 0)                                                          \
		return #symbol;
	CUDA_FUNCTIONS(SYMBOL)
	CUDA_PROGRAM_FUNCTIONS(SYMBOL)
#undef SYMBOL
	return call;
}

static tutti_status gpu_rank_judge(const struct gpu_rank *gpu, CUresult error, const char *call)
{
	const char *name = NULL;
	char text[200];

	if (error == CUDA_SUCCESS)
		return TUTTI_OK;
	cuda.get_error_name(error, &name);
	snprintf(text, sizeof text, "%s failed with %s (%u) on %s", gpu_rank_symbol_of(call),
		 name ? name : "an unknown error", error, gpu->name);
	if (gpu->comm)
		tutti_comm_abort(gpu->comm);
	return tutti_set_error(TUTTI_ERR_DEVICE, text);
}

#define CUDA_TRY(gpu, function, ...) TRY(gpu_rank_judge(gpu, cuda.function(__VA_ARGS__), #function))

static tutti_status gpu_rank_fill_in(struct gpu_rank *gpu, int ordinal)
{
	CUDA_TRY(gpu, device_get, &gpu->device, ordinal);
	CUDA_TRY(gpu, device_get_name, gpu->name, (int)sizeof gpu->name, gpu->device);
	CUDA_TRY(gpu, primary_ctx_retain, &gpu->context, gpu->device);
	CUDA_TRY(gpu, ctx_set_current, gpu->context);
	CUDA_TRY(gpu, stream_create_with_priority, &gpu->stream, CU_STREAM_NON_BLOCKING, 0);
	for (int i = 0; i < GPU_RANK_EVENTS; i++)
		CUDA_TRY(gpu, event_create, &gpu->events[i], CU_EVENT_DEFAULT);
	return TUTTI_OK;
}

tutti_status gpu_rank_open(struct gpu_rank **out, int local_rank, tutti_comm *comm)
{
	struct gpu_rank *gpu = calloc(1, sizeof *gpu);

	if (!gpu)
		return tutti_set_error(TUTTI_ERR_MEMORY, "no memory for a rank's GPU");
	gpu->comm = comm;
	gpu->ordinal = local_rank % devices;
	snprintf(gpu->name, sizeof gpu->name, "GPU %d", gpu->ordinal);
	tutti_status status = gpu_rank_fill_in(gpu, gpu->ordinal);
	if (status == TUTTI_OK)
		*out = gpu;
	else
		gpu_rank_close(gpu);
	return status;
}

static void drop_graph(struct gpu_rank *gpu)
{
	if (gpu->graph)
		cuda.graph_exec_destroy(gpu->graph);
	gpu->graph = NULL;
}

/* The context stays: the library may have memory of it. */
void gpu_rank_close(struct gpu_rank *gpu)
{
	if (!gpu)
		return;
	drop_graph(gpu);
	for (int i = 0; i < GPU_RANK_EVENTS; i++)
		if (gpu->events[i])
			cuda.event_destroy(gpu->events[i]);
	if (gpu->stream)
		cuda.stream_destroy(gpu->stream);
	free(gpu);
}

const char *gpu_rank_name(const struct gpu_rank *gpu)
{
	return gpu->name;
}

int gpu_rank_ordinal(const struct gpu_rank *gpu)
{
	return gpu->ordinal;
}

void *gpu_rank_stream(const struct gpu_rank *gpu)
{
	return gpu->stream;
}

static CUdeviceptr gpu_rank_address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

tutti_status gpu_rank_alloc(struct gpu_rank *gpu, void **ptr, size_t bytes)
{
	CUdeviceptr pointer;

	CUDA_TRY(gpu, mem_alloc, &pointer, bytes);
	*ptr = (void *)(uintptr_t)pointer;
	return TUTTI_OK;
}

tutti_status gpu_rank_alloc_host(struct gpu_rank *gpu, void **ptr, size_t bytes)
{
	CUDA_TRY(gpu, mem_host_alloc, ptr, bytes, CU_MEMHOSTALLOC_PORTABLE);
	memset(*ptr, 0, bytes);
	return TUTTI_OK;
}

void gpu_rank_free(struct gpu_rank *gpu, void *ptr)
{
	(void)gpu;
	if (ptr)
		cuda.mem_free(gpu_rank_address(ptr));
}

void gpu_rank_free_host(struct gpu_rank *gpu, void *ptr)
{
	(void)gpu;
	if (ptr)
		cuda.mem_free_host(ptr);
}

tutti_status gpu_rank_copy(struct gpu_rank *gpu, void *to, const void *from, size_t bytes)
{
	if (bytes > 0)
		CUDA_TRY(gpu, memcpy_async, gpu_rank_address(to), gpu_rank_address(from), bytes,
			 gpu->stream);
	return TUTTI_OK;
}

tutti_status gpu_rank_mark(struct gpu_rank *gpu, int event)
{
	CUDA_TRY(gpu, event_record, gpu->events[event], gpu->stream);
	return TUTTI_OK;
}

tutti_status gpu_rank_wait(struct gpu_rank *gpu)
{
	CUDA_TRY(gpu, stream_synchronize, gpu->stream);
	return TUTTI_OK;
}

tutti_status gpu_rank_seconds(struct gpu_rank *gpu, int from, int to, double *seconds)
{
	float ms;

	CUDA_TRY(gpu, event_elapsed_time, &ms, gpu->events[from], gpu->events[to]);
	*seconds = (double)ms * 1e-3;
	return TUTTI_OK;
}

/* Of this thread only: other ranks are threads that may do what a capture forbids. */
tutti_status gpu_rank_capture_begin(struct gpu_rank *gpu)
{
	drop_graph(gpu);
	CUDA_TRY(gpu, stream_begin_capture, gpu->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	return TUTTI_OK;
}

tutti_status gpu_rank_capture_end(struct gpu_rank *gpu, tutti_status status)
{
	CUgraph graph = NULL;
	CUresult error = cuda.stream_end_capture(gpu->stream, &graph);

	if (status == TUTTI_OK)
		status = gpu_rank_judge(gpu, error, "stream_end_capture");
	if (status == TUTTI_OK)
		status = gpu_rank_judge(gpu, cuda.graph_instantiate(&gpu->graph, graph, 0),
					"graph_instantiate");
	if (graph)
		cuda.graph_destroy(graph);
	return status;
}

tutti_status gpu_rank_launch(struct gpu_rank *gpu)
{
	CUDA_TRY(gpu, graph_launch, gpu->graph, gpu->stream);
	return TUTTI_OK;
}
