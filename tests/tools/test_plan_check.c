/* slow: 5 s */
/* no_asan: one thread that computes for long in plain arrays */
/* Without this a plan could race with itself, wait for itself, or send what nobody receives, for
 * some rank count that no other test runs. */
#include "tools/tutti-plan/check.h"

#include <stdlib.h>

#include "tests/unit.h"

static void check_size(const struct algorithm *a, int size, bool thorough)
{
	struct finding finding;
	struct cases cases = {.algorithm = a, .size = size, .root = -1, .thorough = thorough};
	const struct plan_set *last = &cases.last;

	if (!check_cases(&cases, &finding))
		fail_msg("%s %s, %d ranks, %d nodes%s, root %d, in place %d, staged %d, scaled %d: "
			 "%s",
			 collective_name(a->collective), a->name, size, last->nodes,
			 last->in_turn ? " in turn" : "", last->root, last->in_place,
			 last->options.staged, last->options.scaled, finding.text);
}

static void test_every_algorithm(void **state)
{
	(void)state;
	for (int i = 0; algorithm_at(i); i++)
		for (int size = 1; algorithm_at(i)->build && size <= 64; size++)
			check_size(algorithm_at(i), size, size <= 12);
}

/* Those with few steps also for many ranks. */
static bool has_few_steps(const struct algorithm *a, int size)
{
	struct plan_set set = {.algorithm = a, .size = size, .nodes = 1};
	if (!a->build || (a->needs & NEEDS_NODES) || look_why_not(a, size, 1))
		return false;
	struct plan *first = look_build(&set, 0);
	bool few = first->count < 100;
	plan_free(first);
	return few;
}

static void test_many_ranks(void **state)
{
	static const int sizes[] = {100, 127, 128, 1000};
	int algorithms = 0;
	(void)state;
	for (int i = 0; algorithm_at(i); i++)
		for (int k = 0; k < 4; k++)
			if (has_few_steps(algorithm_at(i), sizes[k])) {
				check_size(algorithm_at(i), sizes[k], false);
				algorithms++;
			}
	assert_true(algorithms >= 8);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_algorithm),
		cmocka_unit_test(test_many_ranks),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
