/* Without this an abort could go unnoticed by the other ranks, a failure could come without its
 * message, or a call that was refused could call back all the same. */
#include "collectives/comm/comm.h"
#include "collectives/comm/join.h"
#include "collectives/control/control_internal.h"
#include "collectives/engine/engine_internal.h"
#include "tests/core/memory/proof_kind.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

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
	for (long k = 0; k < 30; k++) {
		abort_between_calls(NULL, 40 + 7 * k);
		abort_between_calls("shm", 4 + k);
		if (k % 5 == 0)
			abort_between_calls("tcp", 4 + k);
	}
}

static void assert_says(const tutti_comm *comm, const char *words)
{
	if (!strstr(tutti_comm_error(comm), words))
		fail_msg("not '%s' but: %s", words, tutti_comm_error(comm));
}

/* Rank 1 makes no call, so rank 0's call fails: one text for all ways to wait, and for rank 1.
 * False if rank 0 had no answer, about who is missing, before its deadline. */
static bool time_out(const char *transports, bool is_async, int timeout_ms)
{
	tutti_comm *comms[2];
	tutti_work *work = NULL;
	tutti_call call = {.work = is_async ? &work : NULL, .timeout_ms = timeout_ms};
	tutti_config config = {.transports = transports};
	tutti_status status;
	char waited[64];

	assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_OK);
	status = tutti_barrier(comms[0], &call);
	if (status == TUTTI_OK)
		status = tutti_work_wait(&work, 0);
	assert_int_equal(status, TUTTI_ERR_TIMEOUT);
	assert_says(comms[0], "rank 0: barrier #0 (");
	snprintf(waited, sizeof waited, "): waited %d ms for rank 1; ", timeout_ms);
	assert_says(comms[0], waited);
	bool is_answered = strstr(tutti_comm_error(comms[0]), "; not in this call: ") != NULL;
	if (is_answered)
		assert_says(comms[0], "; not in this call: rank 1. TUTTI_TIMEOUT_MS sets how long");
	/* The first ends well if rank 0's message for it comes before the news of the failure. */
	status = tutti_barrier(comms[1], NULL);
	if (status == TUTTI_OK)
		status = tutti_barrier(comms[1], NULL);
	/* Rank 0 has not failed: it was not late. */
	assert_int_equal(status, TUTTI_ERR_TIMEOUT);
	assert_string_equal(tutti_comm_error(comms[1]), tutti_comm_error(comms[0]));
	for (int r = 0; r < 2; r++)
		tutti_comm_destroy(comms[r]);
	return is_answered;
}

/* Over TCP the other rank has half of the timeout to answer, which a loaded machine may not give
 * it: the timeout grows until it does. */
static void time_out_answered(const char *transports, bool is_async)
{
	for (int timeout_ms = 50; !time_out(transports, is_async, timeout_ms); timeout_ms *= 4)
		if (timeout_ms > 100000)
			fail_msg("no answer from rank 1 in %d ms", timeout_ms / 2);
}

static void test_timeout(void **state)
{
	for (int is_async = 0; is_async < 2; is_async++) {
		time_out_answered(NULL, is_async);
		time_out_answered("shm", is_async);
		time_out_answered("tcp", is_async);
	}
}

/* A thread that gets a failure from a wait, or a test, can ask for its message without the
 * communicator. */
static void test_messages(void **state)
{
	tutti_comm *comms[2];
	tutti_work *work = NULL, *other = NULL;
	tutti_call call = {.work = &work}, again = {.work = &other};
	int is_done = 0;

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

/* ---- failure while calls are in flight --------------------------------------------------------
 */

#define CALLER_RANKS 3
#define CALLER_WORKS 24

struct caller {
	tutti_comm *comm;
	uint64_t seed;
	tutti_work *late[4]; /* looked at only after destroy */
	atomic_int called, issued;
	tutti_status status;
};

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

static void note_call(void *arg, tutti_status status)
{
	(void)status;
	atomic_fetch_add((atomic_int *)arg, 1);
}

/* Asynchronous calls on memory that is freed as soon as their wait has returned, well or not. */
static tutti_status call_round(struct caller *f, const uint32_t *counts)
{
	tutti_work *work[CALLER_WORKS] = {0};
	float *buf[CALLER_WORKS];
	tutti_status status = TUTTI_OK;
	int n = 0;

	for (; n < CALLER_WORKS && status == TUTTI_OK; n++) {
		bool blocks = n % 7 == 6, calls = !blocks && n % 3 == 0;
		tutti_call call = {
			.work = &work[n], .done = calls ? note_call : NULL, .done_arg = &f->called};
		buf[n] = calloc(counts[n] + 1, sizeof(float));
		status = tutti_all_reduce(buf[n], buf[n], counts[n], TUTTI_F32, TUTTI_SUM, f->comm,
					  blocks ? NULL : &call);
		if (calls && status == TUTTI_OK)
			atomic_fetch_add(&f->issued, 1);
	}
	for (int k = n - 1; k >= 0; k--) {
		tutti_status waited = tutti_work_wait(&work[k], 0);
		status = status == TUTTI_OK ? waited : status;
		free(buf[k]);
	}
	return status;
}

static void *make_calls(void *arg)
{
	struct caller *f = arg;
	uint64_t seed = f->seed;
	while (f->status == TUTTI_OK) {
		uint32_t counts[CALLER_WORKS];
		for (int n = 0; n < CALLER_WORKS; n++)
			counts[n] = next_random(&seed) % (n % 5 ? 3000 : 70000);
		f->status = call_round(f, counts);
	}
	for (int k = 0; k < 4; k++) { /* calls of a failed communicator hand out nothing */
		tutti_call call = {.work = &f->late[k]};
		if (tutti_barrier(f->comm, &call) != f->status || f->late[k])
			f->status = TUTTI_ERR_INTERNAL;
	}
	return NULL;
}

static void crash_one(const char *transports, uint64_t seed)
{
	tutti_comm *comms[CALLER_RANKS];
	struct caller callers[CALLER_RANKS] = {{0}};
	pthread_t threads[CALLER_RANKS];
	tutti_config config = {.transports = transports, .timeout_ms = 20000};
	int victim = (int)(seed % CALLER_RANKS);

	assert_int_equal(tutti_init_all(comms, CALLER_RANKS, &config), TUTTI_OK);
	for (int r = 0; r < CALLER_RANKS; r++) {
		callers[r].comm = comms[r];
		callers[r].seed = seed;
		pthread_create(&threads[r], NULL, make_calls, &callers[r]);
	}
	/* Over tcp a peer that never had a connection to the aborted rank hears of it late. */
	uint64_t after = 2 * CALLER_WORKS + next_random(&seed) % 100;
	while (tutti_comm_sequence(comms[victim]) < after)
		sched_yield();
	tutti_comm_abort(comms[victim]);
	for (int r = 0; r < CALLER_RANKS; r++)
		pthread_join(threads[r], NULL);
	for (int r = 0; r < CALLER_RANKS; r++)
		tutti_comm_destroy(comms[r]);
	for (int r = 0; r < CALLER_RANKS; r++) {
		tutti_status status = callers[r].status;
		if (status != TUTTI_ERR_ABORTED && (r == victim || status != TUTTI_ERR_PEER))
			fail_msg("rank %d, and %d was aborted: %s", r, victim,
				 tutti_status_string(status));
		assert_int_equal(atomic_load(&callers[r].called), atomic_load(&callers[r].issued));
	}
}

static void test_flight(void **state)
{
	static const char *const transports[] = {"tcp", "shm", NULL};
	for (uint64_t round = 0; round < 24; round++) {
		uint64_t seed = 20261120 + round;
		print_message("seed %llu\n", (unsigned long long)seed);
#if defined(__SANITIZE_THREAD__)
		if (round % 3 == 0) /* it takes tcp's recv(NULL, MSG_TRUNC) for a write to NULL */
			continue;
#endif
		crash_one(transports[round % 3], seed);
	}
}

/* ---- calls that may still end well -------------------------------------------------------- */

static const struct control_kind *told_kind;
static int told_pending;

static void note_told(struct control *control, const struct failure *failure, int pending)
{
	told_pending = pending;
	(told_kind->fail)(control, failure, pending); /* cmocka has a macro of that name */
}

/* A rank that fails with messages in flight, but no collective, has finished all its collectives:
 * the other ranks must hear so, because theirs may still end well. */
static void tell_pending(int messages, int barriers)
{
	tutti_comm *comms[2];
	tutti_work *works[8] = {0};
	int32_t got[8];
	int n = 0;

	assert_int_equal(tutti_init_all(comms, 2, &(tutti_config){.transports = "tcp"}), TUTTI_OK);
	struct control *control = comms[0]->engine->config.control;
	struct control_kind kind = *control->kind;
	for (; n < messages; n++)
		assert_int_equal(tutti_recv(&got[n], 1, TUTTI_I32, 1, comms[0],
					    &(tutti_call){.work = &works[n]}),
				 TUTTI_OK);
	for (; n < messages + barriers; n++)
		assert_int_equal(tutti_barrier(comms[0], &(tutti_call){.work = &works[n]}),
				 TUTTI_OK);
	told_kind = control->kind;
	told_pending = -1;
	kind.fail = note_told;
	control->kind = &kind;
	assert_int_equal(tutti_comm_abort(comms[0]), TUTTI_OK);
	control->kind = told_kind;
	assert_int_equal(told_pending, barriers);
	while (n > 0)
		assert_int_equal(tutti_work_wait(&works[--n], 0), TUTTI_ERR_ABORTED);
	for (int r = 0; r < 2; r++)
		tutti_comm_destroy(comms[r]);
}

static void test_pending(void **state)
{
#if defined(__SANITIZE_THREAD__)
	skip_because("it exchanges a table that the helper thread reads");
#endif
	tell_pending(0, 0);
	tell_pending(0, 2);
	tell_pending(3, 0);
	tell_pending(3, 2);
}

/* ---- refusal ----------------------------------------------------------------------------------
 */

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
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip_because("a sanitizer's malloc ends the process instead of failing");
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

/* What fails while links are measured is told, not what this thread had failed in before. */
static void test_measuring(void **state)
{
	tutti_comm *comms[2];
	struct links links;

	assert_int_equal(tutti_init_all(comms, 2, &(tutti_config){.transports = "tcp"}), TUTTI_OK);
	assert_int_equal(tutti_comm_abort(comms[0]), TUTTI_OK);
	tutti_set_error(TUTTI_ERR_INTERNAL, "An old one.");
	assert_int_equal(measure_links(comms[0], &links), TUTTI_ERR_ABORTED);
	assert_string_equal(tutti_comm_error(NULL), tutti_comm_error(comms[0]));
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_abort),     cmocka_unit_test(test_messages),
		cmocka_unit_test(test_measuring), cmocka_unit_test(test_flight),
		cmocka_unit_test(test_refused),   cmocka_unit_test(test_timeout),
		cmocka_unit_test(test_pending),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
