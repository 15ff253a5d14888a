/* The part of a measurement that needs a GPU: its buffers there, and the images of them here. */
#ifndef PERF_BENCH_GPU_H
#define PERF_BENCH_GPU_H

#include "bench.h"

#include "collective.h"

/* This rank's GPU, and areas there. */
tutti_status bench_gpu_open(struct bench *bench);
void bench_gpu_close(struct bench *bench);
/* The same call, with the buffers whose images it has. */
struct operation bench_gpu_place(const struct bench *bench, struct operation images);
/* So many bytes of both images to the GPU, and back from there; these are there on return. */
tutti_status bench_gpu_put(struct bench *bench, size_t bytes);
tutti_status bench_gpu_get(struct bench *bench, size_t bytes);
/* The stamps of n calls from the events 0 to n around them. */
tutti_status bench_gpu_stamps(struct bench *bench, int n);

#endif
