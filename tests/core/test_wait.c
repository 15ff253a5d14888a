/* Breaks when a waiting thread never gets to sleep, when oversubscribed threads spin, or give the
 * CPU away for nobody. */
#include "core/wait.h"

#include <sched.h>
#include <stdlib.h>

#include "tests/unit.h"

static int yields;

/* The C library's. */
int sched_yield(void)
{
	yields++;
	return 0;
}

static void looks_are_counted(void **state)
{
	struct wait w;
	int looks = 0;

	(void)state;
	wait_begin(&w, (struct wait_policy){.spins = 3, .yields = 2});
	while (wait_again(&w))
		looks++;
	assert_int_equal(looks, 5);
	/* Once it is time to sleep it stays so until the next wait. */
	assert_false(wait_again(&w));
	wait_begin(&w, w.policy);
	assert_true(wait_again(&w));
}

/* Each yield only after so many looks, and then sleep, however long the spins were. */
static void apart_a_yield_comes_late(void **state)
{
	struct wait w;

	(void)state;
	yields = 0;
	wait_begin(&w, (struct wait_policy){.yields = 2, .apart = 5});
	for (int look = 1; look <= 12; look++) {
		assert_true(wait_again_apart(&w));
		assert_int_equal(yields, look / 6);
	}
	for (int look = 0; look < 5; look++)
		assert_true(wait_again_apart(&w));
	assert_false(wait_again_apart(&w));
	assert_int_equal(yields, 2);
}

/* A thread that comes to wait for a neighbour gives way at once. */
static void near_a_yield_comes_at_once(void **state)
{
	struct wait w;

	(void)state;
	yields = 0;
	wait_begin(&w, (struct wait_policy){.yields = 2, .apart = 5});
	assert_true(wait_again_apart(&w));
	assert_true(wait_again(&w));
	assert_int_equal(yields, 1);
	assert_true(wait_again(&w));
	assert_false(wait_again(&w));
	assert_int_equal(yields, 2);
}

static void oversubscribed_threads_do_not_spin(void **state)
{
	struct wait_policy alone = wait_policy_on(1, wait_cores());
	struct wait_policy oversubscribed = wait_policy_on(1 << 20, wait_cores());

	(void)state;
	assert_true(alone.spins >= 100);
	assert_int_equal(alone.apart, 0);
	assert_int_equal(oversubscribed.spins, 0);
	assert_in_range(oversubscribed.yields, 1, 100);
	assert_in_range(oversubscribed.apart, 1, 1000);
}

static void largest_policy_does_not_wrap(void **state)
{
	struct wait w;

	(void)state;
	wait_begin(&w, (struct wait_policy){.spins = UINT32_MAX, .yields = UINT32_MAX});
	w.looks = UINT32_MAX;
	assert_true(wait_again(&w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(looks_are_counted),
		cmocka_unit_test(apart_a_yield_comes_late),
		cmocka_unit_test(near_a_yield_comes_at_once),
		cmocka_unit_test(oversubscribed_threads_do_not_spin),
		cmocka_unit_test(largest_policy_does_not_wrap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
