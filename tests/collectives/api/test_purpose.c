/* What would break: ranks that gather for different purposes, which nobody notices, or whose
 * message does not say which purposes; a rank that hangs then. Without it ranks of a trainer
 * compute with the values of other units. */
#include "tests/collectives/thread_ranks.h"

#include "collectives/api/purpose.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { AGREED = 3, COUNT = 5 };

enum how { BLOCKING, HANDLE, GROUP };

/* Rank 0's block is empty. */
static tutti_status gather(struct rank *r, tutti_comm *comm, uint32_t purpose, enum how how)
{
	size_t counts[RANKS_MAX];
	int32_t own[COUNT], all[RANKS_MAX * COUNT];
	tutti_work *work = NULL;
	tutti_call call = {.label = "a unit"};
	tutti_status status;

	for (int i = 0; i < r->size; i++)
		counts[i] = i ? COUNT : 0;
	for (int i = 0; i < COUNT; i++)
		own[i] = r->rank * COUNT + i;
	if (how == HANDLE)
		call.work = &work;
	if (purpose)
		purpose_set(&call, purpose);
	if (how == GROUP)
		expect(r, "begin", tutti_group_begin());
	status = tutti_all_gatherv(own, all, counts, NULL, TUTTI_I32, comm, &call);
	if (how == GROUP)
		status = tutti_group_end(NULL);
	if (status == TUTTI_OK && work)
		status = tutti_work_wait(&work, 0);
	for (int i = 0; status == TUTTI_OK && i < (r->size - 1) * COUNT; i++)
		if (all[i] != i + COUNT)
			report_wrong(r, "an element", TUTTI_OK);
	return status;
}

/* The last rank has another purpose, or none. */
static void differ(struct rank *r, tutti_comm *comm, uint32_t others, enum how how)
{
	bool is_last = r->rank == r->size - 1;
	struct rank_purpose calls[2];
	char words[64];

	tutti_status status = TUTTI_OK;
	for (int i = 0; i < AGREED && status == TUTTI_OK; i++)
		status = gather(r, comm, (uint32_t)i, how);
	if (status == TUTTI_OK)
		status = gather(r, comm, is_last ? others : 6, how);
	if (r->size == 1) {
		expect(r, "alone", status);
		return;
	}
	/* A rank that waits for no other one may end well before the others have come. */
	for (int i = 0; status == TUTTI_OK && i < 8; i++)
		status = tutti_barrier(comm, NULL);
	const char *message = tutti_comm_error(comm);
	snprintf(words, sizeof words, "rank %d called all_gatherv(i32, %d) as #3", r->size - 1,
		 (r->size - 1) * COUNT);
	if (status != TUTTI_ERR_MISMATCH || !strstr(message, words) ||
	    !strstr(message, " as #3 for purpose 6, rank"))
		report_wrong(r, words, status);
	if (!purposes_differ(message, calls) || calls[0].rank >= calls[1].rank ||
	    calls[1].rank != r->size - 1 || calls[0].purpose != 6 || calls[1].purpose != others)
		report_wrong(r, "the purposes read back", status);
}

static void other_purpose(struct rank *r)
{
	differ(r, r->comm, 4000000001u, HANDLE);
	differ(r, r->other, 7, BLOCKING);
}

static void no_purpose(struct rank *r)
{
	differ(r, r->comm, 0, HANDLE);
	differ(r, r->other, 0, GROUP);
}

static void test_other_purpose(void **state)
{
	everywhere(other_purpose);
}

static void test_no_purpose(void **state)
{
	everywhere(no_purpose);
}

/* A program's own value there, and calls with a root, to which it does not belong. */
static void not_compared(struct rank *r)
{
	int32_t value = r->rank;
	tutti_call call = {.reserved = {(uint64_t)r->rank << 20 | 6}};

	expect(r, "reserved", tutti_broadcast(&value, &value, 1, TUTTI_I32, 0, r->comm, &call));
	expect(r, "reserved",
	       tutti_all_reduce(&value, &value, 1, TUTTI_I32, TUTTI_SUM, r->comm, &call));
	purpose_set(&call, 6 + (uint32_t)r->rank);
	expect(r, "a root",
	       tutti_broadcast(&value, &value, 1, TUTTI_I32, r->size - 1, r->comm, &call));
	if (value)
		report_wrong(r, "a value", TUTTI_OK);
}

static void test_not_compared(void **state)
{
	everywhere(not_compared);
}

static void test_read(void **state)
{
	static const char begin[] = "Communicator model: The ranks did not make the same call: ";
	static const struct {
		const char *text;
		bool differ;
		struct rank_purpose calls[2];
	} cases[] = {
		{"rank 1 called all_gatherv(f32, 12) as #3 for purpose 6, rank 12 called "
		 "all_gatherv(f32, 12) as #3 on GPUs for purpose 10.",
		 true,
		 {{1, 6}, {12, 10}}},
		{"rank 0 called barrier() as #3, rank 2 called all_gather(i32, 1) as #3 for "
		 "purpose 7; the counts of the single ranks differ.",
		 true,
		 {{0, 0}, {2, 7}}},
		{"rank 0 called all_gather(i32, 1) as #3 for purpose 7, rank 2 called barrier() "
		 "as #3.",
		 true,
		 {{0, 7}, {2, 0}}},
		{"rank 0 called barrier() as #3, rank 2 called all_gather(i32, 1) as #3.",
		 false,
		 {{0, 0}, {2, 0}}},
		{"rank 0 called all_gather(i32, 1) as #3 for purpose 7, rank 2 ca",
		 false,
		 {{0, 0}}},
		{"rank 0 called all_gather(i32", false, {{0, 0}}},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char message[512];
		struct rank_purpose calls[2];
		snprintf(message, sizeof message, "%s%s", begin, cases[i].text);
		assert_int_equal(purposes_differ(message, calls), cases[i].differ);
		for (int c = 0; c < 2 && cases[i].differ; c++) {
			assert_int_equal(calls[c].rank, cases[i].calls[c].rank);
			assert_int_equal(calls[c].purpose, cases[i].calls[c].purpose);
		}
		assert_false(purposes_differ(cases[i].text, calls));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_purpose),
		cmocka_unit_test(test_no_purpose),
		cmocka_unit_test(test_not_compared),
		cmocka_unit_test(test_read),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
