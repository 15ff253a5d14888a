/* Breaks when a meeting forgets a rank, believes two of them, or fails without naming who and why.
 */
#include "core/join/meeting.h"

#include "core/clock.h"
#include "core/join/frame.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static struct meeting with(int size, int joined)
{
	struct meeting m;

	assert_int_equal(meeting_init(&m, size, 1000), TUTTI_OK);
	for (int r = 0; r < joined; r++)
		assert_true(meeting_join(&m, r, size, 900));
	return m;
}

static void expect(const struct meeting *m, tutti_status status, const char *message)
{
	assert_int_equal(m->status, status);
	if (!strstr(m->error, message))
		fail_msg("\"%s\" does not say \"%s\"", m->error, message);
}

static void give(struct meeting *m, int rank, const char *record, bool last)
{
	uint8_t *to = meeting_record(m, rank, 4, 500);

	assert_non_null(to);
	memcpy(to, record, 4);
	assert_int_equal(meeting_gave(m, rank), last);
}

static void rounds_collect_in_rank_order(void **state)
{
	struct meeting m = with(3, 3);

	assert_true(m.is_complete);
	give(&m, 2, "ccc", false);
	give(&m, 0, "aaa", false);
	assert_int_equal(m.deadline_ns, 500);
	give(&m, 1, "bbb", true);
	assert_int_equal(m.deadline_ns, DEADLINE_NONE);
	assert_memory_equal(m.answer, "aaa\0bbb\0ccc", 12);
	/* The next round's records do not touch the last one's answer. */
	give(&m, 2, "333", false);
	assert_memory_equal(m.answer, "aaa\0bbb\0ccc", 12);
	give(&m, 1, "222", false);
	give(&m, 0, "111", true);
	assert_memory_equal(m.answer,
			    "111\0"
			    "222\0"
			    "333",
			    12);
	assert_int_equal(m.status, TUTTI_OK);
	meeting_finish(&m);
}

static void processes_that_disagree_are_named(void **state)
{
	struct meeting m = with(6, 0);

	assert_true(meeting_compare_local_ranks(&m, 4, 2));
	assert_true(meeting_join(&m, 4, 6, 900));
	assert_true(meeting_compare_local_ranks(&m, 1, 2));
	assert_true(meeting_compare_local_ranks(&m, 2, 0)); /* a rank that is there already */
	assert_false(m.sizes_differ);
	assert_false(meeting_compare_local_ranks(&m, 3, 3));
	assert_true(m.sizes_differ);
	expect(&m, TUTTI_ERR_MISMATCH,
	       "process 1 makes 3 ranks of the job, process 2 makes 2 (config.local_ranks");
	assert_false(meeting_compare_local_ranks(&m, 0, 2)); /* it has failed */
	meeting_finish(&m);
}

static void sizes_that_disagree_are_named(void **state)
{
	struct meeting m = with(3, 1);

	assert_false(meeting_join(&m, 2, 4, 900));
	expect(&m, TUTTI_ERR_MISMATCH, "rank 2 says the world has 4 ranks, rank 0 says 3");
	meeting_finish(&m);
	/* A server that is no rank learns the size from the first that comes. */
	assert_int_equal(meeting_init(&m, 0, 1000), TUTTI_OK);
	assert_true(meeting_join(&m, 4, 5, 900));
	assert_false(meeting_join(&m, 1, 6, 900));
	expect(&m, TUTTI_ERR_MISMATCH, "rank 1 says the world has 6 ranks, rank 4 says 5");
	meeting_finish(&m);
}

static void hosts_that_disagree_are_named(void **state)
{
	struct meeting m = with(5, 5);

	meeting_compare_hosts(&m, 3, 0);
	meeting_compare_hosts(&m, 1, 77);
	meeting_compare_hosts(&m, 0, 77);
	meeting_compare_hosts(&m, 4, 0);
	assert_int_equal(m.status, TUTTI_OK);
	meeting_compare_hosts(&m, 2, 78);
	expect(&m, TUTTI_ERR_MISMATCH,
	       "rank 2 and rank 1 have different lists of the job's 5 hosts");
	meeting_finish(&m);
}

static void a_rank_joins_once(void **state)
{
	struct meeting m = with(3, 2);

	assert_false(meeting_join(&m, 1, 3, 900));
	expect(&m, TUTTI_ERR_MISMATCH, "two processes say they are rank 1 of 3");
	/* The first failure stays. */
	assert_false(meeting_join(&m, 2, 9, 900));
	expect(&m, TUTTI_ERR_MISMATCH, "rank 1 of 3");
	meeting_finish(&m);
}

static void impossible_ranks_are_refused(void **state)
{
	static const int wrong[][2] = {{3, 3}, {-1, 3}, {0, 0}, {0, -1}, {0, 65537}};

	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct meeting m = with(3, 0);
		assert_false(meeting_join(&m, wrong[i][0], wrong[i][1], 900));
		assert_int_equal(m.status, TUTTI_ERR_INVALID);
		meeting_finish(&m);
	}
}

static void missing_ranks_are_named(void **state)
{
	struct meeting m = with(8, 3);

	assert_true(meeting_join(&m, 6, 8, 800));
	meeting_tick(&m, 799);
	assert_int_equal(m.status, TUTTI_OK);
	meeting_tick(&m, 800); /* the earliest deadline of all */
	expect(&m, TUTTI_ERR_TIMEOUT, "all 8 ranks had joined: ranks 3 to 5, 7 missing");
	meeting_finish(&m);

	m = with(3, 3);
	give(&m, 1, "abc", false);
	meeting_tick(&m, 500);
	expect(&m, TUTTI_ERR_TIMEOUT, "ranks 0, 2 of them stopped answering");
	meeting_finish(&m);
}

static void long_lists_are_cut(void **state)
{
	struct meeting m = with(1000, 0);
	char text[80];

	for (int r = 0; r < 1000; r += 2)
		assert_true(meeting_join(&m, r, 1000, 900));
	meeting_list(&m, SEAT_TAKEN, text, sizeof text);
	assert_non_null(strstr(text, "ranks 1, 3, 5"));
	assert_non_null(strstr(text, " more"));
	meeting_tick(&m, 1000);
	expect(&m, TUTTI_ERR_TIMEOUT, "missing");
	meeting_finish(&m);
}

static void the_dead_are_named(void **state)
{
	struct meeting m = with(3, 2);

	meeting_leave(&m, 1, false);
	expect(&m, TUTTI_ERR_PEER,
	       "the connection to rank 1 was lost (has it died?) while the 3 ranks");
	meeting_finish(&m);

	m = with(3, 3);
	give(&m, 0, "abc", false);
	meeting_leave(&m, 2, false);
	expect(&m, TUTTI_ERR_PEER, "the connection to rank 2 was lost");
	meeting_finish(&m);

	m = with(3, 3);
	give(&m, 0, "abc", false);
	meeting_leave(&m, 0, false);
	expect(&m, TUTTI_ERR_PEER, "the connection to rank 0 was lost");
	meeting_finish(&m);
}

static void leaving_is_no_failure_until_somebody_waits(void **state)
{
	struct meeting m = with(3, 3);

	meeting_leave(&m, 1, true);
	meeting_leave(&m, 1, false);
	assert_int_equal(m.left, 1);
	assert_int_equal(m.status, TUTTI_OK);
	assert_null(meeting_record(&m, 0, 4, 500));
	expect(&m, TUTTI_ERR_PEER, "rank 1 left while the other ranks");
	meeting_finish(&m);

	m = with(3, 3);
	give(&m, 0, "abc", false);
	meeting_leave(&m, 1, true);
	expect(&m, TUTTI_ERR_PEER, "rank 1 left while the other ranks");
	meeting_finish(&m);

	/* A rank that said nothing may have died, also when nobody waited just then. */
	m = with(3, 3);
	meeting_leave(&m, 1, false);
	assert_int_equal(m.status, TUTTI_OK);
	assert_null(meeting_record(&m, 0, 4, 500));
	expect(&m, TUTTI_ERR_PEER,
	       "the connection to rank 1 was lost (has it died?) while the other ranks");
	meeting_finish(&m);
}

static void records_have_one_size(void **state)
{
	struct meeting m = with(2, 2);

	give(&m, 0, "abc", false);
	assert_null(meeting_record(&m, 1, 8, 500));
	expect(&m, TUTTI_ERR_MISMATCH, "rank 1 gave 8 bytes where rank 0 gave 4");
	meeting_finish(&m);

	m = with(2, 2);
	assert_null(meeting_record(&m, 1, RECORD_MAX + 1, 500));
	expect(&m, TUTTI_ERR_INVALID, "too much");
	meeting_finish(&m);

	m = with(2, 2);
	assert_non_null(meeting_record(&m, 1, 0, 500));
	assert_false(meeting_gave(&m, 1));
	assert_non_null(meeting_record(&m, 0, 0, 500));
	assert_true(meeting_gave(&m, 0));
	meeting_finish(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rounds_collect_in_rank_order),
		cmocka_unit_test(processes_that_disagree_are_named),
		cmocka_unit_test(sizes_that_disagree_are_named),
		cmocka_unit_test(hosts_that_disagree_are_named),
		cmocka_unit_test(a_rank_joins_once),
		cmocka_unit_test(impossible_ranks_are_refused),
		cmocka_unit_test(missing_ranks_are_named),
		cmocka_unit_test(long_lists_are_cut),
		cmocka_unit_test(the_dead_are_named),
		cmocka_unit_test(leaving_is_no_failure_until_somebody_waits),
		cmocka_unit_test(records_have_one_size),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
