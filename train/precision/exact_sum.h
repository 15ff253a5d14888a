/* A sum of squares without rounding: the same bits whatever the order, and however the elements are cut among arrays
 * and ranks. So a norm is the same at every world size.
 *
 * The sum is a number of base 2^32 whose last digit counts 2^-298, the square of the smallest f32; digits are
 * limbs of 64 bits, so that sums of up to 2^30 of them, added limb by limb, still fit: an all_reduce of
 * EXACT_SUM_WORDS TUTTI_I64 with TUTTI_SUM merges those of all ranks. */
#ifndef TRAIN_EXACT_SUM_H
#define TRAIN_EXACT_SUM_H

#include <tutti/tutti.h>

#include <stddef.h>
#include <stdint.h>

#define EXACT_SUM_LIMBS 20                      /* 2^-298 to 2^342: 2^85 squares of the largest f32 */
#define EXACT_SUM_WORDS (EXACT_SUM_LIMBS + 1)

struct exact_sum {
	int64_t limbs[EXACT_SUM_LIMBS];
	int64_t nonfinite;                      /* how many infinities and NaNs, which are not in limbs */
};

void exact_sum_clear(struct exact_sum *sum);
/* Adds the squares of an array of F32, BF16 or F16. Leaves every limb in [0, 2^32), the only such form of the
 * sum: equal sums have equal bytes. */
void exact_sum_add(struct exact_sum *sum, const void *x, tutti_dtype dtype, size_t count);
/* sum += other, as an all_reduce does it; then as exact_sum_add leaves it. */
void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other);
/* The nearest f64, ties to even; limbs may be as an all_reduce leaves them. NaN when something was not finite. */
double exact_sum_value(const struct exact_sum *sum);

#endif
