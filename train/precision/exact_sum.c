/* The square of an f32's mantissa is an integer of 48 bits, so 64 bits hold a sum of 2^16 squares
 * of the same exponent. There is one such sum for each exponent; from time to time the sums are
 * added to the limbs. */
#include "train/precision/precision.h"

#include "core/memory/small_float.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define EXPONENTS 256
#define NONFINITE 255
#define WAYS      4 /* neighbours have sums of their own, to shorten dependency chains */
#define BATCH     (WAYS * 65536) /* a sum of 2^16 squares below 2^48 fits 64 bits */
#define BLOCK     1024

struct bins {
	uint64_t sums[WAYS][EXPONENTS];
};

static inline void exact_sum_add_one(uint64_t sums[EXPONENTS], float x)
{
	uint32_t bits = bits_of_f32(x), exponent = bits >> 23 & 0xff;
	uint64_t mantissa = (bits & 0x7fffff) | (uint32_t)(exponent != 0) << 23;

	sums[exponent] += mantissa * mantissa;
}

static void exact_sum_add_to_bins(struct bins *bins, const float *x, size_t n)
{
	size_t i = 0;

	for (; i + WAYS <= n; i += WAYS)
		for (size_t way = 0; way < WAYS; way++)
			exact_sum_add_one(bins->sums[way], x[i + way]);
	for (; i < n; i++)
		exact_sum_add_one(bins->sums[i % WAYS], x[i]);
}

/* Carries until every limb but the last is in [0, 2^32). */
static void exact_sum_carry(struct exact_sum *sum)
{
	for (int i = 0; i + 1 < EXACT_SUM_LIMBS; i++) {
		sum->limbs[i + 1] += sum->limbs[i] >> 32;
		sum->limbs[i] &= 0xffffffff;
	}
}

/* Adds value * 2^shift last digits to three limbs. */
static void exact_sum_add_shifted(struct exact_sum *sum, uint64_t value, unsigned shift)
{
	int64_t *limb = &sum->limbs[shift / 32];
	unsigned bits = shift % 32;
	uint64_t low = (value & 0xffffffff) << bits, high = (value >> 32) << bits;

	limb[0] += (int64_t)(low & 0xffffffff);
	limb[1] += (int64_t)((low >> 32) + (high & 0xffffffff));
	limb[2] += (int64_t)(high >> 32);
}

/* An f32 with exponent field e is its mantissa times 2^(e - 150); field 0 counts as field 1. */
static void exact_sum_empty_bins(struct exact_sum *sum, struct bins *bins)
{
	for (unsigned way = 0; way < WAYS; way++)
		for (unsigned e = 0; e < NONFINITE; e++)
			if (bins->sums[way][e])
				exact_sum_add_shifted(sum, bins->sums[way][e], e ? 2 * (e - 1) : 0);
	exact_sum_carry(sum);
}

/* Infinities and NaNs are in the last bins, and are only counted. x: the elements since the last
 * call. */
static int64_t exact_sum_take_nonfinite(struct bins *bins, const float *x, size_t n)
{
	uint64_t any = 0;
	int64_t found = 0;

	for (unsigned way = 0; way < WAYS; way++) {
		any |= bins->sums[way][NONFINITE];
		bins->sums[way][NONFINITE] = 0;
	}
	for (size_t i = 0; any && i < n; i++)
		found += (bits_of_f32(x[i]) >> 23 & 0xff) == NONFINITE;
	return found;
}

static void exact_sum_add_batch(struct exact_sum *sum, const void *x, tutti_dtype dtype,
				size_t count)
{
	size_t bytes = dtype == TUTTI_F32 ? 4 : 2;
	struct bins bins;
	float block[BLOCK];

	memset(&bins, 0, sizeof bins);
	for (size_t first = 0, n; first < count; first += n) {
		const void *from = (const char *)x + first * bytes;
		n = count - first < BLOCK ? count - first : BLOCK;
		if (dtype != TUTTI_F32) {
			kernel_convert(block, TUTTI_F32, from, dtype, n);
			from = block;
		}
		exact_sum_add_to_bins(&bins, from, n);
		sum->nonfinite += exact_sum_take_nonfinite(&bins, from, n);
	}
	exact_sum_empty_bins(sum, &bins);
}

void exact_sum_add(struct exact_sum *sum, const void *x, tutti_dtype dtype, size_t count)
{
	size_t bytes = dtype == TUTTI_F32 ? 4 : 2;

	assert(dtype == TUTTI_F32 || dtype == TUTTI_BF16 || dtype == TUTTI_F16);
	for (size_t first = 0, n; first < count; first += n) {
		n = count - first < BATCH ? count - first : BATCH;
		exact_sum_add_batch(sum, (const char *)x + first * bytes, dtype, n);
	}
}

void exact_sum_add_halves(struct exact_sum *sum, const uint64_t halves[2 * EXPONENTS])
{
	for (unsigned e = 0; e < NONFINITE; e++) {
		unsigned shift = e ? 2 * (e - 1) : 0;
		exact_sum_add_shifted(sum, halves[2 * e], shift);
		exact_sum_add_shifted(sum, halves[2 * e + 1], shift + 32);
	}
	sum->nonfinite += (int64_t)halves[2 * NONFINITE];
	exact_sum_carry(sum);
}

void exact_sum_merge(struct exact_sum *sum, const struct exact_sum *other)
{
	for (int i = 0; i < EXACT_SUM_LIMBS; i++)
		sum->limbs[i] += other->limbs[i];
	sum->nonfinite += other->nonfinite;
	exact_sum_carry(sum);
}

/* The 64 bits from the first set bit on; the last bit is also set if anything is below them.
 * digit[-1] and digit[-2] exist. */
static uint64_t exact_sum_leading_bits(const uint64_t *digit, int zeros, bool below)
{
	uint64_t top = (digit[0] << 32 | digit[-1]) << zeros, next = digit[-2] << zeros;

	return top | next >> 32 | (below || (next & 0xffffffff));
}

double exact_sum_value(const struct exact_sum *sum)
{
	uint64_t digits[EXACT_SUM_LIMBS + 2] = {0}; /* two zero digits below the last */
	struct exact_sum whole = *sum;
	bool below = false;
	int top = EXACT_SUM_LIMBS + 1;

	if (sum->nonfinite)
		return (double)NAN;
	exact_sum_carry(&whole);
	assert(whole.limbs[EXACT_SUM_LIMBS - 1] >> 32 == 0);
	for (int i = 0; i < EXACT_SUM_LIMBS; i++)
		digits[i + 2] = (uint64_t)whole.limbs[i];
	while (top > 1 && digits[top] == 0)
		top--;
	if (top == 1)
		return 0;
	for (int i = 0; i < top - 2; i++)
		below |= digits[i] != 0;
	int zeros = __builtin_clz((unsigned)digits[top]);
	uint64_t bits = exact_sum_leading_bits(&digits[top], zeros, below), rounded = bits >> 11;
	rounded += (bits >> 10 & 1) && ((bits & 0x3ff) || (rounded & 1));
	/* Two digits below the last: 2^-64 of it. */
	return ldexp((double)rounded, 32 * (top - 1) - zeros + 11 - 64 - 298);
}
