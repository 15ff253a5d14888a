/* The one stream of this rank's GPU, in which everything runs, for layers.c and matmul.c. Failures end the
 * program. place.h of examples/gpt has the memory. */
#ifndef EXAMPLES_GPT_CUDA_STREAM_H
#define EXAMPLES_GPT_CUDA_STREAM_H

#include "cuda/api.h"
#include "examples/gpt_cuda/kernels/args.h"

enum gpt_kernel {
#define GPT_KERNEL_NUMBER(name, threads) NUMBER_OF_##name,
	GPT_KERNELS(GPT_KERNEL_NUMBER)
#undef GPT_KERNEL_NUMBER
	GPT_KERNEL_COUNT
};

CUstream stream_handle(void);
/* Returns at once, as all below. blocks: that have something to do; fewer run where the GPU has room for fewer. */
void stream_launch(enum gpt_kernel kernel, uint64_t blocks, const void *args);
void stream_clear(void *to, size_t bytes);

/* LAUNCH(gpt_map, blocks, .out = ..., ...) */
#define LAUNCH(name, blocks, ...)                                                                  \
	stream_launch(NUMBER_OF_##name, blocks, &(struct name##_args){__VA_ARGS__})

#endif
