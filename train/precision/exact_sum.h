/* A sum of squares without rounding. The bits do not depend on the order, or on how elements are
 * divided among arrays and ranks, so a norm is the same at every number of ranks.
 *
 * The sum is a number of base 2^32 whose last digit counts 2^-298, the square of the smallest f32.
 * Digits are limbs of 64 bits, so that 2^30 sums can be added limb by limb: an all_reduce of
 * EXACT_SUM_WORDS TUTTI_I64 with TUTTI_SUM adds those of all ranks. */
#ifndef TRAIN_EXACT_SUM_H
#define TRAIN_EXACT_SUM_H

#include <tutti/tutti.h>

#include <stddef.h>
#include <stdint.h>

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
/* Adds other to sum, as an all_reduce does. Leaves the limbs as exact_sum_add does. */
void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other);
/* The nearest f64, ties to even. Limbs may be those of an all_reduce. NaN if an element was not
 * finite. */
double exact_sum_value(const struct exact_sum *sum);

#endif
