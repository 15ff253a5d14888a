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
/* And these two: 16 bytes at a multicast address, as the sum over all members, or stored to all. */
enum multicast_type { MULTICAST_F32, MULTICAST_F16, MULTICAST_BF16 };
void kernel_multicast_sum(const void *pointer, enum multicast_type type, void *vector);
void kernel_multicast_store(void *pointer, const void *vector);

#define KERNEL_BLOCK(name, threads)                                                                \
	void name##_block(const struct name##_args *args, struct kernel_block *block);
CUDA_KERNELS(KERNEL_BLOCK)
#undef KERNEL_BLOCK

#endif
