/* Breaks when a waiting thread never gets to sleep, or when crowded threads spin. */
#include "core/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static void looks_are_counted(void **state)
{
	struct wait w;
	int looks = 0;

	(void)state;
	wait_begin(&w, (struct wait_policy){3, 2});
	while (wait_again(&w))
		looks++;
	assert_int_equal(looks, 5);
	/* Once it is time to sleep it stays so until the next wait. */
	assert_false(wait_again(&w));
	wait_begin(&w, w.policy);
	assert_true(wait_again(&w));
}

static void crowded_threads_do_not_spin(void **state)
{
	struct wait_policy alone = wait_policy_for(1);
	struct wait_policy crowded = wait_policy_for(1 << 20);

	(void)state;
	assert_true(alone.spins >= 100);
	assert_int_equal(crowded.spins, 0);
	assert_in_range(crowded.yields, 1, 100);
}

static void largest_policy_does_not_wrap(void **state)
{
	struct wait w;

	(void)state;
	wait_begin(&w, (struct wait_policy){UINT32_MAX, UINT32_MAX});
	w.looks = UINT32_MAX;
	assert_true(wait_again(&w));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(looks_are_counted),
		cmocka_unit_test(crowded_threads_do_not_spin),
		cmocka_unit_test(largest_policy_does_not_wrap),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
