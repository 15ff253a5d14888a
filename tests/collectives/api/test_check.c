/* Would break: blocks of two ranks go to one place of recv, and which one stays is chance; or
 * blocks in another order than that of the ranks, which is right, are refused. */
#include <tutti/tutti.h>

#include <string.h>

#include "tests/unit.h"

#define RANKS 4
#define ROOM  64

static tutti_comm *comms[RANKS];
static int32_t recv[RANKS][ROOM], send[ROOM];

static void expect_overlap(tutti_status status, const char *blocks)
{
	if (status != TUTTI_ERR_INVALID || !strstr(tutti_comm_error(NULL), blocks))
		fail_msg("%s: %s, not '%s'", tutti_status_string(status), tutti_comm_error(NULL),
			 blocks);
	assert_int_equal(tutti_comm_status(comms[0]), TUTTI_OK);
	assert_int_equal(tutti_comm_sequence(comms[0]), 0);
}

/* INVALID is local: the other ranks make no call. */
static void test_overlaps(void **state)
{
	const size_t counts[RANKS] = {4, 3, 0, 2}, ones[RANKS] = {1, 1, 1, 1};
	const size_t near[RANKS] = {0, 3, 3, 8}, far[RANKS] = {20, 10, 0, 12},
		     same[RANKS] = {5, 6, 7, 5}, inside[RANKS] = {0, 20, 0, 1};
	tutti_comm *comm = comms[0];

	expect_overlap(tutti_all_gatherv(send, recv[0], counts, near, TUTTI_I32, comm, NULL),
		       "rank 0 is elements 0 to 3, that of rank 1 3 to 5");
	expect_overlap(tutti_all_gatherv(send, recv[0], counts, far, TUTTI_I32, comm, NULL),
		       "rank 1 is elements 10 to 12, that of rank 3 12 to 13");
	expect_overlap(tutti_all_gatherv(send, recv[0], counts, inside, TUTTI_I32, comm, NULL),
		       "rank 0 is elements 0 to 3, that of rank 3 1 to 2");
	expect_overlap(tutti_gatherv(send, recv[0], counts, near, TUTTI_I32, 0, comm, NULL),
		       "rank 0 is elements 0 to 3, that of rank 1 3 to 5");
	expect_overlap(
		tutti_all_to_allv(send, ones, NULL, recv[0], ones, same, TUTTI_I32, comm, NULL),
		"elements 5 to 5");
}

/* Also with empty blocks anywhere, and in send, where blocks may be the same. */
static void test_any_order(void **state)
{
	const size_t counts[RANKS] = {4, 3, 0, 2}, offsets[RANKS] = {9, 2, 10, 0};
	const size_t zeros[RANKS] = {0};
	tutti_work *works[RANKS];

	for (int i = 0; i < ROOM; i++)
		send[i] = i + 1;
	for (int r = 0; r < RANKS; r++) {
		const tutti_call call = {.work = &works[r]};
		assert_int_equal(tutti_all_gatherv(send, recv[r], counts, offsets, TUTTI_I32,
						   comms[r], &call),
				 TUTTI_OK);
	}
	for (int r = 0; r < RANKS; r++) {
		assert_int_equal(tutti_work_wait(&works[r], 0), TUTTI_OK);
		assert_memory_equal(recv[r], send, 2 * sizeof *send);
		assert_memory_equal(recv[r] + 2, send, 3 * sizeof *send);
		assert_memory_equal(recv[r] + 9, send, 4 * sizeof *send);
	}
	for (int r = 0; r < RANKS; r++) {
		const tutti_call call = {.work = &works[r]};
		assert_int_equal(
			tutti_scatterv(send, recv[r], counts, zeros, TUTTI_I32, 0, comms[r], &call),
			TUTTI_OK);
	}
	for (int r = 0; r < RANKS; r++)
		assert_int_equal(tutti_work_wait(&works[r], 0), TUTTI_OK);
}

static int open_all(void **state)
{
	const tutti_config config = {.timeout_ms = 20000};

	return tutti_init_all(comms, RANKS, &config) != TUTTI_OK;
}

static int close_all(void **state)
{
	for (int r = 0; r < RANKS; r++)
		tutti_comm_destroy(comms[r]);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_any_order),
	};
	return cmocka_run_group_tests(tests, open_all, close_all);
}
