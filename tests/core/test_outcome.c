/* Would break: ranks that report different causes of a failed step, or one that another rank's
 * failure had caused. */
#include "core/outcome.h"

#include <string.h>

#include "tests/unit.h"
#undef fail

#define RANKS 5

static struct {
	uint64_t before;
	struct outcome outcome;
	char behind[7];
} all[RANKS];

static void expect_cause(int cause)
{
	assert_int_equal(outcome_cause(&all[0].outcome, sizeof all[0], RANKS, NULL, 0), cause);
}

static void test_cause(void **state)
{
	memset(all, 0, sizeof all);
	expect_cause(-1);
	all[3].outcome.status = TUTTI_ERR_PEER;
	expect_cause(3);
	all[1].outcome.status = TUTTI_ERR_TIMEOUT;
	all[2].outcome.status = TUTTI_ERR_ABORTED;
	expect_cause(1);
	all[4].outcome.status = TUTTI_ERR_MEMORY;
	expect_cause(4);
	all[2].outcome.status = TUTTI_ERR_MISMATCH;
	expect_cause(2);
}

static void test_members(void **state)
{
	const uint8_t marks[RANKS] = {1, 2, 1, 1, 2};

	memset(all, 0, sizeof all);
	all[1].outcome.status = TUTTI_ERR_MEMORY;
	assert_int_equal(outcome_cause(&all[0].outcome, sizeof all[0], RANKS, marks, 1), -1);
	assert_int_equal(outcome_cause(&all[0].outcome, sizeof all[0], RANKS, marks, 2), 1);
	all[3].outcome.status = TUTTI_ERR_PEER;
	assert_int_equal(outcome_cause(&all[0].outcome, sizeof all[0], RANKS, marks, 1), 3);
}

static void expect_message(int rank, const char *before, const char *message)
{
	assert_int_equal(outcome_fail(&all[0].outcome, rank, before), TUTTI_ERR_MEMORY);
	assert_string_equal(last_error(), message);
}

static void test_message(void **state)
{
	fail(TUTTI_ERR_MEMORY, "no memory for %d ranks", 7);
	outcome_set(&all[0].outcome, TUTTI_ERR_MEMORY);
	expect_message(3, "", "rank 3: no memory for 7 ranks");
	expect_message(3, "split #2: ", "split #2: rank 3: no memory for 7 ranks");
	strcpy(all[0].outcome.message, "Rank 3 has no memory");
	expect_message(3, "split #2: ", "split #2: Rank 3 has no memory");
	expect_message(31, "", "rank 31: Rank 3 has no memory");
	assert_null(outcome_behind_name("rank 31: no", 3));
	assert_string_equal(outcome_behind_name("rank 31: no", 31), ": no");
	outcome_set(&all[0].outcome, TUTTI_OK);
	assert_string_equal(all[0].outcome.message, "");
}

/* What another rank sends may be anything. */
static void test_nonsense(void **state)
{
	struct outcome o = {.status = 4711};

	memset(o.message, 'x', sizeof o.message);
	assert_int_equal(outcome_fail(&o, 0, "grow: "), TUTTI_ERR_INTERNAL);
	assert_int_equal(strlen(last_error()), ERROR_BYTES - 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cause),
		cmocka_unit_test(test_members),
		cmocka_unit_test(test_message),
		cmocka_unit_test(test_nonsense),
	};

	return cmocka_run_group_tests_name("outcome", tests, NULL, NULL);
}
