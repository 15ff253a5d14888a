/* What would break: a rank that waits for long is told nothing, or the same again and again. */
#include "core/long_wait.h"

#include "core/clock.h"

#include "tests/unit.h"

static void it_is_said_late_and_seldom(void **state)
{
	struct long_wait wait = {0};
	uint64_t begun = 1, said = begun + MS_TO_NS(LONG_WAIT_MS);

	assert_false(long_wait_is_due(&wait, begun));
	assert_false(long_wait_is_due(&wait, said - 1));
	assert_true(long_wait_is_due(&wait, said));
	assert_false(long_wait_is_due(&wait, said));
	assert_false(long_wait_is_due(&wait, said + MS_TO_NS(LONG_WAIT_AGAIN_MS) - 1));
	assert_true(long_wait_is_due(&wait, said + MS_TO_NS(LONG_WAIT_AGAIN_MS)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_is_said_late_and_seldom)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
