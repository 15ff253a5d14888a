/* no_tsan: it has one thread */
/* What would break: samples drawn twice or never, epochs that are hardly shuffled, and checkpoints
 * that continue in another order. */
#include "train/data/sampler.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tests/unit.h"

#define PI 0xc90fdaa22168c234u

static uint64_t place(uint64_t count, uint64_t seed, uint64_t epoch, uint64_t index)
{
	struct permutation p;

	permutation_init(&p, count, seed, epoch);
	return permutation_at(&p, index);
}

/* Every number below count at one place. */
static void check_permutation(uint64_t count, uint64_t seed, uint64_t epoch)
{
	unsigned char *seen = calloc(count, 1);
	struct permutation p;

	assert_non_null(seen);
	permutation_init(&p, count, seed, epoch);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t number = permutation_at(&p, i);
		if (number >= count || seen[number])
			fail_msg("count %" PRIu64 ", seed %" PRIu64 ", epoch %" PRIu64
				 ": place %" PRIu64 " has %" PRIu64 ", which %s",
				 count, seed, epoch, i, number,
				 number < count ? "an earlier one has" : "is too large");
		seen[number] = 1;
	}
	free(seen);
}

static void test_small_counts(void **state)
{
	for (uint64_t count = 1; count <= 300; count++)
		for (uint64_t seed = 0; seed < 4; seed++)
			check_permutation(count, seed * PI, seed + count % 3);
}

static void test_counts_near_powers_and_squares(void **state)
{
	const uint64_t counts[] = {1023, 1024, 1025, 4095, 4096, 4097, 9409, 9410, 65521, 65536};

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		check_permutation(counts[i], PI, i);
}

/* Too many to check all: places that are far apart, side by side, and at the ends. */
static void test_large_counts(void **state)
{
	enum { PLACES = 3000 };
	const uint64_t counts[] = {((uint64_t)1 << 32) - 1, (uint64_t)1 << 32,
				   ((uint64_t)1 << 32) + 1, 1000000000039u, (uint64_t)INT64_MAX};
	static uint64_t numbers[2 * PLACES];

	for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
		double quarters[4] = {0};
		for (uint64_t i = 0; i < PLACES; i++) {
			numbers[i] = place(counts[c], 5, 1, i);
			numbers[PLACES + i] = place(counts[c], 5, 1, counts[c] - 1 - i);
		}
		for (int i = 0; i < 2 * PLACES; i++) {
			assert_true(numbers[i] < counts[c]);
			quarters[numbers[i] / (counts[c] / 4 + 1)]++;
			for (int j = 0; j < i; j++)
				assert_true(numbers[i] != numbers[j]);
		}
		for (int q = 0; q < 4; q++)
			assert_true(quarters[q] > PLACES * 0.45 && quarters[q] < PLACES * 0.55);
	}
}

/* The number of this order among all orders of count numbers, from 0. */
static int order_number(uint64_t count, uint64_t seed, uint64_t epoch)
{
	uint64_t order[8];
	int number = 0;

	for (uint64_t i = 0; i < count; i++)
		order[i] = place(count, seed, epoch, i);
	for (uint64_t i = 0; i < count; i++) {
		int smaller = 0;
		for (uint64_t j = i + 1; j < count; j++)
			smaller += order[j] < order[i];
		number = number * (int)(count - i) + smaller;
	}
	return number;
}

/* All orders of up to six numbers are equally frequent: the sum of squares lies within five
 * standard deviations of fair draws. By epochs of a seed, and by seeds. */
static void test_all_orders_come(void **state)
{
	enum { PER_ORDER = 60 };

	for (uint64_t count = 2, orders = 2; count <= 6; orders *= ++count)
		for (int by_seed = 0; by_seed < 2; by_seed++) {
			int times[720] = {0};
			double sum = 0, free_cells = (double)orders - 1;
			for (uint64_t e = 0; e < PER_ORDER * orders; e++)
				times[order_number(count, by_seed ? e : 11, by_seed ? 2 : e)]++;
			for (uint64_t i = 0; i < orders; i++) {
				double off = times[i] - PER_ORDER;
				sum += off * off / PER_ORDER;
			}
			double off = sum - free_cells;
			if (off * off > 25 * 2 * free_cells)
				fail_msg("%d numbers by %s: %.1f instead of about %.0f", (int)count,
					 by_seed ? "seed" : "epoch", sum, free_cells);
		}
}

/* Of longer orders half take an odd number of exchanges to sort. */
static void test_orders_are_odd_and_even(void **state)
{
	enum { EPOCHS = 400, MOST = 40 };

	for (uint64_t count = 2; count <= MOST; count++) {
		int odd = 0;
		for (uint64_t e = 0; e < EPOCHS; e++) {
			uint64_t order[MOST], exchanges = 0;
			struct permutation p;
			permutation_init(&p, count, 8, e);
			for (uint64_t i = 0; i < count; i++) {
				order[i] = permutation_at(&p, i);
				for (uint64_t j = 0; j < i; j++)
					exchanges += order[j] > order[i];
			}
			odd += exchanges % 2 != 0;
		}
		if (odd < EPOCHS / 2 - 50 || odd > EPOCHS / 2 + 50)
			fail_msg("%d of %d orders of %" PRIu64 " numbers are odd", odd, EPOCHS,
				 count);
	}
}

/* In a longer order the numbers of two places are independent, for neighbours and for places in one
 * column of the table; and no place keeps its number more often than by chance. */
static void test_pairs_are_independent(void **state)
{
	enum { EPOCHS = 10000, PARTS = 8, COUNT = 1000 };
	const uint64_t distances[] = {1, 2, 32, 500};

	for (size_t d = 0; d < sizeof distances / sizeof *distances; d++) {
		int cells[PARTS][PARTS] = {{0}}, kept = 0;
		double sum = 0, expected = (double)EPOCHS / (PARTS * PARTS);
		for (uint64_t e = 0; e < EPOCHS; e++) {
			uint64_t a = place(COUNT, 3, e, 7);
			uint64_t b = place(COUNT, 3, e, 7 + distances[d]);
			cells[a * PARTS / COUNT][b * PARTS / COUNT]++;
			kept += a == 7;
		}
		for (int i = 0; i < PARTS * PARTS; i++) {
			double off = cells[i / PARTS][i % PARTS] - expected;
			sum += off * off / expected;
		}
		if (sum > 63 + 5 * 11.2 || kept > 30)
			fail_msg("at distance %" PRIu64 ": %.1f instead of about 63, %d times kept",
				 distances[d], sum, kept);
	}
}

/* The orders themselves: a checkpoint must continue in the same order with another version of the
 * library. */
static void test_orders_stay(void **state)
{
	static const struct {
		uint64_t count, epoch, first[4];
	} orders[] = {
		{10, 0, {6, 7, 2, 8}},
		{1000, 1, {770, 940, 59, 223}},
		{((uint64_t)1 << 40) + 7,
		 2,
		 {1066561766696, 885740341065, 33456066258, 1015211744465}},
	};

	for (size_t o = 0; o < sizeof orders / sizeof *orders; o++)
		for (uint64_t i = 0; i < 4; i++)
			assert_int_equal(place(orders[o].count, 1, orders[o].epoch, i),
					 orders[o].first[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small_counts),
		cmocka_unit_test(test_counts_near_powers_and_squares),
		cmocka_unit_test(test_large_counts),
		cmocka_unit_test(test_all_orders_come),
		cmocka_unit_test(test_orders_are_odd_and_even),
		cmocka_unit_test(test_pairs_are_independent),
		cmocka_unit_test(test_orders_stay),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
