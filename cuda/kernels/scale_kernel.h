/* dst = scalar * src. */
#ifndef CUDA_KERNELS_SCALE_KERNEL_H
#define CUDA_KERNELS_SCALE_KERNEL_H

#include "cuda/kernels/scale_core.h"

DEVICE void scale_body(const struct scale_args *args, struct kernel_block *block)
{
	for (int t = thread_first(); t < THREADS_OF_scale; t += thread_step()) {
		uint64_t thread = (uint64_t)block->index * THREADS_OF_scale + (unsigned)t;
		struct reduce_job job = {&args->dst, &args->src, 1, 1, args->count, args->dtype,
					 TUTTI_PROD, 0, thread,
					 (uint64_t)block->count * THREADS_OF_scale};
		scale_in_kernel(&job, args->scalar);
	}
}
KERNEL(scale)

#endif
