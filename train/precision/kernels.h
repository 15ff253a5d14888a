/* The arithmetic of training on arrays: updates, conversions, sums and norms. Pure functions of
 * host memory, on the calling thread. They allocate nothing and cannot fail.
 *
 *   arrays   have any count, also 0, are aligned to their type, and do not overlap except where a
 *            function allows it.
 *   dtypes   F32, BF16 and F16 only. Types of 16 bits are computed in f32 and rounded once, to the
 *            nearest, ties to even; what is too large becomes infinity.
 *   bits     are the same on every machine and under all floating point settings: no fused
 *            multiply-add, a fixed order. Every NaN that is computed or rounded is the canonical
 *            one. */
#ifndef TRAIN_KERNELS_H
#define TRAIN_KERNELS_H

#include <tutti/train.h>

#include <stdint.h>

/* The arrays of an update, of count elements each. The gradient is grad * scale. */
struct kernel_update {
	float *value, *m, *v;           /* SGD: m may be NULL, v is not used */
	const void *grad;
	tutti_dtype grad_dtype;
	size_t count;
	float scale;
};

/* Makes update number, counted from 1, with o's lr, beta1, beta2, eps and weight_decay:
 *   g = grad * scale; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g;
 *   value = (1 - lr weight_decay) value
 *           - lr / (1 - beta1^number) m / (sqrt(v) / sqrt(1 - beta2^number) + eps). */
void kernel_adamw(const struct kernel_update *u, const tutti_optimizer *o, double number);
/* With o's lr, weight_decay and momentum:
 *   g = grad * scale + weight_decay value; if there is an m: g = m = momentum m + g;
 *   value -= lr g. */
void kernel_sgd(const struct kernel_update *u, const tutti_optimizer *o);

/* out = x, widened, rounded or copied: the dtypes are the same, or one of them is F32. */
void kernel_convert(void *out, tutti_dtype dtype, const void *x, tutti_dtype x_dtype, size_t count);

/* The keys of the random numbers that round elements first, first + 1, ... of parameter param. */
struct kernel_rounding {
	uint64_t seed, step;
	int param;
	size_t first;
};

/* out, of BF16, = x rounded up or down at random, so that the mean is x. The result depends on
 * x[i], seed, step, param and first + i alone. Numbers that BF16 can represent, infinities and NaN
 * are kept. A finite number stays finite. */
void kernel_narrow_at_random(void *out, const float *x, size_t count,
			     const struct kernel_rounding *r);

/* sum += x. */
void kernel_add(void *sum, tutti_dtype sum_dtype, const void *x, tutti_dtype x_dtype, size_t count);
/* out = x * by. out may be x, if the dtypes are the same. */
void kernel_scale(void *out, tutti_dtype dtype, const void *x, tutti_dtype x_dtype, size_t count,
		  float by);

/* In f64, in eight sums that are added in order: the same bits for the same array, but not if the
 * array is divided otherwise (see exact_sum.h). */
double kernel_sum_of_squares(const void *x, tutti_dtype dtype, size_t count);
/* The index of the first infinity or NaN, or count. */
size_t kernel_first_nonfinite(const void *x, tutti_dtype dtype, size_t count);

#endif
