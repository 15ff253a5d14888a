/* Would break: the doorbell, by which a thread that sleeps on descriptors hears of what others
 * post. Each test says which line of the window, changed, makes it fail. */
#include "window_team.h"

#include "collectives/window/window_internal.h"
#include "tests/limit.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "tests/unit.h"

static tutti_status advance(struct window *window, struct window_run *run)
{
	bool moved;
	return window_advance(window, run, &moved);
}

struct late {
	struct window *window;
	struct window_run run;
	struct call_args args;
	atomic_int ready;
	tutti_status status;
};

static void *ring_later(void *arg)
{
	struct late *s = arg;

	while (!atomic_load(&s->ready))
		sched_yield();
	window_begin(s->window, &s->run, &s->args);
	while ((s->status = advance(s->window, &s->run)) == TUTTI_IN_PROGRESS)
		sched_yield();
	return NULL;
}

/* Killed: wake() without its write to the event fd; window_arm without counting itself
 * (doorbell_enter); window_arm without its last look. */
static void test_doorbell(void **state)
{
	struct team team = {.size = 2};
	struct window *windows[2];

	test_limit(100);
	team_open(&team, windows);
	for (int round = 0; round < 2000; round++) {
		struct late s = {.window = windows[1],
				 .args = {.collective = COLL_BARRIER, .fingerprint = 9}};
		struct pollfd fd = {window_event_fd(windows[0]), POLLIN, 0};
		struct window_run run;
		pthread_t thread;
		assert_int_equal(pthread_create(&thread, NULL, ring_later, &s), 0);
		window_begin(windows[0], &run, &s.args);
		/* Even rounds: the post comes after we are armed. Odd ones: whenever it likes. */
		if (round % 2)
			atomic_store(&s.ready, 1);
		if (!window_arm(windows[0], &run)) {
			atomic_store(&s.ready, 1);
			assert_int_equal(poll(&fd, 1, 20000), 1);
			window_disarm(windows[0]);
		}
		while (advance(windows[0], &run) == TUTTI_IN_PROGRESS)
			sched_yield();
		pthread_join(thread, NULL);
		assert_int_equal(s.status, TUTTI_OK);
	}
	assert_int_equal(atomic_load(&windows[0]->at.head->sleepers), 0);
	team_close(windows, 2);
	test_limit(0);
}

/* What came before window_arm is there; after window_disarm the descriptor is quiet again. Killed:
 * window_arm without its last look. */
static void test_doorbell_is_quiet(void **state)
{
	struct team team = {.size = 2};
	struct window *windows[2];
	struct call_args args = {.collective = COLL_BARRIER, .fingerprint = 9};
	struct window_run run, other;
	struct pollfd fd;

	team_open(&team, windows);
	fd = (struct pollfd){window_event_fd(windows[0]), POLLIN, 0};
	window_begin(windows[0], &run, &args);
	assert_false(window_arm(windows[0], &run));
	assert_int_equal(poll(&fd, 1, 0), 0);
	window_begin(windows[1], &other, &args);
	assert_int_equal(poll(&fd, 1, 0), 1);
	window_disarm(windows[0]);
	assert_int_equal(poll(&fd, 1, 0), 0);
	assert_int_equal(advance(windows[0], &run), TUTTI_OK);
	assert_int_equal(advance(windows[1], &other), TUTTI_OK);
	window_begin(windows[1], &other, &args);
	window_begin(windows[0], &run, &args);
	assert_true(window_arm(windows[0], &run));
	assert_int_equal(atomic_load(&windows[0]->at.head->sleepers), 0);
	team_close(windows, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_doorbell),
		cmocka_unit_test(test_doorbell_is_quiet),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
