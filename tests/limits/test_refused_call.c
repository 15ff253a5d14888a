/* Breaks when a rank that has no memory for a call leaves the others waiting for it, though it does
 * not leave the communicator: they must hear of it, and it must not go on as if nothing had been.
 */
#include "tests/limit.h"
#include "tests/limits/shim.h"

#include <tutti/tutti.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { RANKS = 2, TIMEOUT_MS = 30000 };

static tutti_status gather(tutti_comm *comm)
{
	const size_t counts[RANKS] = {3, 2};
	float all[5] = {0}, own[3] = {1, 2, 3};

	return tutti_gatherv(own, all, counts, NULL, TUTTI_F32, 0, comm, NULL);
}

static tutti_status reduce(tutti_comm *comm)
{
	float values[5] = {0};

	return tutti_all_reduce(values, values, 5, TUTTI_F32, TUTTI_SUM, comm, NULL);
}

struct rank {
	tutti_comm *comm;
	tutti_status (*call)(tutti_comm *comm);
	pthread_barrier_t *turn;
	tutti_status first, later;
	char error[512];
};

/* Rank 0 is refused while the other is in no call. */
static void *run(void *arg)
{
	struct rank *rank = arg;
	bool is_refused = tutti_rank(rank->comm) == 0;

	pthread_barrier_wait(rank->turn);
	if (is_refused) {
		shim_fail(SHIM_MEMORY, 0, true);
		rank->first = rank->call(rank->comm);
		shim_stop();
	}
	pthread_barrier_wait(rank->turn);
	if (!is_refused)
		rank->first = rank->call(rank->comm);
	rank->later = tutti_barrier(rank->comm, NULL);
	snprintf(rank->error, sizeof rank->error, "%s", tutti_comm_error(rank->comm));
	pthread_barrier_wait(rank->turn);
	tutti_comm_destroy(rank->comm);
	return NULL;
}

static void refuse(const char *transports, tutti_status (*call)(tutti_comm *comm))
{
	const tutti_config config = {.timeout_ms = TIMEOUT_MS, .transports = transports};
	tutti_comm *comms[RANKS];
	struct rank ranks[RANKS];
	pthread_t threads[RANKS];
	pthread_barrier_t turn;

	test_limit(100);
	pthread_barrier_init(&turn, NULL, RANKS);
	assert_int_equal(tutti_init_all(comms, RANKS, &config), TUTTI_OK);
	for (int r = 0; r < RANKS; r++) {
		ranks[r] = (struct rank){.comm = comms[r], .call = call, .turn = &turn};
		assert_int_equal(__real_pthread_create(&threads[r], NULL, run, &ranks[r]), 0);
	}
	for (int r = 0; r < RANKS; r++)
		pthread_join(threads[r], NULL);
	pthread_barrier_destroy(&turn);
	print_message("rank 0: %s\nrank 1: %s\n", ranks[0].error, ranks[1].error);
	assert_int_equal(ranks[0].first, TUTTI_ERR_MEMORY);
	assert_int_equal(ranks[0].later, TUTTI_ERR_MEMORY);
	assert_int_equal(ranks[1].later, TUTTI_ERR_PEER);
	assert_non_null(strstr(ranks[0].error, "rank 0"));
	assert_non_null(strstr(ranks[0].error, "memory"));
	assert_non_null(strstr(ranks[1].error, "ank 0"));
}

static void for_offsets(void **state)
{
	refuse(NULL, gather);
	refuse("tcp", gather);
}

static void for_a_plan(void **state)
{
	refuse("tcp", reduce);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(for_offsets),
		cmocka_unit_test(for_a_plan),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
