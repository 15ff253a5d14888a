/* What would break: ranks that agree on an error which only follows from another rank's, so that
 * the message does not have the cause. */
#include "tests/train/ranks.h"

#include "collectives/api/agreed_error.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { RANKS = 4 };

/* What each rank has, and the rank whose error all of them report. */
struct scene {
	tutti_status own[RANKS];
	int cause;
};

static void agree(tutti_comm *comm, void *arg)
{
	const struct scene *scene = arg;
	tutti_status own = scene->own[tutti_rank(comm)];
	char message[64];

	snprintf(message, sizeof message, "Rank %d has its error.", tutti_rank(comm));
	tutti_status status = error_agree(comm, own ? tutti_set_error(own, message) : TUTTI_OK);
	snprintf(message, sizeof message, "%sRank %d has its error.",
		 tutti_rank(comm) == scene->cause ? "" : "On rank 2: ", scene->cause);
	CHECK(status == scene->own[scene->cause]);
	CHECK(strcmp(tutti_comm_error(NULL), message) == 0);
}

static void test_the_cause_goes_before_what_follows_from_it(void **state)
{
	static const tutti_status secondary[] = {TUTTI_ERR_PEER, TUTTI_ERR_TIMEOUT,
						 TUTTI_ERR_ABORTED};

	for (int i = 0; i < 3; i++) {
		struct scene scene = {{secondary[i], TUTTI_OK, TUTTI_ERR_SYSTEM, TUTTI_ERR_MEMORY},
				      2};
		assert_int_equal(ranks_as_threads(RANKS, agree, &scene), 0);
	}
}

static void test_the_first_secondary_error_is_better_than_none(void **state)
{
	struct scene scene = {{TUTTI_OK, TUTTI_OK, TUTTI_ERR_TIMEOUT, TUTTI_ERR_PEER}, 2};

	assert_int_equal(ranks_as_threads(RANKS, agree, &scene), 0);
}

/* Where ranks cannot agree, each has what it knows. */
static void on_a_failed_one(tutti_comm *comm, void *arg)
{
	tutti_status own = *(const tutti_status *)arg;
	bool has_own = tutti_rank(comm) == 0;

	CHECK(tutti_comm_abort(comm) == TUTTI_OK);
	tutti_status status =
		error_agree(comm, has_own ? tutti_set_error(own, "Rank 0's own.") : TUTTI_OK);
	CHECK(status == (has_own ? own : TUTTI_ERR_ABORTED));
	CHECK(!has_own || strcmp(tutti_comm_error(NULL), "Rank 0's own.") == 0);
}

static void test_its_own_error_is_better_than_the_communicators(void **state)
{
	tutti_status own[] = {TUTTI_ERR_SYSTEM, TUTTI_ERR_TIMEOUT};

	for (int i = 0; i < 2; i++)
		assert_int_equal(ranks_as_threads(1, on_a_failed_one, &own[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_cause_goes_before_what_follows_from_it),
		cmocka_unit_test(test_the_first_secondary_error_is_better_than_none),
		cmocka_unit_test(test_its_own_error_is_better_than_the_communicators),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
