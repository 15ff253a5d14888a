/* Finds the driver, and puts its failures into words. */
#include "gpu_rank.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cuda_driver *cuda;
/* Those that the library itself does not call: of graphs. */
static struct {
#define MEMBER(name, symbol, parameters) CUresult(*name) parameters;
	CUDA_PROGRAM_FUNCTIONS(MEMBER)
#undef MEMBER
} graphs;
static char missing[300]; /* why there are none, or "" */
static int devices;

static void gpu_rank_find(void *library, const char *name, void *function)
{
	void *symbol = dlsym(library, name);

	memcpy(function, &symbol, sizeof symbol);
	if (!symbol)
		snprintf(missing, sizeof missing,
			 "no GPU: libcuda.so.1 has no %s: the driver is too old", name);
}

static void gpu_rank_load(void)
{
	/* Ranks that are threads share a GPU's queues: docs/cuda.md, Limits. */
	setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	cuda = cuda_driver();
	if (!cuda) {
		snprintf(missing, sizeof missing, "no GPU: there is no CUDA driver: %s",
			 cuda_driver_missing());
		return;
	}
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
#define FIND(name, symbol, parameters) gpu_rank_find(library, #symbol, &graphs.name);
	CUDA_PROGRAM_FUNCTIONS(FIND)
#undef FIND
	if (missing[0])
		return;
	if (cuda_status(cuda->init(0), "init") != TUTTI_OK ||
	    cuda_status(cuda->device_get_count(&devices), "device_get_count") != TUTTI_OK)
		snprintf(missing, sizeof missing, "no GPU: %s", last_error());
	else if (devices == 0)
		snprintf(missing, sizeof missing, "no GPU: the CUDA driver has no device");
}

int gpu_rank_count(const char **why)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, gpu_rank_load);
	*why = missing;
	return missing[0] ? 0 : devices;
}

/* The others do not wait for this rank. */
static tutti_status gpu_rank_judge(const struct gpu_rank *gpu, CUresult error, const char *call)
{
	char text[ERROR_BYTES];

	if (error == CUDA_SUCCESS)
		return TUTTI_OK;
	cuda_status(error, call);
	snprintf(text, sizeof text, "%s", last_error());
	if (gpu->comm)
		tutti_comm_abort(gpu->comm);
	return fail(TUTTI_ERR_DEVICE, "%s on %s", text, gpu->name);
}

#define GPU_TRY(gpu, function, ...) TRY(gpu_rank_judge(gpu, cuda->function(__VA_ARGS__), #function))
#define GRAPH_TRY(gpu, function, ...)                                                              \
	TRY(gpu_rank_judge(gpu, graphs.function(__VA_ARGS__), #function))

static tutti_status gpu_rank_fill_in(struct gpu_rank *gpu, int ordinal)
{
	GPU_TRY(gpu, device_get, &gpu->device, ordinal);
	GPU_TRY(gpu, device_get_name, gpu->name, (int)sizeof gpu->name, gpu->device);
	GPU_TRY(gpu, primary_ctx_retain, &gpu->context, gpu->device);
	GRAPH_TRY(gpu, ctx_set_current, gpu->context);
	GPU_TRY(gpu, stream_create_with_priority, &gpu->stream, CU_STREAM_NON_BLOCKING, 0);
	for (int i = 0; i < GPU_RANK_EVENTS; i++)
		GPU_TRY(gpu, event_create, &gpu->events[i], CU_EVENT_DEFAULT);
	return TUTTI_OK;
}

tutti_status gpu_rank_open(struct gpu_rank **out, int local_rank, tutti_comm *comm)
{
	struct gpu_rank *gpu = calloc(1, sizeof *gpu);

	if (!gpu)
		return fail_no_memory("a rank's GPU");
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

static void gpu_rank_drop_graph(struct gpu_rank *gpu)
{
	if (gpu->graph)
		graphs.graph_exec_destroy(gpu->graph);
	gpu->graph = NULL;
}

/* The context stays: the library may have memory of it. */
void gpu_rank_close(struct gpu_rank *gpu)
{
	if (!gpu)
		return;
	gpu_rank_drop_graph(gpu);
	for (int i = 0; i < GPU_RANK_EVENTS; i++)
		if (gpu->events[i])
			cuda->event_destroy(gpu->events[i]);
	if (gpu->stream)
		cuda->stream_destroy(gpu->stream);
	free(gpu);
}

static CUdeviceptr gpu_rank_address(const void *ptr)
{
	return (CUdeviceptr)(uintptr_t)ptr;
}

tutti_status gpu_rank_alloc(struct gpu_rank *gpu, void **ptr, size_t bytes)
{
	CUdeviceptr pointer;

	GPU_TRY(gpu, mem_alloc, &pointer, bytes);
	*ptr = (void *)(uintptr_t)pointer;
	return TUTTI_OK;
}

tutti_status gpu_rank_alloc_host(struct gpu_rank *gpu, void **ptr, size_t bytes)
{
	GPU_TRY(gpu, mem_host_alloc, ptr, bytes, CU_MEMHOSTALLOC_PORTABLE);
	memset(*ptr, 0, bytes);
	return TUTTI_OK;
}

void gpu_rank_free(struct gpu_rank *gpu, void *ptr)
{
	(void)gpu;
	if (ptr)
		cuda->mem_free(gpu_rank_address(ptr));
}

void gpu_rank_free_host(struct gpu_rank *gpu, void *ptr)
{
	(void)gpu;
	if (ptr)
		cuda->mem_free_host(ptr);
}

tutti_status gpu_rank_copy(struct gpu_rank *gpu, void *to, const void *from, size_t bytes)
{
	if (bytes > 0)
		GPU_TRY(gpu, memcpy_async, gpu_rank_address(to), gpu_rank_address(from), bytes,
			gpu->stream);
	return TUTTI_OK;
}

tutti_status gpu_rank_mark(struct gpu_rank *gpu, int event)
{
	GPU_TRY(gpu, event_record, gpu->events[event], gpu->stream);
	return TUTTI_OK;
}

tutti_status gpu_rank_wait(struct gpu_rank *gpu)
{
	GPU_TRY(gpu, stream_synchronize, gpu->stream);
	return TUTTI_OK;
}

tutti_status gpu_rank_seconds(struct gpu_rank *gpu, int from, int to, double *seconds)
{
	float ms;

	GRAPH_TRY(gpu, event_elapsed_time, &ms, gpu->events[from], gpu->events[to]);
	*seconds = (double)ms * 1e-3;
	return TUTTI_OK;
}

/* Of this thread only: other ranks are threads that may do what a capture forbids. */
tutti_status gpu_rank_capture_begin(struct gpu_rank *gpu)
{
	gpu_rank_drop_graph(gpu);
	GRAPH_TRY(gpu, stream_begin_capture, gpu->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	return TUTTI_OK;
}

tutti_status gpu_rank_capture_end(struct gpu_rank *gpu, tutti_status status)
{
	CUgraph graph = NULL;
	CUresult error = graphs.stream_end_capture(gpu->stream, &graph);

	if (status == TUTTI_OK)
		status = gpu_rank_judge(gpu, error, "stream_end_capture");
	if (status == TUTTI_OK)
		status = gpu_rank_judge(gpu, graphs.graph_instantiate(&gpu->graph, graph, 0),
					"graph_instantiate");
	if (graph)
		graphs.graph_destroy(graph);
	return status;
}

tutti_status gpu_rank_launch(struct gpu_rank *gpu)
{
	GRAPH_TRY(gpu, graph_launch, gpu->graph, gpu->stream);
	return TUTTI_OK;
}
