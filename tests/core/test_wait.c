/* Breaks when a waiting thread never gets to sleep, when spins are not counted in time, when
 * oversubscribed threads spin, or a thread gives the CPU to another program again and again. */
#include "core/wait.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit.h"

#define MS 1000000u

static int yields;
static uint64_t now_ns, look_ns, yield_ns; /* what a look at the clock and a yield last */

/* The C library's. */
int sched_yield(void)
{
	yields++;
	now_ns += yield_ns;
	return 0;
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	now_ns += look_ns;
	*t = (struct timespec){.tv_sec = (time_t)(now_ns / 1000000000u),
			       .tv_nsec = (long)(now_ns % 1000000000u)};
	return 0;
}

static int set_up(void **state)
{
	now_ns += 1000 * MS; /* nothing of the last test counts any more */
	look_ns = yield_ns = 300;
	yields = 0;
	return 0;
}

static int looks_until_sleep(struct wait *w, bool is_near)
{
	int looks = 0;

	while (wait_again_for(w, is_near))
		looks++;
	return looks;
}

/* However long a look is. */
static void spins_take_a_time(void **state)
{
	struct wait w;
	uint64_t began;

	for (look_ns = 10; look_ns <= 10000; look_ns *= 10) {
		wait_begin(&w, (struct wait_policy){.spin_ns = 1 * MS});
		began = now_ns;
		assert_true(looks_until_sleep(&w, false) > 0);
		assert_in_range(now_ns - began, 1 * MS, 1 * MS + 2 * look_ns);
		/* Once it is time to sleep it stays so until the next wait. */
		assert_false(wait_again_for(&w, false));
	}
	assert_int_equal(yields, 0);
	wait_begin(&w, w.policy);
	assert_true(wait_again_for(&w, false));
}

static void yields_follow_spins(void **state)
{
	struct wait w;

	wait_begin(&w, (struct wait_policy){.spin_ns = 1, .yields = 5});
	looks_until_sleep(&w, false);
	assert_int_equal(yields, 5);
}

/* Another program had its turn: no yield for a while, also in other waits of the thread. */
static void a_long_yield_is_the_last(void **state)
{
	struct wait_policy policy = {.spin_ns = 1, .yields = 100};
	struct wait w;

	yield_ns = 3 * MS;
	for (int wait = 0; wait < 3; wait++) {
		wait_begin(&w, policy);
		looks_until_sleep(&w, false);
		assert_int_equal(yields, 1);
	}
	now_ns += 100 * MS;
	yield_ns = 300;
	wait_begin(&w, policy);
	looks_until_sleep(&w, false);
	assert_int_equal(yields, 101);
}

static void one_wait_of_oversubscribed_threads(void)
{
	struct wait w;

	wait_begin(&w, (struct wait_policy){.yields = 20, .shares_cores = true});
	looks_until_sleep(&w, true);
}

/* Also with more threads than cores, where the others' turns are shorter than another program's. */
static void oversubscribed_threads_sleep_beside_others(void **state)
{
	yield_ns = 1 * MS;
	one_wait_of_oversubscribed_threads();
	assert_int_equal(yields, 20);
	yield_ns = 3 * MS;
	yields = 0;
	for (int wait = 0; wait < 3; wait++)
		one_wait_of_oversubscribed_threads();
	assert_in_range(yields, 1, 8);
	now_ns += 3 * MS;
	yield_ns = 300;
	yields = 0;
	one_wait_of_oversubscribed_threads();
	assert_int_equal(yields, 20);
}

/* A program that stays has a turn now and then, and one that went away is forgotten. */
static void a_program_that_stays_has_few_turns(void **state)
{
	uint64_t began = now_ns;

	yield_ns = 3 * MS;
	for (; now_ns - began < 1000 * MS; now_ns += 1 * MS)
		one_wait_of_oversubscribed_threads();
	assert_in_range(yields, 15, 40);
	now_ns += 1000 * MS;
	yields = 0;
	one_wait_of_oversubscribed_threads();
	now_ns += 4 * MS;
	one_wait_of_oversubscribed_threads();
	assert_int_equal(yields, 2);
}

/* With more threads than cores: it spins before each yield, and then sleeps. */
static void apart_a_yield_comes_late(void **state)
{
	struct wait w;
	uint64_t began = now_ns;

	wait_begin(&w, (struct wait_policy){.spin_ns = 1 * MS, .yields = 2, .shares_cores = true});
	assert_true(looks_until_sleep(&w, false) > 2);
	assert_int_equal(yields, 2);
	assert_true(now_ns - began >= 3 * MS);
}

/* A thread that comes to wait for a neighbour gives way at once. */
static void near_a_yield_comes_at_once(void **state)
{
	struct wait w;

	for (int shares = 0; shares < 2; shares++) {
		yields = 0;
		wait_begin(&w, (struct wait_policy){
				       .spin_ns = 1 * MS, .yields = 2, .shares_cores = shares});
		assert_true(wait_again_for(&w, false));
		assert_true(wait_again_for(&w, true));
		assert_int_equal(yields, 1);
		assert_true(wait_again_for(&w, true));
		assert_false(wait_again_for(&w, true));
		assert_int_equal(yields, 2);
	}
}

static void oversubscribed_threads_yield_at_once(void **state)
{
	struct wait_policy alone = wait_policy_on(1, wait_cores());
	struct wait_policy oversubscribed = wait_policy_on(1 << 20, wait_cores());
	struct wait w;

	assert_false(alone.shares_cores);
	assert_in_range(alone.spin_ns, 1000, 100000);
	assert_true(oversubscribed.shares_cores);
	assert_in_range(oversubscribed.yields, 1, 100);
	wait_begin(&w, oversubscribed);
	assert_true(wait_again(&w));
	assert_int_equal(yields, 1);
	wait_begin(&w, alone);
	assert_true(wait_again(&w));
	assert_int_equal(yields, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(spins_take_a_time, set_up),
		cmocka_unit_test_setup(yields_follow_spins, set_up),
		cmocka_unit_test_setup(a_long_yield_is_the_last, set_up),
		cmocka_unit_test_setup(oversubscribed_threads_sleep_beside_others, set_up),
		cmocka_unit_test_setup(a_program_that_stays_has_few_turns, set_up),
		cmocka_unit_test_setup(apart_a_yield_comes_late, set_up),
		cmocka_unit_test_setup(near_a_yield_comes_at_once, set_up),
		cmocka_unit_test_setup(oversubscribed_threads_yield_at_once, set_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
