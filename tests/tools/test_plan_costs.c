/* no_asan: one thread that computes for long in plain arrays */
/* Without this a cost formula could say anything, and its algorithm be chosen where it is slow, or
 * not where it is fast: the seconds of each formula are compared with those that its plans take in
 * virtual time, on several numbers of ranks and for several sizes. */
#include "tools/tutti-plan/predict.h"

#include <string.h>

#include "tests/unit.h"

/* What plans take is between LEAST and MOST times of what the formula says: less where messages
 * overlap that the formula has one after the other, as both directions of rings; more where a rank
 * waits although no link is busy. */
#define LEAST 0.48
#define MOST  1.5

/* Others, and why. */
struct bounds {
	enum collective collective;
	const char *name;
	double least, most;
};
static const struct bounds exceptions[] = {
	/* The formula has down after up; slices of both overlap. */
	{COLL_ALL_REDUCE, "knomial", 0.22, MOST},
	{COLL_ALL_REDUCE, "star", 0.4, MOST},
	{COLL_ALL_GATHER, "knomial", 0.28, MOST},
	{COLL_ALL_TO_ALL, "knomial", 0.33, MOST},
	/* As above; and eight slices in flight do not fill a deep tree. */
	{COLL_ALL_REDUCE, "tree", 0.4, 2.3},
	/* The formula adds two rounds where ranks are no power of two; one of them overlaps. */
	{COLL_ALL_REDUCE, "doubling", 0.45, MOST},
	/* The formula has one message in a round, and the bytes of three: a root of 4 ranks sends
	 * three, one of 2 ranks sends one. */
	{COLL_BROADCAST, "knomial", 0.32, 1.7},
	/* Slices wait for each other; a call of one slice takes what the formula says. */
	{COLL_BROADCAST, "two_level", LEAST, 2.4},
};
#define EXCEPTIONS (sizeof exceptions / sizeof exceptions[0])

static const struct bounds *exception_of(const struct algorithm *a)
{
	for (size_t i = 0; i < EXCEPTIONS; i++)
		if (exceptions[i].collective == a->collective &&
		    strcmp(exceptions[i].name, a->name) == 0)
			return &exceptions[i];
	return NULL;
}

/* What was found of one algorithm. */
struct ratios {
	int count;
	double least, most;
};

static void compare(const struct algorithm *a, int ranks, int nodes, double bytes,
		    const struct bounds *bounds, struct ratios *found)
{
	struct links links = links_default();
	struct machine machine = {.links = links,
				  .node_beta = links.link[LINK_NET].beta,
				  .element = 4,
				  .slice_bytes = 256 << 10,
				  .scratch_bytes = 4 << 20};
	struct question q = {.algorithm = a,
			     .ranks = ranks,
			     .nodes = nodes,
			     .bytes = bytes,
			     .machine = &machine,
			     .steps_max = 1e6};

	if (look_why_not(a, ranks, nodes))
		return;
	struct point p = plan_predict(&q);
	if (p.how != HOW_SIMULATED)
		return;
	double formula = predict_formula(&q), ratio = p.seconds / formula;
	if (!(ratio >= bounds->least && ratio <= bounds->most))
		fail_msg("%s %s of %g bytes on %d ranks of %d node(s): the cost says %g us, the "
			 "plans take %g us: %.2f times as much, not %.2f to %.2f times",
			 collective_name(a->collective), a->name, bytes, ranks, nodes,
			 formula * 1e6, p.seconds * 1e6, ratio, bounds->least, bounds->most);
	found->least = found->count == 0 || ratio < found->least ? ratio : found->least;
	found->most = ratio > found->most ? ratio : found->most;
	found->count++;
}

/* Ranks of one node, and a node for each; what needs nodes has two, and else no formula looks at
 * them: it takes all messages for ones between nodes. */
static void compare_all(const struct algorithm *a)
{
	static const int sizes[] = {2, 3, 4, 5, 8, 12, 16, 32};
	static const double bytes[] = {8, 64 << 10, 256 << 10, 1 << 20, 16 << 20};
	const struct bounds usual = {a->collective, a->name, LEAST, MOST},
			    *exception = exception_of(a);
	const struct bounds *bounds = exception ? exception : &usual;
	struct ratios found = {0};

	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
		for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++) {
			int ranks = sizes[s];
			if (a->needs & NEEDS_NODES) {
				compare(a, ranks, 2, bytes[b], bounds, &found);
				continue;
			}
			compare(a, ranks, 1, bytes[b], bounds, &found);
			compare(a, ranks, ranks, bytes[b], bounds, &found);
		}
	if (found.count < 20)
		fail_msg("%s %s: only %d comparisons", collective_name(a->collective), a->name,
			 found.count);
	if (exception && found.least >= LEAST && found.most <= MOST)
		fail_msg("%s %s needs no exception", collective_name(a->collective), a->name);
}

static void test_costs_are_near_the_plans(void **state)
{
	(void)state;
	for (int i = 0; algorithm_at(i); i++)
		if (algorithm_at(i)->build)
			compare_all(algorithm_at(i));
	for (size_t i = 0; i < EXCEPTIONS; i++)
		assert_non_null(algorithm_find(exceptions[i].collective, exceptions[i].name));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_costs_are_near_the_plans),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
