/* slow: 4 s */
/* Without this an all_to_all in place could overwrite blocks before they are sent: by every
 * algorithm and the window, on 1 to 8 ranks, of which some or all are in place. */
#include "tests/collectives/thread_ranks.h"
#include "tests/whole.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

static int32_t value(int from, int to, size_t i)
{
	return (int32_t)((uint32_t)from * 1000003u + (uint32_t)to * 10007u + (uint32_t)i * 7u);
}

/* Of from for to. varies: some are empty, and each pair has its own. */
static size_t block(int from, int to, size_t count, bool varies)
{
	return varies ? count * (size_t)((from + 2 * to) % 4) / 2 : count;
}

struct blocks {
	size_t send[RANKS_MAX], recv[RANKS_MAX], sent, received, room;
};

static struct blocks blocks_of(const struct rank *r, size_t count, bool varies)
{
	struct blocks b = {{0}, {0}, 0, 0, 0};
	for (int i = 0; i < r->size; i++) {
		b.sent += b.send[i] = block(r->rank, i, count, varies);
		b.received += b.recv[i] = block(i, r->rank, count, varies);
	}
	b.room = b.sent > b.received ? b.sent : b.received;
	return b;
}

enum how { BLOCKING, HANDLE, GROUP, HOWS };

static tutti_status exchange(struct rank *r, const int32_t *send, int32_t *recv, size_t count,
			     const struct blocks *b, bool varies, const tutti_call *call)
{
	return varies ? tutti_all_to_allv(send, b->send, NULL, recv, b->recv, NULL, TUTTI_I32,
					  r->comm, call)
		      : tutti_all_to_all(send, recv, count, TUTTI_I32, r->comm, call);
}

static void one_call(struct rank *r, size_t count, bool varies, bool is_in_place, enum how how)
{
	struct blocks b = blocks_of(r, count, varies);
	int32_t *recv = malloc(b.room * 4 + 4), *send = malloc(b.room * 4 + 4), *from = send;
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	size_t at = 0;

	if (is_in_place)
		from = recv;
	for (int to = 0; to < r->size; to++)
		for (size_t i = 0; i < b.send[to]; i++)
			from[at++] = value(r->rank, to, i);
	recv[b.room] = 77;
	if (how == GROUP)
		expect(r, "begin", tutti_group_begin());
	expect(r, "all_to_all",
	       exchange(r, from, recv, count, &b, varies, how == HANDLE ? &call : NULL));
	if (how == GROUP)
		expect(r, "end", tutti_group_end(NULL));
	expect(r, "wait", tutti_work_wait(&work, 0));
	at = 0;
	for (int peer = 0; peer < r->size; peer++)
		for (size_t i = 0; i < b.recv[peer]; i++)
			if (recv[at++] != value(peer, r->rank, i))
				report_wrong(r,
					     varies ? "a block of all_to_allv in place"
						    : "a block of all_to_all in place",
					     TUTTI_OK);
	if (recv[b.room] != 77)
		report_wrong(r, "an element behind recv", TUTTI_OK);
	free(recv);
	free(send);
}

/* seed 1: also of blocks that differ, which some algorithms do not take. */
static void exchanges(struct rank *r)
{
	static const size_t counts[] = {0, 1, 7, 333, 5001, 40009};
	for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
		for (int varies = 0; varies <= (int)r->seed; varies++)
			for (int all = 0; all < 2; all++)
				one_call(r, counts[c], varies, all || r->rank % 3 != 1,
					 (enum how)((c + (size_t)all) % HOWS));
}

static void on_all_sizes(const char *transports, bool may_vary)
{
	for (int n = 1; n <= RANKS_MAX; n += whole_or(1, 2, 3))
		with_ranks(n, transports, may_vary, exchanges);
}

static void test_window(void **state)
{
	on_all_sizes(NULL, true);
}

static void test_algorithms(void **state)
{
	static const char *const names[] = {"direct", "bruck", "pairwise", "knomial"};
	char algo[40];

	for (int i = 0; i < 4; i++) {
		snprintf(algo, sizeof algo, "all_to_all=%s", names[i]);
		setenv("TUTTI_ALGO", algo, 1);
		on_all_sizes("shm", i % 2 == 0);
		unsetenv("TUTTI_ALGO");
	}
	on_all_sizes("tcp", true);
}

/* The same memory, but not the same address. */
static void test_overlap(void **state)
{
	int32_t x[8] = {0};
	size_t one = 4, at[2] = {0, 1};
	tutti_comm *comm;

	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	assert_int_equal(tutti_all_to_all(x, x + 1, 4, TUTTI_I32, comm, NULL), TUTTI_ERR_INVALID);
	assert_int_equal(
		tutti_all_to_allv(x, &one, &at[1], x + 1, &one, &at[0], TUTTI_I32, comm, NULL),
		TUTTI_ERR_INVALID);
	assert_int_equal(tutti_comm_status(comm), TUTTI_OK);
	tutti_comm_destroy(comm);
}

/* The own block of a v-variant begins at its offset, also where it is the only one. */
static void test_offset_on_one_rank(void **state)
{
	int32_t x[8] = {0, 1, 2, 3, 4, 5, 6, 7};
	size_t count = 4, offset = 2;
	tutti_comm *comm;

	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	assert_int_equal(tutti_all_gatherv(x + 2, x, &count, &offset, TUTTI_I32, comm, NULL),
			 TUTTI_OK);
	assert_int_equal(
		tutti_reduce_scatterv(x, x + 2, &count, &offset, TUTTI_I32, TUTTI_SUM, comm, NULL),
		TUTTI_OK);
	assert_int_equal(tutti_all_gatherv(x, x, &count, &offset, TUTTI_I32, comm, NULL),
			 TUTTI_ERR_INVALID);
	for (int i = 0; i < 8; i++)
		assert_int_equal(x[i], i);
	tutti_comm_destroy(comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_window),
		cmocka_unit_test(test_algorithms),
		cmocka_unit_test(test_overlap),
		cmocka_unit_test(test_offset_on_one_rank),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
