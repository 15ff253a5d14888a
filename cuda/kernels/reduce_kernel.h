/* dst[0..n_dst) = the reduction of src[0..n_src): kernels `reduce` and `reduce_wide`. */
#ifndef CUDA_KERNELS_REDUCE_KERNEL_H
#define CUDA_KERNELS_REDUCE_KERNEL_H

#include "cuda/kernels/reduce_core.h"

#define REDUCE_BODY(name, may_be_fast)                                                             \
	DEVICE void name##_body(const struct name##_args *args, struct kernel_block *block)        \
	{                                                                                          \
		for (int t = thread_first(); t < THREADS_OF_##name; t += thread_step()) {          \
			struct reduce_job job = {                                                  \
				args->dst,                                                         \
				args->src,                                                         \
				args->n_dst,                                                       \
				args->n_src,                                                       \
				args->count,                                                       \
				args->dtype,                                                       \
				args->op,                                                          \
				args->divisor,                                                     \
				(uint64_t)block->index * THREADS_OF_##name + (unsigned)t,          \
				(uint64_t)block->count * THREADS_OF_##name};                       \
			reduce_in_kernel(&job, may_be_fast);                                       \
		}                                                                                  \
	}
REDUCE_BODY(reduce, 1)
REDUCE_BODY(reduce_wide, 0)
KERNEL(reduce)
KERNEL(reduce_wide)

#endif
