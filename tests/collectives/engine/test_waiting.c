/* Breaks when a thread that waits for a call of the window asks descriptors, when tests in a loop
 * keep the core, when works stay where they are because the helper expects a thread to wait for
 * them, when a call that is alone is lost, or when a thread still looks at a window that has gone.
 */
#include "collectives/comm/comm.h"
#include "collectives/engine/engine_internal.h"
#include "core/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS   2
#define TESTS   640
#define DESTROY 200

static _Thread_local int epolls, yields;

/* The C library's. */
int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
	epolls++;
	return (int)syscall(SYS_epoll_pwait, fd, events, max, timeout_ms, NULL, 8);
}

int sched_yield(void)
{
	yields++;
	return (int)syscall(SYS_sched_yield);
}

static tutti_comm *comms[RANKS];
static float value[RANKS];
static tutti_work *works[RANKS];

static int set_up(void **state)
{
	return tutti_init_all(comms, RANKS, NULL);
}

static int tear_down(void **state)
{
	for (int r = 0; r < RANKS; r++)
		tutti_comm_destroy(comms[r]);
	return 0;
}

static void submit(int rank)
{
	tutti_call call = {.work = &works[rank]};

	value[rank] = (float)rank + 1;
	assert_int_equal(tutti_all_reduce(&value[rank], &value[rank], 1, TUTTI_F32, TUTTI_SUM,
					  comms[rank], &call),
			 TUTTI_OK);
}

static void finish(void)
{
	for (int rank = 0; rank < RANKS; rank++) {
		assert_int_equal(tutti_work_wait(&works[rank], 0), TUTTI_OK);
		assert_true(value[rank] == 3);
	}
}

static void test_tests(void **state)
{
	int is_done = 0;

	if (!comms[0]->window)
		skip();
	submit(0);
	epolls = yields = 0;
	for (int i = 0; i < TESTS; i++) {
		assert_int_equal(tutti_work_test(works[0], &is_done), TUTTI_OK);
		assert_false(is_done);
	}
	assert_true(yields > 0);
	assert_in_range(epolls, 0, TESTS / 8);
	submit(1);
	finish();
}

/* "Asynchronous calls progress by themselves", also where a thread has waited for each before. */
static void test_nobody_waits(void **state)
{
	uint64_t deadline = deadline_after_ms(60000);

	for (int calls = 0; calls < 200; calls++) {
		submit(0);
		submit(1);
		finish();
	}
	for (int round = 0; round < 20; round++) {
		submit(0);
		submit(1);
		for (int rank = 0; rank < RANKS; rank++)
			while (!atomic_load(&works[rank]->is_done)) {
				assert_true(clock_now_ns() < deadline);
				sched_yield();
			}
		finish();
	}
}

/* work NULL: it blocks. By any thread. */
static void sum(int rank, float *x, tutti_work **work)
{
	tutti_call call = {.work = work};

	*x = (float)rank + 1;
	if (tutti_all_reduce(x, x, 1, TUTTI_F32, TUTTI_SUM, comms[rank], &call) != TUTTI_OK)
		abort();
}

/* More blocking calls follow one that is alone than the window has lines. */
static void *call_behind(void *arg)
{
	int rank = *(int *)arg;
	float x, y;
	tutti_work *work;

	for (int round = 0; round < 20; round++) {
		sum(rank, &x, &work);
		for (int i = 0; i < 40; i++) {
			sum(rank, &y, NULL);
			if (y != 3)
				abort();
		}
		if (tutti_work_wait(&work, 0) != TUTTI_OK || x != 3)
			abort();
	}
	return NULL;
}

static void test_calls_behind(void **state)
{
	int ranks[RANKS] = {0, 1};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, call_behind, &ranks[0]), 0);
	call_behind(&ranks[1]);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

/* Its handle is released, calls follow it, or the communicator fails, before it is anything but a
 * line. */
static void test_alone(void **state)
{
	float first[RANKS], second[RANKS];
	tutti_work *behind[RANKS];
	int alone = 0; /* the helper may come in between */

	if (!comms[0]->window)
		skip();
	for (int calls = 0; calls < 64; calls++) {
		submit(0);
		submit(1);
		finish();
	}
	for (int round = 0; round < 64; round++) {
		for (int rank = 0; rank < RANKS; rank++) {
			sum(rank, &first[rank], &works[rank]);
			alone += atomic_load(&comms[rank]->engine->works.alone) == works[rank];
			if (round % 2)
				tutti_work_release(&works[rank]);
			sum(rank, &second[rank], &behind[rank]);
		}
		for (int rank = 0; rank < RANKS; rank++) {
			assert_int_equal(tutti_work_wait(&behind[rank], 0), TUTTI_OK);
			assert_true(first[rank] == 3 && second[rank] == 3);
			if (round % 2 == 0)
				assert_int_equal(tutti_work_wait(&works[rank], 0), TUTTI_OK);
		}
	}
	assert_true(alone > 0);
	submit(0);
	tutti_comm_abort(comms[0]);
	assert_int_equal(tutti_work_wait(&works[0], 0), TUTTI_ERR_ABORTED);
}

static void *wait_for_0(void *arg)
{
	*(tutti_status *)arg = tutti_work_wait(&works[0], 0);
	return NULL;
}

static void test_destroy(void **state)
{
	for (int round = 0; round < DESTROY; round++) {
		tutti_status status = TUTTI_ERR_INTERNAL;
		pthread_t thread;

		set_up(NULL);
		submit(0);
		assert_int_equal(pthread_create(&thread, NULL, wait_for_0, &status), 0);
		for (int i = 0; i < round; i++)
			sched_yield();
		submit(1);
		assert_int_equal(tutti_work_wait(&works[1], 0), TUTTI_OK);
		tear_down(NULL);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(status, TUTTI_OK);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_tests, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nobody_waits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_calls_behind, set_up, tear_down),
		cmocka_unit_test(test_destroy),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
