/* What a program of a test needs of CUDA: memory, copies, streams and graphs, by the driver that
 * the library would find. */
#ifndef TESTS_CUDA_GPU_H
#define TESTS_CUDA_GPU_H

#include "cuda/api.h"

#include <stdbool.h>

struct gpu_functions {
#define GPU_MEMBER(name, symbol, parameters) CUresult(*name) parameters;
	CUDA_FUNCTIONS(GPU_MEMBER)
	CUDA_PROGRAM_FUNCTIONS(GPU_MEMBER)
#undef GPU_MEMBER
};
extern struct gpu_functions gpu;

/* Loads and initialises the driver. false: there is none, or no device. */
bool gpu_open(void);
int gpu_count(void);
/* Whether it is the one of tests/cuda/driver, which makes faults on purpose. Before gpu_open, too: a
 * test whose ranks are processes opens none of its own. */
bool gpu_is_emulated(void);
/* Asks it for a count that only it has, by its function's name. false: this is another driver. */
bool gpu_ask_emulated(const char *name, unsigned *answer);
/* How many of `most` ranks, as threads, the GPUs can have when each rank has so many streams, those
 * of its communicators included: what one stream waits for must not be behind it in a queue. */
int gpu_threads(int most, int streams);
/* Makes a device's primary context this thread's. */
void gpu_use(int device);

/* Of the current device; end the program if they fail. Bytes may lie anywhere in an allocation. */
void *gpu_alloc(size_t bytes);
void gpu_free(void *ptr);
void *gpu_alloc_pinned(size_t bytes);
void gpu_free_pinned(void *ptr);
void gpu_write(void *to, const void *from, size_t bytes);
void gpu_read(void *to, const void *from, size_t bytes);
CUstream gpu_stream(void); /* non-blocking */
void gpu_stream_free(CUstream stream);
void gpu_copy_in(CUstream stream, void *to, const void *from, size_t bytes);
void gpu_sync(CUstream stream);

/* error of a call named what: ends the program unless it is success. */
void gpu_must(CUresult error, const char *what);
#define GPU(function, ...) gpu_must(gpu.function(__VA_ARGS__), #function)

#endif
