/* Conversions, sums and multiples of arrays. */
#ifndef CUDA_KERNELS_TRAIN_MAP_KERNEL_H
#define CUDA_KERNELS_TRAIN_MAP_KERNEL_H

#include "cuda/kernels/train_core.h"

DEVICE void map_some(const struct train_map_args *a, uint64_t i, int n)
{
	float x[FOUR], sum[FOUR];

	load_floats(x, a->x, i, a->x_dtype, n);
	if (a->what == TRAIN_MAP_ADD)
		load_floats(sum, a->out, i, a->out_dtype, n);
	UNROLL
	for (int e = 0; e < n; e++) {
		if (a->what == TRAIN_MAP_ADD)
			x[e] = one_nan(sum[e] + x[e]);
		else if (a->what == TRAIN_MAP_SCALE)
			x[e] = one_nan(x[e] * a->by);
	}
	store_floats(a->out, i, x, a->out_dtype, n, &a->rounding);
}

DEVICE void train_map_body(const struct train_map_args *a, struct kernel_block *block)
{
	int by_four = is_for_four(a->out, a->out_dtype) && is_for_four(a->x, a->x_dtype);
	uint64_t fours = by_four ? a->count / FOUR : 0;
	uint64_t threads = (uint64_t)block->count * THREADS_OF_train_map;

	for (int t = thread_first(); t < THREADS_OF_train_map; t += thread_step()) {
		uint64_t thread = (uint64_t)block->index * THREADS_OF_train_map + (unsigned)t;
		NO_UNROLL
		for (uint64_t i = thread; i < fours; i += threads)
			map_some(a, i * FOUR, FOUR);
		NO_UNROLL
		for (uint64_t i = fours * FOUR + thread; i < a->count; i += threads)
			map_some(a, i, 1);
	}
}
KERNEL(train_map)

#endif
