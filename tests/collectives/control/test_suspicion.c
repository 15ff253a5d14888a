/* Would break: a broken connection or an unexpected message is the failure at once, though somebody
 * knows why it came, or never is. In virtual time. */
#include "collectives/control/failure.h"

#include "collectives/control/deadlines.h"
#include "core/clock.h"

#include <string.h>

#include "tests/unit.h"
#undef fail

#define START MS_TO_NS(77000)

static const struct failure lost_in_call = {
	.status = TUTTI_ERR_PEER, .rank = 3, .sequence = 12, .message = "rank 3 hung up"};
static const struct failure lost_message = {
	.status = TUTTI_ERR_PEER, .rank = 2, .sequence = NO_CALL, .message = "rank 2 hung up"};
static const struct failure mismatch = {.status = TUTTI_ERR_MISMATCH,
					.rank = FAILURE_NO_RANK,
					.sequence = 9,
					.message = "rank 1 sent what nobody expects"};

/* It is open for so many ms, and then the failure. */
static void expect_open_for(const struct suspicion *s, bool all_agree, int ms)
{
	assert_true(suspicion_is_open(s));
	assert_false(suspicion_is_over(s, all_agree, s->since_ns));
	assert_false(suspicion_is_over(s, all_agree, s->since_ns + MS_TO_NS(ms)));
	assert_true(suspicion_is_over(s, all_agree, s->since_ns + MS_TO_NS(ms) + 1));
}

static void test_none(void **state)
{
	struct suspicion s = {0};

	assert_false(suspicion_is_open(&s));
	assert_false(suspicion_is_over(&s, false, START));
	assert_false(suspicion_is_over(&s, true, UINT64_MAX));
}

static void test_unexplained(void **state)
{
	struct suspicion s = {0};

	assert_true(suspicion_note(&s, &lost_in_call, START));
	assert_false(suspicion_is_mismatch(&s));
	expect_open_for(&s, false, EXPLAIN_LOST_MS);
	expect_open_for(&s, true, EXPLAIN_LOST_MS); /* all made the call: but who hung up? */
	assert_string_equal(s.failure.message, "rank 3 hung up");
	assert_int_equal(s.failure.rank, 3);

	s = (struct suspicion){0};
	assert_true(suspicion_note(&s, &lost_message, START));
	expect_open_for(&s, false, EXPLAIN_LOST_MESSAGE_MS);
}

static void test_mismatch(void **state)
{
	struct suspicion s = {0};

	assert_true(suspicion_note(&s, &mismatch, START));
	assert_true(suspicion_is_mismatch(&s));
	expect_open_for(&s, false, EXPLAIN_MISMATCH_MS);
	assert_true(suspicion_is_over(&s, true, START)); /* nobody else has anything to say */
}

/* The first stays, but what explains it replaces it. Its message is its own. */
static void test_several(void **state)
{
	char text[] = "rank 3 hung up";
	struct failure lost = lost_in_call;
	struct suspicion s = {0};

	lost.message = text;
	assert_true(suspicion_note(&s, &lost, START));
	memset(text, 'x', sizeof text - 1);
	assert_false(suspicion_note(&s, &lost_message, START + 1));
	assert_string_equal(s.failure.message, "rank 3 hung up");
	assert_int_equal(s.since_ns, START);
	assert_true(suspicion_note(&s, &mismatch, START + 2));
	assert_int_equal(s.since_ns, START + 2);
	assert_string_equal(s.failure.message, mismatch.message);
	assert_false(suspicion_note(&s, &lost_in_call, START + 3));
	assert_false(suspicion_note(&s, &mismatch, START + 3));
	assert_int_equal(s.failure.sequence, 9);
}

static void test_kinds(void **state)
{
	assert_true(suspicion_may_be_explained(TUTTI_ERR_PEER));
	assert_true(suspicion_may_be_explained(TUTTI_ERR_MISMATCH));
	assert_false(suspicion_may_be_explained(TUTTI_ERR_MEMORY));
	assert_false(suspicion_may_be_explained(TUTTI_ERR_AUTH));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),     cmocka_unit_test(test_unexplained),
		cmocka_unit_test(test_mismatch), cmocka_unit_test(test_several),
		cmocka_unit_test(test_kinds),
	};

	return cmocka_run_group_tests_name("suspicion", tests, NULL, NULL);
}
