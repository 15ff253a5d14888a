/* Without this an abort could go unnoticed by the other ranks, a failure could come without its
 * sentence, or a call that was refused could call back all the same. */
#include "collectives/comm.h"
#include "tests/memory/proof_kind.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static atomic_long rounds;

static void *call_until_failed(void *comm)
{
	tutti_status status;
	while ((status = tutti_barrier(comm, NULL)) == TUTTI_OK)
		atomic_fetch_add(&rounds, 1);
	return (void *)(intptr_t)status;
}

static tutti_status joined(pthread_t thread)
{
	void *status;
	pthread_join(thread, &status);
	return (tutti_status)(intptr_t)status;
}

/* Rank 0 is aborted while its call is about to end well; it makes no further call, and yet rank 1
 * must hear of it long before the deadline. */
static void abort_between_calls(const char *transports, long after)
{
	tutti_comm *comms[2];
	pthread_t threads[2];
	tutti_config config = {.transports = transports, .timeout_ms = 20000};

	assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_OK);
	atomic_store(&rounds, 0);
	for (int r = 0; r < 2; r++)
		pthread_create(&threads[r], NULL, call_until_failed, comms[r]);
	while (atomic_load(&rounds) < after)
		sched_yield();
	assert_int_equal(tutti_comm_abort(comms[0]), TUTTI_OK);
	assert_int_equal(joined(threads[0]), TUTTI_ERR_ABORTED);
	tutti_status status = joined(threads[1]);
	if (status != TUTTI_ERR_PEER && status != TUTTI_ERR_ABORTED)
		fail_msg("rank 1 heard nothing of rank 0's abort: %s", tutti_comm_error(comms[1]));
	for (int r = 0; r < 2; r++)
		tutti_comm_destroy(comms[r]);
}

static void test_abort(void **state)
{
	(void)state;
	for (long k = 0; k < 30; k++) {
		abort_between_calls(NULL, 40 + 7 * k);
		abort_between_calls("shm", 4 + k);
		if (k % 5 == 0)
			abort_between_calls("tcp", 4 + k);
	}
}

/* Whoever gets a failure from a wait, or a test, can ask for its sentence without the communicator.
 */
static void test_sentences(void **state)
{
	tutti_comm *comms[2];
	tutti_work *work = NULL, *other = NULL;
	tutti_call call = {.work = &work}, again = {.work = &other};
	int is_done = 0;
	(void)state;

	assert_int_equal(tutti_init_all(comms, 2, NULL), TUTTI_OK);
	assert_int_equal(tutti_barrier(comms[0], &call), TUTTI_OK);
	assert_int_equal(tutti_barrier(comms[0], &again), TUTTI_OK);
	assert_int_equal(tutti_comm_abort(comms[0]), TUTTI_OK);
	assert_int_equal(tutti_work_wait(&work, 0), TUTTI_ERR_ABORTED);
	assert_non_null(strstr(tutti_comm_error(NULL), "abort was called on rank 0"));
	assert_int_equal(tutti_work_wait(&work, 0), TUTTI_OK); /* the next call forgets */
	assert_string_equal(tutti_comm_error(NULL), "");
	tutti_comm_destroy(comms[0]);
	assert_int_equal(tutti_work_test(other, &is_done), TUTTI_ERR_ABORTED);
	assert_true(is_done);
	assert_non_null(strstr(tutti_comm_error(NULL), "abort was called on rank 0"));
	tutti_work_release(&other);
	tutti_comm_destroy(comms[1]);
}

static void count_calls(void *arg, tutti_status status)
{
	(void)status;
	atomic_fetch_add((atomic_int *)arg, 1);
}

/* There is no memory for this call: its error is the return value, so done stays uncalled. */
static void test_refused(void **state)
{
	tutti_comm *comms[2];
	atomic_int calls = 0;
	tutti_call call = {.done = count_calls, .done_arg = &calls};
	(void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return; /* their malloc ends the process instead of failing; nothing else is tried here */
#endif
	assert_int_equal(proof_kind_use(20261120), TUTTI_OK);
	assert_int_equal(tutti_init_all(comms, 2, NULL), TUTTI_OK);
	void *proof = proof_alloc(64);
	if (comms[0]->window) {
		size_t bytes = (size_t)1 << 60;
		assert_int_equal(
			tutti_all_reduce(proof, proof, bytes, TUTTI_U8, TUTTI_SUM, comms[0], &call),
			TUTTI_ERR_MEMORY);
		assert_int_equal(tutti_comm_status(comms[0]), TUTTI_ERR_MEMORY);
	}
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
	assert_int_equal(atomic_load(&calls), 0);
	proof_free(proof);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_abort),
		cmocka_unit_test(test_sentences),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
