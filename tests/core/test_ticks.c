/* What would break: times in a trace. Ticks that do not become the time they were read at, or
 * numbers from a damaged page that are undefined to convert. */
#include "core/ticks.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

static void test_here(void **state)
{
	enum ticks_kind kind = ticks_kind_here();
	struct ticks_moment first = ticks_moment(kind), second;
	uint64_t before, ticks, after;
	do /* some time, so that what a tick is worth can be told */
		second = ticks_moment(kind);
	while (second.monotonic_ns - first.monotonic_ns < 2000000);
	before = clock_now_ns();
	ticks = ticks_now(kind);
	after = clock_now_ns();
	second = ticks_moment(kind);
	uint64_t ns = ticks_to_ns(&first, &second, ticks);
	printf("kind %d: %llu ns after before, %llu ns before after\n", (int)kind,
	       (unsigned long long)(ns - before), (unsigned long long)(after - ns));
	/* A look may be interrupted in between, which moves a moment by as much. */
	assert_true(ns + 50000 > before && ns < after + 50000);
}

static void test_line(void **state)
{
	struct ticks_moment a = {1000, 5000, 0}, b = {2000, 5500, 0};
	assert_int_equal(ticks_to_ns(&a, &b, 1000), 5000);
	assert_int_equal(ticks_to_ns(&a, &b, 2000), 5500);
	assert_int_equal(ticks_to_ns(&a, &b, 4000), 6500);
	assert_int_equal(ticks_to_ns(&a, &b, 0), 4500);
}

static uint64_t next(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

static void test_any_numbers(void **state)
{
	const char *given = getenv("SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : 20261122, x = seed | 1;
	printf("seed %llu\n", (unsigned long long)seed);
	for (int i = 0; i < 200000; i++) {
		int shift = (int)(next(&x) % 64);
		struct ticks_moment a = {next(&x) >> shift, next(&x), next(&x)};
		struct ticks_moment b = {next(&x) >> shift, next(&x), next(&x)};
		assert_true(ticks_to_ns(&a, &b, next(&x)) <= UINT64_C(1) << 62);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_here),
		cmocka_unit_test(test_line),
		cmocka_unit_test(test_any_numbers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
