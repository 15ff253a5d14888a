/* Updates of optimizers. */
#ifndef CUDA_KERNELS_TRAIN_UPDATE_KERNEL_H
#define CUDA_KERNELS_TRAIN_UPDATE_KERNEL_H

#include "cuda/kernels/train_core.h"

/* Loshchilov and Hutter, Decoupled Weight Decay Regularization, 2019. */
DEVICE void adamw_element(const struct train_update_args *a, float *value, float *m, float *v,
			  float grad)
{
	float g = grad * a->scale;

	*m = one_nan(a->beta1 * *m + (1 - a->beta1) * g);
	*v = one_nan(a->beta2 * *v + (1 - a->beta2) * g * g);
	*value = one_nan(a->keep * *value -
			 a->rate * *m / (square_root(*v) * a->bias2 + a->eps));
}

DEVICE void sgd_element(const struct train_update_args *a, float *value, float *m, float grad)
{
	float g = grad * a->scale + a->decay * *value;

	if (a->m)
		*m = g = one_nan(a->momentum * *m + g);
	*value = one_nan(*value - a->rate * g);
}

DEVICE void update_some(const struct train_update_args *a, uint64_t i, int n)
{
	float value[FOUR], m[FOUR] = {0}, v[FOUR] = {0}, grad[FOUR];

	load_floats(value, a->value, i, TUTTI_F32, n);
	load_floats(grad, a->grad, i, a->grad_dtype, n);
	if (a->m)
		load_floats(m, a->m, i, TUTTI_F32, n);
	if (a->kind == TRAIN_UPDATE_ADAMW)
		load_floats(v, a->v, i, TUTTI_F32, n);
	UNROLL
	for (int e = 0; e < n; e++) {
		if (a->kind == TRAIN_UPDATE_ADAMW)
			adamw_element(a, &value[e], &m[e], &v[e], grad[e]);
		else
			sgd_element(a, &value[e], &m[e], grad[e]);
	}
	store_floats(a->value, i, value, TUTTI_F32, n, NULL);
	if (a->m)
		store_floats(a->m, i, m, TUTTI_F32, n, NULL);
	if (a->kind == TRAIN_UPDATE_ADAMW)
		store_floats(a->v, i, v, TUTTI_F32, n, NULL);
	if (a->low)
		store_floats(a->low, i, value, a->low_dtype, n, &a->rounding);
}

DEVICE void train_update_body(const struct train_update_args *a, struct kernel_block *block)
{
	int by_four = is_for_four(a->value, TUTTI_F32) && is_for_four(a->m, TUTTI_F32) &&
		      is_for_four(a->v, TUTTI_F32) && is_for_four(a->grad, a->grad_dtype) &&
		      is_for_four(a->low, a->low_dtype);
	uint64_t fours = by_four ? a->count / FOUR : 0;
	uint64_t threads = (uint64_t)block->count * THREADS_OF_train_update;

	for (int t = thread_first(); t < THREADS_OF_train_update; t += thread_step()) {
		uint64_t thread = (uint64_t)block->index * THREADS_OF_train_update + (unsigned)t;
		NO_UNROLL
		for (uint64_t i = thread; i < fours; i += threads)
			update_some(a, i * FOUR, FOUR);
		NO_UNROLL
		for (uint64_t i = fours * FOUR + thread; i < a->count; i += threads)
			update_some(a, i, 1);
	}
}
KERNEL(train_update)

#endif
