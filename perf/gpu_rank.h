/* One rank's GPU: its memory, a stream, events and a graph, by CUDA's driver, which is loaded at run
 * time. Knows nothing of measurements. Every function is called by the rank's own thread. */
#ifndef PERF_GPU_RANK_H
#define PERF_GPU_RANK_H

#include "core/status.h"
#include "cuda/driver.h"

#include <stdbool.h>
#include <stddef.h>

#define GPU_RANK_EVENTS 513 /* around each call of a burst: STAMPS_MAX + 1 */
#define GPU_RANK_NAME   100

struct gpu_rank {
	tutti_comm *comm; /* or NULL */
	int ordinal;
	CUdevice device;
	CUcontext context;
	CUstream stream;
	CUevent events[GPU_RANK_EVENTS];
	CUgraphExec graph;        /* or NULL */
	char name[GPU_RANK_NAME]; /* "NVIDIA H200" */
};

/* How many GPUs the driver has; 0: none, and *why says so as a message without its full stop. */
int gpu_rank_count(const char **why);
/* The GPU of the rank with that number on its machine: the ranks take turns. It is current in this
 * thread from now on. A failure here and below is DEVICE: a message is this thread's last error, and
 * comm (or NULL) is aborted, so that no rank waits for this one. */
tutti_status gpu_rank_open(struct gpu_rank **gpu, int local_rank, tutti_comm *comm);
/* NULL is fine. */
void gpu_rank_close(struct gpu_rank *gpu);

/* Of the GPU, or pinned memory of the host's. */
tutti_status gpu_rank_alloc(struct gpu_rank *gpu, void **ptr, size_t bytes);
tutti_status gpu_rank_alloc_host(struct gpu_rank *gpu, void **ptr, size_t bytes);
void gpu_rank_free(struct gpu_rank *gpu, void *ptr);
void gpu_rank_free_host(struct gpu_rank *gpu, void *ptr);
/* In the stream. */
tutti_status gpu_rank_copy(struct gpu_rank *gpu, void *to, const void *from, size_t bytes);
tutti_status gpu_rank_mark(struct gpu_rank *gpu, int event);
/* Blocks until the stream has done everything. */
tutti_status gpu_rank_wait(struct gpu_rank *gpu);
/* Between two events that have happened. */
tutti_status gpu_rank_seconds(struct gpu_rank *gpu, int from, int to, double *seconds);

/* The stream's work between begin and end becomes a graph instead, in place of the one
 * before. end: also after a failure, which status is; then there is no graph, and status is
 * returned. */
tutti_status gpu_rank_capture_begin(struct gpu_rank *gpu);
tutti_status gpu_rank_capture_end(struct gpu_rank *gpu, tutti_status status);
tutti_status gpu_rank_launch(struct gpu_rank *gpu);

#endif
