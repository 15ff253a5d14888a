/* The kernels of examples/gpt_cuda as functions, as cuda/kernels/block.h has those of the library. */
#ifndef TESTS_CUDA_KERNELS_GPT_BLOCKS_H
#define TESTS_CUDA_KERNELS_GPT_BLOCKS_H

#include "cuda/kernels/block.h"
#include "examples/gpt_cuda/kernels/args.h"

#define GPT_BLOCK(name, threads)                                                                   \
	void name##_block(const struct name##_args *args, struct kernel_block *block);
GPT_KERNELS(GPT_BLOCK)
#undef GPT_BLOCK

#endif
