/* Would break: ranks that make different calls. Every rank of the communicator, whether it waits in
 * the call, has left it or comes later, is told with both calls in the sentence; nobody hangs, and
 * no call ends well with wrong bits. Over every way in which ranks can be connected. */
#include "any_call.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
	tutti_config config = {.timeout_ms = 60000};

	if (tutti_init_all(comms, n, &config) != TUTTI_OK)
		fail_msg("%s: %s", way->name, tutti_comm_error(NULL));
	alarm(50); /* far above need, and below the deadline that would end a hang */
	for (int r = 0; r < n; r++) {
		ranks[r].comm = comms[r];
		ranks[r].call = r == odd ? pair->odd : pair->most;
		assert_int_equal(pthread_create(&ranks[r].thread, NULL, take_part, &ranks[r]), 0);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
	alarm(0);
	for (int r = 0; r < n; r++)
		check_rank(pair, way, &ranks[r], n);
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[r]);
}

static void test_pairs(void **state)
{
	(void)state;
	for (size_t p = 0; p < PAIRS; p++) {
		if (!any_is_built(pairs[p].most.collective) ||
		    !any_is_built(pairs[p].odd.collective))
			continue;
		for (size_t w = 0; w < WAYS; w++) {
			static const int sizes[] = {2, 3, 5};
			int n = sizes[(p + w) % 3];
			set_way(&ways[w]);
			differ(&pairs[p], &ways[w], n, (int)(p * 5 + w) % n);
			if (w == 0 || w == 4)
				differ(&pairs[p], &ways[w], n == 5 ? 2 : n + 1, n == 5 ? 0 : n / 2);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pairs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
