/* The door of precision/: the arithmetic of training on arrays, exact sums of squares, the loss
 * scale. */
#ifndef TRAIN_PRECISION_H
#define TRAIN_PRECISION_H

#include <tutti/train.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* kernels.c, arithmetic on arrays: updates, conversions, sums and norms. Pure functions of
 * host memory, on the calling thread. They allocate nothing and cannot fail.
 *
 *   arrays   have any count, also 0, are aligned to their type, and do not overlap except where a
 *            function allows it.
 *   dtypes   F32, BF16 and F16 only. Types of 16 bits are computed in f32 and rounded once, to the
 *            nearest, ties to even; what is too large becomes infinity.
 *   bits     are the same on every machine and under all floating point settings: no fused
 *            multiply-add, a fixed order. Every NaN that is computed or rounded is the canonical
 *            one. */

/* The arrays of an update, of count elements each. The gradient is grad * scale. */
struct kernel_update {
	float *value, *m, *v;           /* SGD: m may be NULL, v is not used */
	const void *grad;
	tutti_dtype grad_dtype;
	size_t count;
	float scale;
};

/* The numbers of AdamW's update number, counted from 1: keep = 1 - lr weight_decay, rate and bias2
 * are the corrected ones. */
struct adamw_numbers {
	float beta1, beta2, eps, keep, rate, bias2;
};
struct adamw_numbers adamw_numbers(const tutti_optimizer *o, double number);

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
/* Of r's first element: the key of narrow_at_random in kernel_table.h, which holds for all elements
 * whose index has the same upper 32 bits; and how many of count those are. */
struct rounding_key {
	uint64_t key;
	size_t count;
};
struct rounding_key rounding_key(const struct kernel_rounding *r, size_t count);

/* sum += x. */
void kernel_add(void *sum, tutti_dtype sum_dtype, const void *x, tutti_dtype x_dtype, size_t count);
/* out = x * by. out may be x, if the dtypes are the same. */
void kernel_scale(void *out, tutti_dtype dtype, const void *x, tutti_dtype x_dtype, size_t count,
		  float by);

/* In f64, in eight sums that are added in order: the same bits for the same array, but not if the
 * array is divided otherwise (see exact_sum.c). */
double kernel_sum_of_squares(const void *x, tutti_dtype dtype, size_t count);
/* The index of the first infinity or NaN, or count. */
size_t kernel_first_nonfinite(const void *x, tutti_dtype dtype, size_t count);

/* exact_sum.c: a sum of squares without rounding. The bits do not depend on the order, or on how
 * elements are divided among arrays and ranks, so a norm is the same at every number of ranks.
 *
 * The sum is a number of base 2^32 whose last digit counts 2^-298, the square of the smallest f32.
 * Digits are limbs of 64 bits, so that 2^30 sums can be added limb by limb: an all_reduce of
 * EXACT_SUM_WORDS TUTTI_I64 with TUTTI_SUM adds those of all ranks. */

#define EXACT_SUM_LIMBS 20 /* 2^-298 to 2^342: 2^85 squares of the largest f32 */
#define EXACT_SUM_WORDS (EXACT_SUM_LIMBS + 1)

/* All zeros: the sum of nothing. */
struct exact_sum {
	int64_t limbs[EXACT_SUM_LIMBS];
	int64_t nonfinite;                      /* infinities and NaNs, which are not in limbs */
};

/* Adds the squares of an array of F32, BF16 or F16. Leaves every limb in [0, 2^32): equal sums have
 * equal bytes. */
void exact_sum_add(struct exact_sum *sum, const void *x, tutti_dtype dtype, size_t count);
/* The same, where others have added the squares of mantissas of 24 bits: halves[2 e] and halves[2 e
 * + 1] are sums of the lower and upper 32 bits of those of exponent field e. Those of field 255 are
 * counted. */
void exact_sum_add_halves(struct exact_sum *sum, const uint64_t halves[512]);
/* Adds other to sum, as an all_reduce does. Leaves the limbs as exact_sum_add does. */
void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other);
/* The nearest f64, ties to even. Limbs may be those of an all_reduce. NaN if an element was not
 * finite. */
double exact_sum_value(const struct exact_sum *sum);

/* loss_scale.c: the factor by which authors multiply the loss. A loss scale keeps small gradients
 * from vanishing in 16 bits. It is fixed, or dynamic: halved after a step with an infinity,
 * doubled after 2000 steps without one.
 *
 * F16 cannot hold the gradients of a large batch, because gradients are sums over items. Where
 * gradients are kept or sent in F16, the scale also divides by about the items of a step: by a
 * power of two, so that no bit is lost. */

struct loss_scale {
	float factor;  /* of the loss */
	float divisor; /* for F16 gradients; else 1 */
	int good_steps;
	bool is_known; /* the divisor is set */
};

void loss_scale_init(struct loss_scale *scale, const tutti_train_config *config);
/* Continues from the scale of an earlier trainer. A fixed factor stays as it is in the config. */
void loss_scale_resume(struct loss_scale *scale, const tutti_train_config *config,
		       const struct loss_scale *from);
/* True: the divisor is not known yet. Call loss_scale_set_items before the first micro-batch. */
bool loss_scale_needs_items(const struct loss_scale *scale, const tutti_train_config *config);
/* items: of all ranks, in one step. */
void loss_scale_set_items(struct loss_scale *scale, double items);
/* Gradients are multiples of this number. */
float loss_scale_now(const struct loss_scale *scale);
/* A step has ended. is_finite: its gradients had no infinity and no NaN. */
void loss_scale_end_step(struct loss_scale *scale, const tutti_train_config *config, double items,
			 bool is_finite);

#endif
