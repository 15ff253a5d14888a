/* Would break: ranks that make different calls. Every rank of the communicator, whether it waits in
 * the call, has left it or comes later, gets a message that names both calls; nobody hangs, and
 * no call ends well with wrong bits. Over every way in which ranks can be connected. */
#include "tests/limit.h"
#include "tests/collectives/any_call.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static const struct pair {
	struct any_call most, odd;
} pairs[] = {
	{{COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 1024, 0},
	 {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 1000, 0}},
	{{COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 3, 0},
	 {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_MAX, 0, 3, 0}},
	{{COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 50000, 0},
	 {COLL_ALL_REDUCE, TUTTI_I32, TUTTI_SUM, 0, 50000, 0}},
	{{COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 1024, 0},
	 {COLL_BROADCAST, TUTTI_F32, TUTTI_SUM, 0, 1024, 0}},
	{{COLL_BROADCAST, TUTTI_F32, TUTTI_SUM, 0, 64, 0},
	 {COLL_BROADCAST, TUTTI_F32, TUTTI_SUM, 1, 64, 0}},
	{{COLL_BROADCAST, TUTTI_F64, TUTTI_SUM, 1, 40000, 0},
	 {COLL_BROADCAST, TUTTI_F64, TUTTI_SUM, 0, 40000, 0}},
	{{COLL_ALL_GATHER, TUTTI_F32, TUTTI_SUM, 0, 64, 0},
	 {COLL_REDUCE_SCATTER, TUTTI_F32, TUTTI_SUM, 0, 64, 0}},
	{{COLL_BARRIER, TUTTI_F32, TUTTI_SUM, 0, 0, 0},
	 {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 1, 0}},
	{{COLL_ALL_GATHER, TUTTI_I32, TUTTI_SUM, 0, 30000, 0},
	 {COLL_BARRIER, TUTTI_F32, TUTTI_SUM, 0, 0, 0}},
	{{COLL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 100, 0},
	 {COLL_REDUCE, TUTTI_F32, TUTTI_SUM, 1, 100, 0}},
	{{COLL_GATHER, TUTTI_F32, TUTTI_SUM, 1, 100, 0},
	 {COLL_GATHER, TUTTI_F32, TUTTI_SUM, 0, 100, 0}},
	{{COLL_SCATTER, TUTTI_F32, TUTTI_SUM, 1, 100, 0},
	 {COLL_SCATTER, TUTTI_F32, TUTTI_SUM, 0, 100, 0}},
	{{COLL_ALL_TO_ALL, TUTTI_F32, TUTTI_SUM, 0, 16, 0},
	 {COLL_ALL_GATHER, TUTTI_F32, TUTTI_SUM, 0, 16, 0}},
	{{COLL_ALL_GATHERV, TUTTI_F32, TUTTI_SUM, 0, 10, 1},
	 {COLL_ALL_GATHERV, TUTTI_F32, TUTTI_SUM, 0, 10, 3}},
	{{COLL_GATHERV, TUTTI_F32, TUTTI_SUM, 0, 10, 2},
	 {COLL_SCATTERV, TUTTI_F32, TUTTI_SUM, 0, 10, 2}},
	{{COLL_REDUCE_SCATTERV, TUTTI_F32, TUTTI_SUM, 0, 500, 100},
	 {COLL_REDUCE_SCATTER, TUTTI_F32, TUTTI_SUM, 0, 500, 0}},
};
#define PAIRS (sizeof pairs / sizeof pairs[0])

static const struct way {
	const char *name, *window, *transports, *algo;
} ways[] = {
	{"window", "1", "shm,tcp", NULL},
	{"window, all_reduce and broadcast by messages", "1", "shm,tcp",
	 "all_reduce=direct,broadcast=direct"},
	{"window, barrier by messages", "1", "tcp,shm", "barrier=doubling"},
	{"shm", "0", "shm", NULL},
	{"tcp", "0", "tcp", NULL},
	{"both", "0", "shm,tcp", NULL},
};
#define WAYS (sizeof ways / sizeof ways[0])

#define BEFORE 5 /* calls in which all agree */
#define AFTER  8 /* calls after the wrong one, at most */

struct rank {
	tutti_comm *comm;
	struct any_call call;
	pthread_t thread;
	tutti_status status;
	char error[600];
};

static tutti_status make(struct rank *r, const struct any_call *call)
{
	struct any_made made;
	tutti_status status = any_start(&made, call, r->comm, NULL);
	if (status == TUTTI_OK && !any_is_right(&made)) {
		status = TUTTI_ERR_INTERNAL;
		snprintf(r->error, sizeof r->error, "it ended well with wrong bits");
	}
	any_free(&made);
	return status;
}

static void *take_part(void *arg)
{
	static const struct any_call agreed = {COLL_ALL_REDUCE, TUTTI_F32, TUTTI_SUM, 0, 7, 0};
	static const struct any_call barrier = {COLL_BARRIER, TUTTI_F32, TUTTI_SUM, 0, 0, 0};
	struct rank *r = arg;

	for (int k = 0; k < BEFORE && r->status == TUTTI_OK; k++)
		r->status = make(r, &agreed);
	if (r->status == TUTTI_OK)
		r->status = make(r, &r->call);
	for (int k = 0; k < AFTER && r->status == TUTTI_OK; k++)
		r->status = make(r, &barrier);
	if (!r->error[0])
		snprintf(r->error, sizeof r->error, "%s", tutti_comm_error(r->comm));
	return NULL;
}

static void set_way(const struct way *way)
{
	setenv("TUTTI_WINDOW", way->window, 1);
	setenv("TUTTI_TRANSPORTS", way->transports, 1);
	if (way->algo)
		setenv("TUTTI_ALGO", way->algo, 1);
	else
		unsetenv("TUTTI_ALGO");
}

static void open_ranks(tutti_comm **comms, int n, const struct way *way)
{
	tutti_config config = {.timeout_ms = 60000};
	set_way(way);
	if (tutti_init_all(comms, n, &config) != TUTTI_OK)
		fail_msg("%s: %s", way->name, tutti_comm_error(NULL));
}

/* body on n ranks, a thread each. The alarm is far above need, and below the deadline that would
 * end a hang. */
static void run_ranks(struct rank *ranks, tutti_comm **comms, int n, void *(*body)(void *))
{
	test_limit(50);
	for (int r = 0; r < n; r++) {
		ranks[r].comm = comms[r];
		assert_int_equal(pthread_create(&ranks[r].thread, NULL, body, &ranks[r]), 0);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
	test_limit(0);
}

static void close_ranks(tutti_comm **comms, int n)
{
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[r]);
}

static void check_rank(const struct pair *pair, const struct way *way, const struct rank *r, int n)
{
	char most[128], odd[128];

	any_words(&pair->most, n, BEFORE, most, sizeof most);
	any_words(&pair->odd, n, BEFORE, odd, sizeof odd);
	if (r->status != TUTTI_ERR_MISMATCH || !strstr(r->error, most) || !strstr(r->error, odd))
		fail_msg("%s, %d ranks: %s and %s: rank %d: %s: %s", way->name, n, most, odd,
			 tutti_rank(r->comm), tutti_status_string(r->status), r->error);
}

static void differ(const struct pair *pair, const struct way *way, int n, int odd)
{
	tutti_comm *comms[ANY_RANKS];
	struct rank ranks[ANY_RANKS] = {{0}};

	open_ranks(comms, n, way);
	for (int r = 0; r < n; r++)
		ranks[r].call = r == odd ? pair->odd : pair->most;
	run_ranks(ranks, comms, n, take_part);
	for (int r = 0; r < n; r++)
		check_rank(pair, way, &ranks[r], n);
	close_ranks(comms, n);
}

static void test_pairs(void **state)
{
	for (size_t p = 0; p < PAIRS; p++) {
		for (size_t w = 0; w < WAYS; w++) {
			static const int sizes[] = {2, 3, 5};
			int n = sizes[(p + w) % 3];
			differ(&pairs[p], &ways[w], n, (int)(p * 5 + w) % n);
			if (w == 0 || w == 4)
				differ(&pairs[p], &ways[w], n == 5 ? 2 : n + 1, n == 5 ? 0 : n / 2);
		}
	}
}

/* The counts of all_to_allv are a matter of each pair. */
static void test_pair_counts(void **state)
{
	static const struct any_call most = {COLL_ALL_TO_ALLV, TUTTI_F32, TUTTI_SUM, 0, 100, 0};
	for (size_t w = 0; w < WAYS; w++) {
		tutti_comm *comms[3];
		struct rank ranks[3] = {{0}};
		open_ranks(comms, 3, &ways[w]);
		for (int r = 0; r < 3; r++)
			ranks[r].call = most;
		ranks[w % 3].call.count++;
		run_ranks(ranks, comms, 3, take_part);
		for (int r = 0; r < 3; r++)
			if (ranks[r].status != TUTTI_ERR_MISMATCH)
				fail_msg("%s: rank %d: %s: %s", ways[w].name, r,
					 tutti_status_string(ranks[r].status), ranks[r].error);
		close_ranks(comms, 3);
	}
}

/* Rank 2 sends nothing to rank 0, which expects 10 elements; rank 1, with the right counts, has
 * ended this call and waits in the next. */
static void *send_too_little(void *arg)
{
	struct rank *r = arg;
	int rank = tutti_rank(r->comm);
	size_t sends[3] = {rank == 2 ? 0 : 10, 10, 10}, receives[3] = {10, 10, 10};
	float send[30] = {0}, recv[30];

	r->status = tutti_all_to_allv(send, sends, NULL, recv, receives, NULL, TUTTI_F32, r->comm,
				      NULL);
	for (int k = 0; k < AFTER && r->status == TUTTI_OK; k++)
		r->status = tutti_barrier(r->comm, NULL);
	snprintf(r->error, sizeof r->error, "%s", tutti_comm_error(r->comm));
	return NULL;
}

static void all_mismatch(const struct way *way, void *(*body)(void *))
{
	tutti_comm *comms[3];
	struct rank ranks[3] = {{0}};

	open_ranks(comms, 3, way);
	run_ranks(ranks, comms, 3, body);
	for (int r = 0; r < 3; r++)
		if (ranks[r].status != TUTTI_ERR_MISMATCH || !strstr(ranks[r].error, "10") ||
		    !strstr(ranks[r].error, "rank 2") || !strstr(ranks[r].error, "ank 0"))
			fail_msg("%s: rank %d: %s: %s", way->name, r,
				 tutti_status_string(ranks[r].status), ranks[r].error);
	close_ranks(comms, 3);
}

static void test_counts_of_others(void **state)
{
	for (size_t w = 0; w < WAYS; w++)
		all_mismatch(&ways[w], send_too_little);
}

/* Rank 0 has seen the mismatch, rank 1 is elsewhere, so that nobody explains it, and the deadline
 * comes first: a mismatch it is all the same. */
static void *send_too_little_before_timeout(void *arg)
{
	static atomic_int told;
	struct rank *r = arg;
	int rank = tutti_rank(r->comm);
	size_t sends[3] = {rank == 2 ? 0 : 10, 10, 10}, receives[3] = {10, 10, 10};
	float send[30] = {0}, recv[30];
	tutti_call soon = {.timeout_ms = (int)test_limit_stretched(800)};

	if (rank == 0)
		atomic_store(&told, 0);
	r->status = tutti_barrier(r->comm, NULL);
	while (rank == 1 && !atomic_load(&told))
		sched_yield();
	if (r->status == TUTTI_OK)
		r->status = tutti_all_to_allv(send, sends, NULL, recv, receives, NULL, TUTTI_F32,
					      r->comm, rank == 0 ? &soon : NULL);
	for (int k = 0; k < AFTER && r->status == TUTTI_OK; k++)
		r->status = tutti_barrier(r->comm, NULL);
	snprintf(r->error, sizeof r->error, "%s", tutti_comm_error(r->comm));
	if (rank == 0)
		atomic_store(&told, 1);
	return NULL;
}

static void test_deadline_of_a_mismatch(void **state)
{
	for (size_t w = 0; w < WAYS; w++) /* the window compares once all have come */
		if (ways[w].window[0] == '0')
			all_mismatch(&ways[w], send_too_little_before_timeout);
}

/* In a child the ranks 1 and 3 of its parent disagree; in the parent, and in the other child, all
 * goes on. */
static void *take_part_in_child(void *arg)
{
	static const struct any_call barrier = {COLL_BARRIER, TUTTI_F32, TUTTI_SUM, 0, 0, 0};
	struct rank *r = arg, in_child = {0};
	int rank = tutti_rank(r->comm);

	r->status = tutti_comm_split(r->comm, rank % 2, 0, NULL, &in_child.comm);
	if (r->status != TUTTI_OK)
		return NULL;
	in_child.call = pairs[rank % 2].most;
	if (rank == 3)
		in_child.call = pairs[1].odd;
	take_part(&in_child);
	r->status = make(r, &barrier);
	if (r->status == TUTTI_OK)
		r->status = in_child.status;
	snprintf(r->error, sizeof r->error, "%s", in_child.error);
	tutti_comm_destroy(in_child.comm);
	return NULL;
}

static void test_children(void **state)
{
	for (size_t w = 0; w < WAYS; w++) {
		tutti_comm *comms[5];
		struct rank ranks[5] = {{0}};
		open_ranks(comms, 5, &ways[w]);
		run_ranks(ranks, comms, 5, take_part_in_child);
		for (int r = 0; r < 5; r++)
			if (r % 2)
				check_rank(&pairs[1], &ways[w], &ranks[r], 2);
			else if (ranks[r].status != TUTTI_OK)
				fail_msg("%s: rank %d: %s", ways[w].name, r, ranks[r].error);
		close_ranks(comms, 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_pair_counts),
		cmocka_unit_test(test_counts_of_others),
		cmocka_unit_test(test_deadline_of_a_mismatch),
		cmocka_unit_test(test_children),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
