/* Launches of kernels on threads of the CPU: a thread a block. */
#ifndef TESTS_CUDA_KERNELS_LAUNCH_H
#define TESTS_CUDA_KERNELS_LAUNCH_H

#include "cuda/kernels/block.h"

typedef void kernel_block_fn(const void *args, struct kernel_block *block);

/* One that takes any arguments. */
#define LAUNCH_AS(name, threads)                                                                   \
	static inline void launch_##name##_block(const void *args, struct kernel_block *block)     \
	{                                                                                          \
		name##_block(args, block);                                                         \
	}
CUDA_KERNELS(LAUNCH_AS)
#undef LAUNCH_AS

#define LAUNCH_BLOCKS 16 /* at most */

struct launch {
	kernel_block_fn *fn;
	const void *args; /* until launch_wait() */
	unsigned blocks;
	struct launch_thread {
		struct launch *launch;
		struct kernel_block block;
		unsigned long thread;
	} threads[LAUNCH_BLOCKS];
};

void launch_start(struct launch *launch, kernel_block_fn *fn, const void *args, unsigned blocks);
void launch_wait(struct launch *launch);

#endif
