/* Would break: threads that share a communicator. Two that issue calls at once must be told, with
 * nothing sent; everything else may be called from any thread at any time. */
#include "tests/limit.h"
#include <tutti/tutti.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static const char *const transports[] = {NULL, "shm", "tcp"};

static void open_two(tutti_comm **comms, const char *which)
{
	tutti_config config = {.transports = which, .timeout_ms = 40000};
	assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_OK);
}

static void *barrier(void *comm)
{
	return (void *)(intptr_t)tutti_barrier(comm, NULL);
}

static tutti_status joined(pthread_t thread)
{
	void *status;
	pthread_join(thread, &status);
	return (tutti_status)(intptr_t)status;
}

static void check_refused(tutti_status status, uint64_t sequence, tutti_comm *comm)
{
	assert_int_equal(status, TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "another thread"));
	assert_int_equal(tutti_comm_sequence(comm), sequence);
	assert_int_equal(tutti_comm_status(comm), TUTTI_OK);
}

/* While a thread waits in a call, others are refused, blocking or not; then all goes on. */
static void test_second_thread(void **state)
{
	for (int t = 0; t < 3; t++) {
		tutti_comm *comms[2];
		pthread_t inside, peer;
		float x = 1;
		tutti_work *work = NULL;
		tutti_call call = {.work = &work};

		open_two(comms, transports[t]);
		pthread_create(&inside, NULL, barrier, comms[0]);
		while (tutti_comm_sequence(comms[0]) < 1)
			sched_yield();
		check_refused(tutti_barrier(comms[0], NULL), 1, comms[0]);
		check_refused(tutti_all_reduce(&x, &x, 1, TUTTI_F32, TUTTI_SUM, comms[0], &call), 1,
			      comms[0]);
		assert_null(work);
		check_refused(tutti_send(&x, 1, TUTTI_F32, 1, comms[0], &call), 1, comms[0]);
		pthread_create(&peer, NULL, barrier, comms[1]);
		assert_int_equal(joined(inside), TUTTI_OK);
		assert_int_equal(joined(peer), TUTTI_OK);
		pthread_create(&peer, NULL, barrier, comms[1]);
		assert_int_equal(tutti_barrier(comms[0], NULL), TUTTI_OK);
		assert_int_equal(joined(peer), TUTTI_OK);
		tutti_comm_destroy(comms[0]);
		tutti_comm_destroy(comms[1]);
	}
}

struct from_callback {
	tutti_comm *comm;
	atomic_int is_done;
	tutti_status status;
	tutti_work *work;
};

static void issue(void *arg, tutti_status status)
{
	struct from_callback *f = arg;
	tutti_call call = {.work = &f->work};
	f->status = status == TUTTI_OK ? tutti_barrier(f->comm, &call) : status;
	atomic_store(&f->is_done, 1);
}

/* A callback counts as a thread: it may issue while the others wait for works, not while one is
 * inside a blocking call. */
static void test_callback(void **state)
{
	for (int blocks = 0; blocks < 2; blocks++) {
		tutti_comm *comms[2];
		pthread_t inside, peer;
		struct from_callback f = {0};
		tutti_call call = {.done = issue, .done_arg = &f};

		open_two(comms, NULL);
		f.comm = comms[0];
		assert_int_equal(tutti_barrier(comms[0], &call), TUTTI_OK);
		if (blocks) {
			pthread_create(&inside, NULL, barrier, comms[0]);
			while (tutti_comm_sequence(comms[0]) < 2)
				sched_yield();
		}
		for (int k = 0; k < 2; k++) {
			pthread_create(&peer, NULL, barrier, comms[1]);
			if (k == 0)
				while (!atomic_load(&f.is_done))
					sched_yield();
			assert_int_equal(joined(peer), TUTTI_OK);
		}
		assert_int_equal(f.status, blocks ? TUTTI_ERR_INVALID : TUTTI_OK);
		if (blocks)
			assert_int_equal(joined(inside), TUTTI_OK);
		else
			assert_int_equal(tutti_work_wait(&f.work, 0), TUTTI_OK);
		assert_int_equal(tutti_comm_status(comms[0]), TUTTI_OK);
		tutti_comm_destroy(comms[0]);
		tutti_comm_destroy(comms[1]);
	}
}

/* Two threads that contend for a communicator: every call is made once or refused, and none is
 * lost.
 */
struct contender {
	tutti_comm *comm;
	int made, others;
};

#define CONTENDED_CALLS 200

static void *contend(void *arg)
{
	struct contender *f = arg;
	while (f->made < CONTENDED_CALLS && f->others == 0) {
		tutti_work *work = NULL;
		tutti_call call = {.work = &work};
		tutti_status status = tutti_barrier(f->comm, f->made % 2 ? &call : NULL);
		if (status == TUTTI_OK)
			status = tutti_work_wait(&work, 0);
		f->made += status == TUTTI_OK;
		f->others += status != TUTTI_OK && status != TUTTI_ERR_INVALID;
		if (status == TUTTI_ERR_INVALID)
			sched_yield();
	}
	return NULL;
}

static void test_contention(void **state)
{
	for (int t = 0; t < 3; t++) {
		tutti_comm *comms[2];
		struct contender contenders[2];
		pthread_t threads[2];

		open_two(comms, transports[t]);
		for (int k = 0; k < 2; k++) {
			contenders[k] = (struct contender){.comm = comms[0]};
			pthread_create(&threads[k], NULL, contend, &contenders[k]);
		}
		for (int k = 0; k < 2 * CONTENDED_CALLS; k++)
			assert_int_equal(tutti_barrier(comms[1], NULL), TUTTI_OK);
		for (int k = 0; k < 2; k++) {
			pthread_join(threads[k], NULL);
			assert_int_equal(contenders[k].others, 0);
		}
		assert_int_equal(tutti_comm_sequence(comms[0]), 2 * CONTENDED_CALLS);
		tutti_comm_destroy(comms[0]);
		tutti_comm_destroy(comms[1]);
	}
}

#define WORKS 8

struct issuing {
	tutti_comm *comm;
	pthread_mutex_t lock; /* of the test's own list of works, not of the library's */
	tutti_work *works[WORKS];
	atomic_int is_over;
};

/* Asks whatever may be asked, and tests and releases works that another thread has issued. */
static void *ask(void *arg)
{
	struct issuing *c = arg;
	tutti_stats stats;
	int ranks[2], is_done;

	for (unsigned k = 0; !atomic_load(&c->is_over); k++) {
		tutti_comm_stats(c->comm, &stats);
		tutti_comm_failed(c->comm, ranks, 2);
		(void)tutti_comm_error(c->comm);
		(void)tutti_comm_status(c->comm);
		(void)tutti_comm_sequence(c->comm);
		pthread_mutex_lock(&c->lock);
		tutti_work **work = &c->works[k % WORKS];
		if (*work && k % 3 == 0)
			tutti_work_release(work);
		else if (*work && tutti_work_test(*work, &is_done) == TUTTI_OK && is_done)
			tutti_work_wait(work, 0);
		pthread_mutex_unlock(&c->lock);
	}
	return NULL;
}

static void *issue_many(void *arg)
{
	struct issuing *c = arg;
	tutti_status status = TUTTI_OK;

	for (unsigned k = 0; status == TUTTI_OK; k++) {
		tutti_work *work = NULL;
		tutti_call call = {.work = &work};
		status = tutti_barrier(c->comm, k % 5 ? &call : NULL);
		pthread_mutex_lock(&c->lock);
		tutti_work *old = c->works[k % WORKS];
		c->works[k % WORKS] = work;
		pthread_mutex_unlock(&c->lock);
		tutti_status waited = tutti_work_wait(&old, 0);
		status = status == TUTTI_OK ? waited : status;
	}
	return (void *)(intptr_t)status;
}

static void issue_around(const char *which)
{
	tutti_comm *comms[2];
	struct issuing groups[2] = {{0}};
	pthread_t issuers[2], askers[2];

	open_two(comms, which);
	for (int r = 0; r < 2; r++) {
		groups[r].comm = comms[r];
		pthread_mutex_init(&groups[r].lock, NULL);
		pthread_create(&issuers[r], NULL, issue_many, &groups[r]);
		pthread_create(&askers[r], NULL, ask, &groups[r]);
	}
	while (tutti_comm_sequence(comms[0]) < 300)
		sched_yield();
	assert_int_equal(tutti_comm_abort(comms[0]), TUTTI_OK);
	for (int r = 0; r < 2; r++) {
		tutti_status status = joined(issuers[r]);
		atomic_store(&groups[r].is_over, 1);
		pthread_join(askers[r], NULL);
		for (int k = 0; k < WORKS; k++)
			tutti_work_release(&groups[r].works[k]);
		if (status != TUTTI_ERR_ABORTED)
			fail_msg("rank %d: %s: %s", r, tutti_status_string(status),
				 tutti_comm_error(comms[r]));
	}
	for (int r = 0; r < 2; r++)
		tutti_comm_destroy(comms[r]);
}

static void test_oversubscribed(void **state)
{
	for (int t = 0; t < 3; t++)
		issue_around(transports[t]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_second_thread),
		cmocka_unit_test(test_callback),
		cmocka_unit_test(test_contention),
		cmocka_unit_test(test_oversubscribed),
	};
	test_limit(200);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
