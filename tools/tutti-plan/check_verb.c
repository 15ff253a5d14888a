/* tutti-plan check: which algorithms and rank counts, and what came of it. */
#include "arguments.h"
#include "cases.h"

#include <stdio.h>

static void check_verb_describe(const struct plan_set *set)
{
	printf("%s %s, %d ranks", collective_name(set->algorithm->collective), set->algorithm->name,
	       set->size);
	if (set->nodes > 1)
		printf(" on %d nodes%s", set->nodes, set->in_turn ? " in turn" : "");
	if (set->root)
		printf(", root %d", set->root);
	printf("%s%s%s", set->in_place ? ", in place" : "", set->options.staged ? ", staged" : "",
	       set->options.scaled ? ", scaled" : "");
}

/* False: a plan is wrong, and it was said. */
static bool check_verb_check_size(const struct arguments *a, const struct algorithm *algorithm,
				  int size, int *checked)
{
	struct finding finding;
	struct cases cases = {.algorithm = algorithm,
			      .size = size,
			      .root = a->root,
			      .nodes = a->nodes,
			      .thorough = size <= 64 && !a->has_damage,
			      .damage = a->has_damage ? &a->damage : NULL};

	bool ok = check_cases(&cases, &finding);
	*checked += cases.checked;
	if (ok)
		return true;
	check_verb_describe(&cases.last);
	printf(":\n  %s\n", finding.text);
	return false;
}

static bool check_algorithm(const struct arguments *a, const struct algorithm *algorithm)
{
	static const struct rank_range usual[] = {{1, 17}, {31, 33}, {64, 64}};
	const struct rank_range *ranges = a->range_count ? a->ranges : usual;
	int n = a->range_count ? a->range_count : 3, checked = 0;

	for (int i = 0; i < n; i++)
		for (int size = ranges[i].first; size <= ranges[i].last; size++)
			if (!check_verb_check_size(a, algorithm, size, &checked))
				return false;
	printf("%s %s: %d call%s checked, nothing wrong%s\n",
	       collective_name(algorithm->collective), algorithm->name, checked,
	       checked == 1 ? "" : "s", checked ? "" : "; it is not for so many ranks");
	return true;
}

int plan_check(const struct arguments *a)
{
	bool ok = true;

	for (int i = 0; algorithm_at(i); i++) {
		const struct algorithm *algorithm = algorithm_at(i);
		if (!algorithm->build || (a->algorithm && algorithm != a->algorithm) ||
		    (a->collective != COLL_COUNT && algorithm->collective != a->collective))
			continue;
		ok &= check_algorithm(a, algorithm);
	}
	return ok ? 0 : 1;
}
