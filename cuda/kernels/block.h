/* Kernels as functions, for CPUs: a block of threads is one call, a launch calls each block once,
 * all at the same time, since blocks of collectives wait for those of other ranks. */
#ifndef CUDA_KERNELS_BLOCK_H
#define CUDA_KERNELS_BLOCK_H

#include "cuda/kernels/args.h"
#include "cuda/kernels/channel.h"
#include "cuda/kernels/table.h"
#include "cuda/kernels/train_args.h"

#include <stddef.h>

struct kernel_block {
	unsigned index, count; /* of this block, and how many the launch has */
};

/* The program that links the blocks has this function: it says where bytes of device memory, or of
 * a peer's, lie. */
void *kernel_reach(const void *pointer, size_t bytes, int writes);

#define KERNEL_BLOCK(name, threads)                                                                \
	void name##_block(const struct name##_args *args, struct kernel_block *block);
CUDA_KERNELS(KERNEL_BLOCK)
#undef KERNEL_BLOCK

#endif
