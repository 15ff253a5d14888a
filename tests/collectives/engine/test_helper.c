/* Without this the helper thread and a destroy could wait for each other, a thread that slept could
 * leave the window's doorbell armed for good, or a call of a world of one could start a thread. */
#include "collectives/comm/comm.h"
#include "collectives/control/control_internal.h"
#include "collectives/engine/helper.h"
#include "collectives/engine/run.h"
#include "collectives/window/window_internal.h"
#include "tests/threads.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "tests/unit.h"

struct late {
	tutti_comm *other;
	float value;
	atomic_int is_inside, may_go_on, calls;
	tutti_status status;
};

static void called_at_last(void *arg, tutti_status status)
{
	struct late *late = arg;
	late->status = status;
	atomic_fetch_add(&late->calls, 1);
}

/* The first asynchronous call of the other communicator, made while destroy waits for this
 * callback. */
static void call_the_other(void *arg, tutti_status status)
{
	struct late *late = arg;
	tutti_call call = {.done = called_at_last, .done_arg = late};
	(void)status;
	atomic_store(&late->is_inside, 1);
	while (!atomic_load(&late->may_go_on))
		sched_yield();
	for (int looks = 0; looks < 2000; looks++)
		sched_yield(); /* destroy gets to where it waits */
	late->status = tutti_all_reduce(&late->value, &late->value, 1, TUTTI_F32, TUTTI_SUM,
					late->other, &call);
}

static void test_callback_during_destroy(void **state)
{
	tutti_comm *comm;
	struct late late = {.value = 3};
	tutti_call call = {.done = call_the_other, .done_arg = &late};

	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	assert_int_equal(tutti_init_all(&late.other, 1, NULL), TUTTI_OK);
	assert_int_equal(tutti_barrier(comm, &call), TUTTI_OK);
	while (!atomic_load(&late.is_inside))
		sched_yield();
	atomic_store(&late.may_go_on, 1);
	tutti_comm_destroy(comm);
	tutti_comm_destroy(late.other);
	assert_int_equal(atomic_load(&late.calls), 1);
	assert_int_equal(late.status, TUTTI_OK);
}

/* ---- the doorbell
 * ---------------------------------------------------------------------------------
 */

/* Rank 0's thread and the helper both sleep on the same window; then nobody does, and nobody may be
 * counted as asleep: every post of every rank would look for whom to wake. */
static void test_doorbell_fd(void **state)
{
	tutti_comm *comms[2];
	float x[2] = {1, 2};

	assert_int_equal(tutti_init_all(comms, 2, NULL), TUTTI_OK);
	for (int round = 0; comms[0]->window && round < 10; round++) {
		tutti_work *work[2] = {0};
		tutti_call call[2] = {{.work = &work[0]}, {.work = &work[1]}};
		assert_int_equal(
			tutti_all_reduce(&x[0], &x[0], 1, TUTTI_F32, TUTTI_SUM, comms[0], &call[0]),
			TUTTI_OK);
		assert_int_equal(tutti_work_wait(&work[0], 30), TUTTI_IN_PROGRESS);
		assert_int_equal(
			tutti_all_reduce(&x[1], &x[1], 1, TUTTI_F32, TUTTI_SUM, comms[1], &call[1]),
			TUTTI_OK);
		for (int r = 0; r < 2; r++)
			assert_int_equal(tutti_work_wait(&work[r], 0), TUTTI_OK);
		assert_int_equal(atomic_load(&comms[0]->window->at.head->sleepers), 0);
	}
	for (int r = 0; r < 2; r++)
		tutti_comm_destroy(comms[r]);
}

static struct control_kind busy;
static atomic_int visits;

static void last_a_while(struct control *control)
{
	(void)control;
	atomic_fetch_add(&visits, 1);
	poll(NULL, 0, 600);
}

static int be_due_at_once(struct control *control, struct pollfd *fd, int *timeout_ms)
{
	(void)control;
	(void)fd;
	(void)timeout_ms;
	return -1;
}

static void destroy_while_busy(void)
{
	tutti_comm *comms[2];

	assert_int_equal(tutti_init_all(comms, 2, &(tutti_config){.timeout_ms = 1000}), TUTTI_OK);
	struct engine *e = comms[0]->engine;
	busy = *e->config.control->kind;
	busy.progress = last_a_while;
	busy.arm = be_due_at_once;
	e->config.control->kind = &busy;
	assert_int_equal(helper_attach(e), TUTTI_OK);
	atomic_store(&visits, 0);
	helper_wake();
	while (atomic_load(&visits) == 0)
		sched_yield();
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

/* The helper begins one visit right after the other, as where a sandbox denies epoll_ctl and a
 * transport cannot be slept on. Destroy gets its turn all the same. Twice, since a helper that does
 * not let it may still lose a race. */
static void test_destroy_of_a_busy_control(void **state)
{
	int before = threads_alive();

	for (int round = 0; round < 2; round++) {
		destroy_while_busy();
		assert_int_equal(threads_alive(), before);
	}
}

/* There is nothing to wait for in a world of one, and nothing to help with. */
static void test_alone(void **state)
{
	tutti_comm *comm;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	float x = 3, y = 0;
	int before = threads_alive(), is_done = 0;

	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	assert_int_equal(tutti_all_reduce(&x, &y, 1, TUTTI_F32, TUTTI_SUM, comm, &call), TUTTI_OK);
	assert_int_equal(tutti_work_test(work, &is_done), TUTTI_OK);
	assert_true(is_done && y == 3);
	assert_int_equal(threads_alive(), before);
	tutti_work_release(&work);
	tutti_comm_destroy(comm);
}

/* As many ranks as cores may spin; their helper threads are more threads than cores and may not. */
static void test_helpers_count(void **state)
{
	tutti_comm *comms[64];
	cpu_set_t cores;
	assert_int_equal(sched_getaffinity(0, sizeof cores, &cores), 0);
	int n = CPU_COUNT(&cores) < 64 ? CPU_COUNT(&cores) : 64;
	assert_int_equal(tutti_init_all(comms, n, NULL), TUTTI_OK);
	for (int r = 0; r < n; r++) {
		const struct engine_config *config = &comms[r]->engine->config;
		assert_false(config->policy.shares_cores);
		if (CPU_COUNT(&cores) <= 64)
			assert_true(config->helper_policy.shares_cores);
	}
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[r]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alone),
		cmocka_unit_test(test_callback_during_destroy),
		cmocka_unit_test(test_destroy_of_a_busy_control),
		cmocka_unit_test(test_doorbell_fd),
		cmocka_unit_test(test_helpers_count),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
