/* What would break: latencies that are not those of the calls, and barriers that are believed. */
#include "perf/stamps.h"

#include <stdint.h>
#include <string.h>

#include "tests/unit.h"

/* Calls of so many microseconds each. */
static struct percentiles percentiles_of(tutti_comm *comm, const unsigned *us, size_t n)
{
	struct latencies latencies;
	struct stamps stamps;
	struct percentiles p;

	assert_true(latencies_init(&latencies, n));
	for (size_t i = 0; i < n; i++) {
		stamps.enter[0] = 1000000 + i;
		stamps.leave[0] = stamps.enter[0] + (uint64_t)us[i] * 1000;
		latencies_add(&latencies, &stamps, 1);
	}
	assert_int_equal(latencies_combine(&latencies, comm, &p), TUTTI_OK);
	latencies_finish(&latencies);
	return p;
}

static void expect(struct percentiles p, double min, double p50, double p99, double max)
{
	assert_true(p.min == min && p.p50 == p50 && p.p99 == p99 && p.max == max);
}

static void so_many_of_a_hundred_are_not_longer(void **state)
{
	unsigned us[200];

	for (unsigned i = 0; i < 200; i++)
		us[i] = (i * 77) % 200 + 1; /* 1 to 200, in some order */
	expect(percentiles_of(*state, us, 200), 1, 100, 198, 200);
	for (unsigned i = 0; i < 200; i++)
		us[i] = i == 17 ? 5000 : 3;
	expect(percentiles_of(*state, us, 200), 3, 3, 3, 5000);
}

static void few_calls_have_percentiles_too(void **state)
{
	expect(percentiles_of(*state, (unsigned[]){7}, 1), 7, 7, 7, 7);
	expect(percentiles_of(*state, (unsigned[]){9, 5}, 2), 5, 5, 9, 9);
	expect(percentiles_of(*state, (unsigned[]){9, 5, 6}, 3), 5, 6, 9, 9);
}

/* Warm-ups beyond the room must not write past it. */
static void what_does_not_fit_is_left_out(void **state)
{
	struct latencies latencies;
	struct stamps stamps;

	(void)state;
	memset(&stamps, 0, sizeof stamps);
	assert_true(latencies_init(&latencies, 3));
	latencies_add(&latencies, &stamps, 2);
	latencies_add(&latencies, &stamps, STAMPS_MAX);
	assert_int_equal(latencies.count, 3);
	latencies_finish(&latencies);
}

static void a_call_that_was_left_before_it_was_entered_is_early(void **state)
{
	static struct stamps stamps;
	uint64_t early;

	for (size_t i = 0; i < STAMPS_MAX; i++) {
		stamps.enter[i] = 10 * i + 5;
		stamps.leave[i] = 10 * i + 7;
	}
	assert_int_equal(stamps_early(&stamps, STAMPS_MAX, *state, &early), TUTTI_OK);
	assert_int_equal(early, 0);
	stamps.leave[STAMPS_MAX - 1] = stamps.enter[STAMPS_MAX - 1] - 1;
	stamps.leave[0] = 0;
	assert_int_equal(stamps_early(&stamps, STAMPS_MAX, *state, &early), TUTTI_OK);
	assert_int_equal(early, 2);
}

static void the_clock_costs_something(void **state)
{
	(void)state;
	assert_true(stamps_clock_ns() > 0);
}

static int open_world(void **state)
{
	return tutti_init_all((tutti_comm **)state, 1, NULL) != TUTTI_OK;
}

static int close_world(void **state)
{
	tutti_comm_destroy(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(so_many_of_a_hundred_are_not_longer),
		cmocka_unit_test(few_calls_have_percentiles_too),
		cmocka_unit_test(what_does_not_fit_is_left_out),
		cmocka_unit_test(a_call_that_was_left_before_it_was_entered_is_early),
		cmocka_unit_test(the_clock_costs_something),
	};

	return cmocka_run_group_tests(tests, open_world, close_world);
}
