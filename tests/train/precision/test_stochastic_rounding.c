/* no_tsan: it has one thread */
/* Breaks when stochastic rounding is biased, depends on the division of an array or on the
 * instruction set, repeats itself among steps, seeds or parameters, changes what BF16 can
 * represent, or makes an infinity of a finite number. */
#include "core/simd.h"
#include "train/precision/kernel_table.h"
#include "train/precision/precision.h"
#include "tests/train/precision/random_bits.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define MOST 4096

static float x[MOST + 1];
static uint16_t whole[MOST + 1], parts[MOST + 1];

static struct kernel_rounding random_place(void)
{
	return (struct kernel_rounding){random_u64(), random_u64(), (int)draw_below(1000),
					draw_below(2) ? ((size_t)1 << 32) - draw_below(MOST)
						      : draw_below(1u << 31)};
}

/* Every number goes to one of its two neighbours, or stays. */
static void expect_neighbour(float from, uint16_t to)
{
	uint32_t bits = bits_of(from), down = bits >> 16;

	if (isnan(from))
		assert_int_equal(to, 0x7fc0);
	else if ((bits & 0xffff) == 0 || (down & 0x7fff) == 0x7f7f)
		assert_int_equal(to, down);
	else
		assert_true(to == down || to == down + 1);
}

static void test_neighbours(void **unused)
{
	static const uint32_t special[] = {0x7f7fffff, 0xff7fffff, 0x7f7f0001, 0x7f7effff,
					   0x7f800000, 0xff800000, 0x7f800001, 0xffc12345,
					   1,          0x8000ffff, 0x007fffff, 0x80000000};

	for (int round = 0; round < 20; round++) {
		struct kernel_rounding r = random_place();
		for (size_t i = 0; i < MOST; i++)
			x[i] = of_bits(draw_below(4) ? (uint32_t)random_u64()
						     : special[draw_below(12)]);
		whole[MOST] = 0xa5a5;
		kernel_narrow_at_random(whole, x, MOST, &r);
		for (size_t i = 0; i < MOST; i++)
			expect_neighbour(x[i], whole[i]);
		assert_int_equal(whole[MOST], 0xa5a5);
	}
}

/* Shards of any size, at any address, on any instruction set, have the bits of the whole: also
 * beyond 2^32. */
static void test_cuts(void **unused)
{
	for (int round = 0; round < 40; round++) {
		struct kernel_rounding r = random_place(), shard = r;
		for (size_t i = 0; i < MOST; i++)
			x[i] = of_bits((uint32_t)random_u64());
		assert_int_equal(simd_use("base"), TUTTI_OK);
		kernel_narrow_at_random(whole, x, MOST, &r);
		for (size_t first = 0, n; first < MOST; first += n) {
			n = 1 + draw_below(draw_below(2) ? 40 : MOST);
			n = n < MOST - first ? n : MOST - first;
			shard.first = r.first + first;
			assert_int_equal(simd_use(simd_name((enum simd_level)draw_below(
						 (size_t)simd_highest() + 1))),
					 TUTTI_OK);
			kernel_narrow_at_random(parts + first, x + first, n, &shard);
		}
		assert_memory_equal(parts, whole, MOST * sizeof *whole);
	}
	assert_int_equal(simd_use(NULL), TUTTI_OK);
}

/* How many of MOST numbers that are fraction / 65536 above a BF16 number go up. */
static int count_up(uint32_t fraction, const struct kernel_rounding *r)
{
	int up = 0;

	for (size_t i = 0; i < MOST; i++)
		x[i] = of_bits(0x3f800000 + fraction);
	kernel_narrow_at_random(whole, x, MOST, r);
	for (size_t i = 0; i < MOST; i++)
		up += whole[i] == 0x3f81;
	return up;
}

/* Over elements, and for one element over steps, seeds and parameters. The numbers are fixed, so
 * the test always passes or never. Five standard deviations. */
static void test_mean(void **unused)
{
	const uint32_t fractions[] = {1, 100, 0x2000, 0x5555, 0x8000, 0xc000, 0xff00, 0xffff};

	for (int f = 0; f < 8; f++) {
		double p = fractions[f] / 65536.0;
		int up = 0, over[3] = {0};
		for (uint64_t step = 0; step < 64; step++)
			up += count_up(fractions[f], &(struct kernel_rounding){7, step, 3, 0});
		double n = 64.0 * MOST, far = 5 * sqrt(n * p * (1 - p)) + 1;
		if (fabs(up - n * p) > far)
			fail_msg("%d of %g went up instead of %g", up, n, n * p);
		x[0] = of_bits(0x3f800000 + fractions[f]);
		for (uint64_t i = 0; i < MOST; i++) {
			struct kernel_rounding r[3] = {
				{7, i, 3, 11}, {i, 7, 3, 11}, {7, 3, (int)i, 11}};
			for (int way = 0; way < 3; way++) {
				kernel_narrow_at_random(whole, x, 1, &r[way]);
				over[way] += whole[0] == 0x3f81;
			}
		}
		for (int way = 0; way < 3; way++)
			assert_true(fabs(over[way] - MOST * p) <= 5 * sqrt(MOST * p * (1 - p)) + 1);
	}
}

/* Half of two roundings of 1.5 agree: neighbours, steps, seeds and parameters are independent. */
static void test_independence(void **unused)
{
	const struct kernel_rounding a = {7, 1, 3, 0};
	const struct kernel_rounding others[] = {{7, 2, 3, 0},
						 {8, 1, 3, 0},
						 {7, 1, 4, 0},
						 {7, 1, 3, 1},
						 {7, 1, 3, 2},
						 {7, 1, 3, 64},
						 {7, 1, 3, (size_t)1 << 32},
						 {1, 7, 3, 0},
						 {3, 1, 7, 0}};
	static uint16_t first[MOST];

	count_up(0x8000, &a);
	memcpy(first, whole, sizeof first);
	for (size_t o = 0; o < sizeof others / sizeof others[0]; o++) {
		int same = 0;
		count_up(0x8000, &others[o]);
		for (size_t i = 0; i < MOST; i++)
			same += whole[i] == first[i];
		if (abs(same - MOST / 2) > 5 * 32) /* sqrt(MOST) / 2 is a deviation */
			fail_msg("the other %zu agrees in %d of %d", o, same, MOST);
	}
}

/* Both halves of a key count: 2^64 keys have numbers of their own. */
static void test_keys(void **unused)
{
	const uint64_t keys[] = {0x9fb21c651e98df25, 0x3c79ac491e98df25, 0xe7037ed11e98df25,
				 0x9fb21c65d6e8feb8, 0x9fb21c651e98df24};
	int same[5] = {0};

	for (size_t i = 0; i < MOST; i++)
		x[i] = of_bits(0x3f808000);
	kernel_table_base.narrow_at_random(parts, x, MOST, keys[0], 0);
	for (int k = 0; k < 5; k++) {
		kernel_table_base.narrow_at_random(whole, x, MOST, keys[k], 0);
		for (size_t i = 0; i < MOST; i++)
			same[k] += whole[i] == parts[i];
	}
	assert_int_equal(same[0], MOST);
	for (int k = 1; k < 5; k++)
		assert_true(abs(same[k] - MOST / 2) <= 5 * 32);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_neighbours), cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_mean),       cmocka_unit_test(test_independence),
		cmocka_unit_test(test_keys),
	};
	random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)random_state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
