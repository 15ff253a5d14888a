/* Without this tutti_comm_abort could wait, be unheard by some, or leave a destroy that hangs:
 * any ranks, in any order, at any moment, whatever the ranks are doing. Ranks are threads. */
#include "core/clock.h"
#include "tests/limit.h"
#include "tests/whole.h"

#include <tutti/tutti.h>

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

#define RANKS_MAX 4
#define WORKS     5
#define COUNT     70000

static uint64_t seed;

/* ---- how often a thread that aborts sleeps --------------------------------------------------- */

static _Thread_local int sleeps; /* of this thread; all waits of the library are a poll */
static atomic_int sleeps_of_all;

int __real_poll(struct pollfd *fds, nfds_t n, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int ms);

int __wrap_poll(struct pollfd *fds, nfds_t n, int ms)
{
	sleeps += ms != 0;
	atomic_fetch_add(&sleeps_of_all, ms != 0);
	return __real_poll(fds, n, ms);
}

static int sleeps_of_abort(tutti_comm *comm)
{
	int before = sleeps;

	assert_int_equal(tutti_comm_abort(comm), TUTTI_OK);
	return sleeps - before;
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*state >> 33);
}

/* ---- ranks that are always doing something ------------------------------------------------- */

struct rank {
	tutti_comm *comm;
	uint64_t seed; /* the same for all */
	_Atomic uint64_t steps;
	tutti_status status;
	pthread_t thread;
};

static atomic_long called;

static void note(void *arg, tutti_status status)
{
	(void)arg;
	(void)status;
	sched_yield();
	atomic_fetch_add(&called, 1);
}

static tutti_status sum(tutti_comm *comm, size_t count, const tutti_call *call, float *x)
{
	return tutti_all_reduce(x, x, count, TUTTI_F32, TUTTI_SUM, comm, call);
}

static tutti_status blocking(tutti_comm *comm, size_t count)
{
	float *x = calloc(count, sizeof *x);
	tutti_status status = sum(comm, count, NULL, x);
	free(x);
	return status;
}

static tutti_status asynchronous(tutti_comm *comm, bool in_group)
{
	tutti_work *works[WORKS] = {0};
	float *x[WORKS];
	tutti_status status = TUTTI_OK, waited;

	if (in_group)
		tutti_group_begin();
	for (int i = 0; i < WORKS; i++) {
		tutti_call call = {.work = &works[i], .done = i % 2 ? note : NULL};
		x[i] = calloc(COUNT, sizeof *x[i]);
		if (status == TUTTI_OK)
			status = sum(comm, i % 2 ? 10 : COUNT, in_group ? NULL : &call, x[i]);
	}
	if (in_group && (waited = tutti_group_end(NULL)) != TUTTI_OK)
		status = waited;
	for (int i = 0; i < WORKS; i++)
		if ((waited = tutti_work_wait(&works[i], 0)) != TUTTI_OK)
			status = waited;
	for (int i = 0; i < WORKS; i++)
		free(x[i]);
	return status;
}

static tutti_status around(tutti_comm *comm)
{
	int rank = tutti_rank(comm), n = tutti_size(comm);
	char *out = calloc(COUNT, 1), *in = calloc(COUNT, 1);
	tutti_status status = tutti_group_begin(), sent, got;

	sent = tutti_send(out, COUNT, TUTTI_U8, (rank + 1) % n, comm, NULL);
	got = tutti_recv(in, COUNT, TUTTI_U8, (rank + n - 1) % n, comm, NULL);
	status = tutti_group_end(NULL);
	free(out);
	free(in);
	return sent != TUTTI_OK ? sent : got != TUTTI_OK ? got : status;
}

/* A child lives on when its parent has failed, but its other ranks may have gone. */
static tutti_status child(tutti_comm *comm)
{
	tutti_comm *made;
	tutti_status status = tutti_comm_split(comm, tutti_rank(comm) % 2, 0, NULL, &made);

	if (status != TUTTI_OK)
		return status;
	status = blocking(made, 10);
	tutti_comm_destroy(made);
	return status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED ? TUTTI_OK : status;
}

static tutti_status step(tutti_comm *comm, uint32_t kind)
{
	switch (kind % 8) {
	case 0:
		return child(comm);
	case 1:
		return asynchronous(comm, false);
	case 2:
		return asynchronous(comm, true);
	case 3:
		return around(comm);
	case 4:
		return blocking(comm, COUNT);
	case 5:
		return tutti_barrier(comm, NULL);
	default:
		return blocking(comm, 1);
	}
}

static void *be_rank(void *arg)
{
	struct rank *rank = arg;
	uint64_t state = rank->seed;

	while (rank->status == TUTTI_OK) {
		rank->status = step(rank->comm, next_random(&state));
		atomic_fetch_add(&rank->steps, 1);
	}
	return NULL;
}

/* The ranks in the set are aborted, in some order, after so many steps of the first. */
static void abort_some(const char *transports, int n, unsigned set, uint64_t *state)
{
	struct rank ranks[RANKS_MAX] = {{0}};
	tutti_comm *comms[RANKS_MAX];
	tutti_config config = {.transports = transports, .timeout_ms = 60000};
	uint64_t after = 1 + next_random(state) % 12, rank_seed = next_random(state);
	int first = (int)(next_random(state) % (unsigned)n);
	int slept = 0;

	assert_int_equal(tutti_init_all(comms, n, &config), TUTTI_OK);
	for (int r = 0; r < n; r++) {
		ranks[r].comm = comms[r];
		ranks[r].seed = rank_seed;
		pthread_create(&ranks[r].thread, NULL, be_rank, &ranks[r]);
	}
	while (atomic_load(&ranks[0].steps) < after)
		sched_yield();
	for (uint32_t spins = next_random(state) % 20000; spins > 0; spins--)
		atomic_load(&ranks[0].steps); /* somewhere in a step */
	for (int i = 0; i < n; i++) {
		int r = (first + i) % n;
		slept += set & 1u << r ? sleeps_of_abort(comms[r]) : 0;
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
	for (int r = 0; r < n; r++) {
		tutti_status status = ranks[r].status, sticky = tutti_comm_status(comms[r]);
		if ((status != TUTTI_ERR_ABORTED && status != TUTTI_ERR_PEER) || sticky != status)
			fail_msg("%s, %d ranks, aborted %#x: rank %d: %s, then %s: %s", transports,
				 n, set, r, tutti_status_string(status),
				 tutti_status_string(sticky), tutti_comm_error(comms[r]));
	}
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[(first + r) % n]);
	if (slept > 0)
		fail_msg("%s, %d ranks, %#x: aborts slept %d times", transports, n, set, slept);
}

static void test_any_ranks(void **state)
{
	static const char *const transports[] = {"shm,tcp", "shm", "tcp"};
	uint64_t random = seed;

	for (int t = 0; t < 3; t++) {
		if (t == 1)
			setenv("TUTTI_WINDOW", "0", 1);
		for (int n = 2; n <= RANKS_MAX; n++)
			for (unsigned set = 1; set < 1u << n; set += (unsigned)whole_or(1, 1, 3))
				abort_some(transports[t], n, set, &random);
	}
	unsetenv("TUTTI_WINDOW");
	assert_true(atomic_load(&sleeps_of_all) > 0); /* of the ranks: they are counted */
}

/* ---- at rest, and in awkward places -------------------------------------------------------- */

static void open_two(tutti_comm **comms, const char *transports)
{
	tutti_config config = {.transports = transports, .timeout_ms = 60000};
	float x[2] = {0};
	tutti_work *works[2];

	assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_OK);
	for (int r = 0; r < 2; r++) {
		tutti_call call = {.work = &works[r]};
		assert_int_equal(sum(comms[r], 1, &call, &x[r]), TUTTI_OK);
	}
	for (int r = 0; r < 2; r++)
		assert_int_equal(tutti_work_wait(&works[r], 0), TUTTI_OK);
}

/* Much of what rank 0 sends lies in buffers of the kernel, and rank 1 never asks for it. */
static void test_undelivered(void **state)
{
	static const char *const transports[] = {"shm", "tcp"};
	const size_t bytes = 64u << 20;
	char *data = calloc(1, bytes);

	setenv("TUTTI_WINDOW", "0", 1);
	for (int t = 0; t < 2; t++) {
		tutti_comm *comms[2];
		tutti_work *work = NULL;
		tutti_call call = {.work = &work};
		open_two(comms, transports[t]);
		assert_int_equal(tutti_broadcast(data, data, bytes, TUTTI_U8, 0, comms[0], &call),
				 TUTTI_OK);
		assert_int_equal(tutti_work_wait(&work, 50), TUTTI_IN_PROGRESS);
		assert_int_equal(sleeps_of_abort(comms[0]), 0);
		assert_int_equal(tutti_work_wait(&work, 0), TUTTI_ERR_ABORTED);
		tutti_comm_destroy(comms[0]);
		tutti_comm_destroy(comms[1]);
	}
	unsetenv("TUTTI_WINDOW");
	free(data);
}

static void abort_in_callback(void *arg, tutti_status status)
{
	(void)status;
	tutti_comm_abort(arg);
}

/* Also twice, and when nothing is in flight. */
static void test_out_of_a_callback(void **state)
{
	static const char *const transports[] = {"shm,tcp", "tcp"};
	for (int t = 0; t < 2; t++) {
		tutti_comm *comms[2];
		tutti_work *works[2] = {0};
		open_two(comms, transports[t]);
		for (int r = 0; r < 2; r++) {
			tutti_call call = {.work = &works[r],
					   .done = r ? NULL : abort_in_callback,
					   .done_arg = comms[0]};
			assert_int_equal(tutti_barrier(comms[r], &call), TUTTI_OK);
		}
		for (int r = 0; r < 2; r++)
			(void)tutti_work_wait(&works[r], 0);
		while (tutti_comm_status(comms[0]) == TUTTI_OK)
			sched_yield();
		assert_int_equal(tutti_barrier(comms[0], NULL), TUTTI_ERR_ABORTED);
		assert_int_equal(tutti_comm_abort(comms[0]), TUTTI_OK);
		tutti_status other = tutti_barrier(comms[1], NULL);
		assert_true(other == TUTTI_ERR_ABORTED || other == TUTTI_ERR_PEER);
		tutti_comm_destroy(comms[1]);
		tutti_comm_destroy(comms[0]);
	}
}

/* A rank that is in no call sees by its status that another one has given up; its last error stays.
 */
static void test_status_without_a_call(void **state)
{
	for (int way = 0; way < 2; way++) {
		tutti_comm *comms[2];
		tutti_config config = {.transports = way ? "tcp" : NULL};
		uint64_t end = deadline_after_ms(20000);

		if (way)
			setenv("TUTTI_WINDOW", "0", 1);
		assert_int_equal(tutti_init_all(comms, 2, &config), TUTTI_OK);
		tutti_set_error(TUTTI_OK, "kept");
		assert_int_equal(tutti_comm_status(comms[1]), TUTTI_OK);
		sleeps_of_abort(comms[0]);
		tutti_set_error(TUTTI_OK, "kept");
		while (tutti_comm_status(comms[1]) == TUTTI_OK && clock_now_ns() < end)
			sched_yield();
		assert_int_equal(tutti_comm_status(comms[1]), TUTTI_ERR_ABORTED);
		assert_string_equal(tutti_comm_error(NULL), "kept");
		assert_non_null(strstr(tutti_comm_error(comms[1]), "called on rank 0"));
		tutti_comm_destroy(comms[0]);
		tutti_comm_destroy(comms[1]);
	}
	unsetenv("TUTTI_WINDOW");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status_without_a_call),
		cmocka_unit_test(test_undelivered),
		cmocka_unit_test(test_out_of_a_callback),
		cmocka_unit_test(test_any_ranks),
	};
	const char *given = getenv("SEED");

	seed = given ? strtoull(given, NULL, 0) : clock_now_ns();
	print_message("SEED=%llu\n", (unsigned long long)seed);
	test_limit(500); /* a hang ends here */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
