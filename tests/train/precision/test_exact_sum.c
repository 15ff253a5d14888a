/* no_tsan: it has one thread */
/* Breaks when an exact sum of squares depends on the order, the division or the merge of its limbs;
 * when it is not the nearest f64 of a plain sum of bits; or when an infinity or a NaN is lost. */
#include "train/precision/precision.h"

#include "tests/core/memory/twin.h"
#include "tests/train/precision/random_bits.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define MOST 3000
#define BITS 700

/* All exponents; or near one. Finite. */
static float random_f32(int flavour)
{
	float x = of_bits((uint32_t)random_u64());

	if (flavour == 0)
		return isfinite(x) ? x : 0;
	return (float)draw_below(1 << 24) / (1 << 22) - 2;
}

static unsigned char twin[BITS];

static void twin_add(float x)
{
	int e;
	double m = frexp(fabs((double)x), &e);
	uint64_t mantissa = (uint64_t)ldexp(m, 24), square = mantissa * mantissa;
	int low = 2 * (e - 24) + 298; /* where its lowest bit is; below: zeros only */

	for (; square && low < 0; low++)
		square >>= 1;
	for (uint64_t carry = 0; square || carry; square >>= 1, low++) {
		uint64_t sum = twin[low] + (square & 1) + carry;
		twin[low] = sum & 1;
		carry = sum >> 1;
	}
}

/* To the nearest, ties to even. */
static double twin_value(void)
{
	int top = BITS - 1;
	double value = 0;
	bool rest = false;

	while (top >= 0 && !twin[top])
		top--;
	for (int i = top; i >= 0 && i > top - 53; i--)
		value += ldexp(twin[i], i - 298);
	if (top < 53)
		return value;
	for (int i = top - 54; i >= 0; i--)
		rest |= twin[i] != 0;
	if (twin[top - 53] && (rest || twin[top - 52]))
		value += ldexp(1, top - 52 - 298);
	return value;
}

static void test_twin(void **unused)
{
	static float x[MOST];

	for (int round = 0; round < 60; round++) {
		size_t count = round < 10 ? (size_t)round : draw_below(MOST);
		struct exact_sum sum;
		memset(twin, 0, sizeof twin);
		for (size_t i = 0; i < count; i++)
			twin_add(x[i] = random_f32(round % 2));
		sum = (struct exact_sum){0};
		exact_sum_add(&sum, x, TUTTI_F32, count);
		for (int i = 0; i < EXACT_SUM_LIMBS; i++) {
			int64_t limb = 0;
			for (int bit = 0; bit < 32; bit++)
				limb |= (int64_t)twin[32 * i + bit] << bit;
			assert_int_equal(sum.limbs[i], limb);
		}
		if (exact_sum_value(&sum) != twin_value())
			fail_msg("%zu squares sum to %a instead of %a", count,
				 exact_sum_value(&sum), twin_value());
	}
}

static double value_of(const float *x, size_t count)
{
	struct exact_sum sum;

	sum = (struct exact_sum){0};
	exact_sum_add(&sum, x, TUTTI_F32, count);
	return exact_sum_value(&sum);
}

/* Neighbours of 2^54 are 4 apart: half way goes to the even one, a little more goes up. */
static void test_rounding(void **unused)
{
	const float one = 1, tiny = of_bits(1), large = 0x1p27f;
	const float tie[] = {large, one, one}, more[] = {large, one, one, tiny};
	const float odd[] = {large, one, one, one, one, one, one}, little[] = {large, one, tiny};

	assert_true(value_of(tie, 3) == 0x1p54);
	assert_true(value_of(more, 4) == 0x1p54 + 4);
	assert_true(value_of(odd, 7) == 0x1p54 + 8);
	assert_true(value_of(little, 3) == 0x1p54);
	assert_true(value_of(&tiny, 1) == 0x1p-298);
	assert_true(value_of(NULL, 0) == 0 && !signbit(value_of(NULL, 0)));
	const float most = 0x1.fffffep127f;
	assert_true(value_of(&most, 1) == (double)most * (double)most);
}

static void shuffle(float *x, size_t count)
{
	for (size_t i = count; i > 1; i--) {
		size_t j = draw_below(i);
		float kept = x[i - 1];
		x[i - 1] = x[j];
		x[j] = kept;
	}
}

/* As ranks do it: each sums its pieces, and an all_reduce adds words. */
static void sum_in_pieces(struct exact_sum *total, const float *x, size_t count)
{
	int64_t words[EXACT_SUM_WORDS] = {0};
	struct exact_sum rank;

	for (size_t first = 0; first < count;) {
		rank = (struct exact_sum){0};
		for (size_t pieces = 1 + draw_below(3); pieces && first < count; pieces--) {
			size_t n = 1 + draw_below(count - first);
			exact_sum_add(&rank, x + first, TUTTI_F32, n);
			first += n;
		}
		int64_t mine[EXACT_SUM_WORDS];
		memcpy(mine, &rank, sizeof mine);
		for (int i = 0; i < EXACT_SUM_WORDS; i++)
			words[i] += mine[i];
	}
	memcpy(total, words, sizeof words);
}

static void test_cuts_and_orders(void **unused)
{
	static float x[MOST];
	struct exact_sum whole, parts, merged;

	assert_int_equal(sizeof whole, EXACT_SUM_WORDS * sizeof(int64_t));
	for (int round = 0; round < 30; round++) {
		size_t count = draw_below(MOST);
		for (size_t i = 0; i < count; i++)
			x[i] = random_f32(round % 2);
		whole = (struct exact_sum){0};
		exact_sum_add(&whole, x, TUTTI_F32, count);
		double value = exact_sum_value(&whole);
		for (int again = 0; again < 5; again++) {
			shuffle(x, count);
			sum_in_pieces(&parts, x, count);
			assert_true(exact_sum_value(&parts) == value);
			merged = (struct exact_sum){0};
			exact_sum_merge(&merged, &parts);
			assert_memory_equal(&merged, &whole, sizeof whole);
		}
	}
}

/* More than the sums of one exponent hold, of the largest mantissa, and 2^20 ranks with all limbs
 * full. */
static void test_many(void **unused)
{
	enum { COUNT = 8 * 65536 - 1, RANKS = 1 << 20 };
	float *x = malloc(COUNT * sizeof *x);
	const double one = 0x1.fffffep0 * 0x1.fffffep0;
	struct exact_sum sum, all;

	assert_non_null(x);
	for (size_t i = 0; i < COUNT; i++)
		x[i] = 0x1.fffffep0f;
	sum = (struct exact_sum){0};
	exact_sum_add(&sum, x, TUTTI_F32, COUNT);
	/* Rounded once, from 128 bits. */
	uint64_t square = (uint64_t)ldexp(one, 46);
	unsigned __int128 product = (unsigned __int128)square * COUNT;
	assert_true(exact_sum_value(&sum) == ldexp((double)product, -46));
	free(x);

	for (int i = 0; i < EXACT_SUM_LIMBS - 1; i++)
		sum.limbs[i] = 0xffffffff;
	sum.limbs[EXACT_SUM_LIMBS - 1] = 0;
	for (int i = 0; i < EXACT_SUM_LIMBS; i++)
		all.limbs[i] = sum.limbs[i] * RANKS;
	all.nonfinite = 0;
	assert_true(exact_sum_value(&all) == ldexp(exact_sum_value(&sum), 20));
}

static void test_16_bits(void **unused)
{
	static uint16_t small[MOST];
	static float wide[MOST];
	const tutti_dtype dtypes[] = {TUTTI_BF16, TUTTI_F16};

	for (int round = 0; round < 20; round++) {
		tutti_dtype dtype = dtypes[round % 2];
		size_t count = draw_below(MOST);
		struct exact_sum a, b;
		for (size_t i = 0; i < count; i++) {
			small[i] = (uint16_t)random_u64();
			wide[i] = (float)twin_decode(small[i], twin_format(dtype));
		}
		a = (struct exact_sum){0};
		b = (struct exact_sum){0};
		exact_sum_add(&a, small, dtype, count);
		exact_sum_add(&b, wide, TUTTI_F32, count);
		assert_memory_equal(&a, &b, sizeof a);
	}
}

static void test_nonfinite(void **unused)
{
	static float x[MOST];
	const uint32_t bad[] = {0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f800001};

	for (int round = 0; round < 20; round++) {
		size_t count = 1 + draw_below(MOST);
		struct exact_sum sum, finite;
		int64_t found = 0;
		for (size_t i = 0; i < count; i++)
			x[i] = random_f32(0);
		x[draw_below(count)] = of_bits(bad[round % 5]);
		x[draw_below(count)] = of_bits(bad[draw_below(5)]);
		sum = (struct exact_sum){0};
		exact_sum_add(&sum, x, TUTTI_F32, count);
		for (size_t i = 0; i < count; i++) {
			found += !isfinite(x[i]);
			x[i] = isfinite(x[i]) ? x[i] : 0;
		}
		assert_int_equal(sum.nonfinite, found);
		assert_true(isnan(exact_sum_value(&sum)));
		finite = (struct exact_sum){0};
		exact_sum_add(&finite, x, TUTTI_F32, count);
		assert_memory_equal(sum.limbs, finite.limbs, sizeof sum.limbs);
		exact_sum_merge(&finite, &sum);
		assert_true(isnan(exact_sum_value(&finite)));
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_twin),    cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_many),    cmocka_unit_test(test_cuts_and_orders),
		cmocka_unit_test(test_16_bits), cmocka_unit_test(test_nonfinite),
	};
	random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)random_state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
