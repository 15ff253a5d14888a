/* no_tsan: it has one thread */
/* Without this an algorithm could send more bytes or messages than it says, or be built out of
 * another that does: what every rank sends and receives is counted, and what all do together is
 * exact. And its cost could have other bytes, of the busiest link, of all ranks or of one. */
#include "tests/collectives/sim_ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* Units are the bytes of the vector, or of one block in collectives that have blocks. */
typedef double of_ranks(double ranks);

static double log_up(double p)
{
	return log2_up((int)p);
}

static double one(double p)
{
	return p > 1;
}

static double two(double p)
{
	return 2 * one(p);
}

static double four(double p)
{
	return 4 * one(p);
}

static double others(double p)
{
	return p - 1;
}

static double others_twice(double p)
{
	return 2 * (p - 1);
}

static double others_four_times(double p)
{
	return 4 * (p - 1);
}

static double all_pairs(double p)
{
	return p * (p - 1);
}

static double both_phases(double p)
{
	return 2 * (p - 1) / p;
}

static double two_logs(double p)
{
	return 2 * log_up(p);
}

static double all_logs(double p)
{
	return p * log_up(p);
}

/* ---- doubling, trees ---------------------------------------------------------------------------
 */

static double log_down(double p)
{
	return log2_up((int)p + 1) - 1;
}

static double doubling_total(double p)
{
	int pow2 = 1 << (int)log_down(p);
	return pow2 * log_down(p) + 2 * (p - pow2);
}

static double doubling_most(double p)
{
	return log_down(p) + (1 << (int)log_down(p) != (int)p);
}

static double knomial_sends(double p)
{
	return 3 * (int)((log_up(p) + 1) / 2);
}

static double knomial_both(double p)
{
	return knomial_sends(p) + 1;
}

static double largest_subtree(double p)
{
	double most = 0;
	for (int i = 1; i < (int)p; i++) {
		int low = i & -i, n = low < (int)p - i ? low : (int)p - i;
		most = n > most ? n : most;
	}
	return most;
}

static double all_subtrees(double p)
{
	double sum = 0;
	for (int i = 1; i < (int)p; i++) {
		int low = i & -i;
		sum += low < (int)p - i ? low : (int)p - i;
	}
	return sum;
}

static double spread_total(double p)
{
	return all_subtrees(p) / p + p - 1;
}

static double spread_receives(double p)
{
	return (largest_subtree(p) + p - 1) / p;
}

static double bruck_blocks(double p)
{
	double sum = 0;
	for (int i = 1; i < (int)p; i++)
		sum += __builtin_popcount((unsigned)i);
	return sum;
}

static double bruck_total(double p)
{
	return p * bruck_blocks(p);
}

/* By way of a root, blocks going up, all of them down; and the other way round. */
static double up_and_down(double p)
{
	return all_subtrees(p) + p * (p - 1);
}

static double twice_up(double p)
{
	return 2 * p * all_subtrees(p);
}

static double all_blocks_down(double p)
{
	return largest_subtree(p) + knomial_sends(p) * p;
}

static double all_blocks_and_own(double p)
{
	return p + largest_subtree(p);
}

static double both_logs(double p)
{
	return log_up(p) + 1;
}

/* ---- what each algorithm claims ----------------------------------------------------------------
 */

static const struct claim {
	enum collective collective;
	const char *name;
	of_ranks *total;            /* bytes that all send together: exactly            */
	of_ranks *sends, *receives; /* bytes of one rank at the most                    */
	of_ranks *messages;         /* that one rank sends at the most                  */
} claims[] = {
	{COLL_ALL_REDUCE, "ring", others_twice, both_phases, both_phases, others_twice},
	{COLL_ALL_REDUCE, "rings", others_twice, both_phases, both_phases, others_four_times},
	{COLL_ALL_REDUCE, "circulant", others_twice, both_phases, both_phases, two_logs},
	{COLL_ALL_REDUCE, "direct", others_twice, both_phases, both_phases, others_twice},
	{COLL_ALL_REDUCE, "tree", others_twice, two, two, four},
	{COLL_ALL_REDUCE, "knomial", others_twice, knomial_both, log_up, knomial_both},
	{COLL_ALL_REDUCE, "star", others_twice, others, others, others},
	{COLL_ALL_REDUCE, "doubling", doubling_total, doubling_most, doubling_most, doubling_most},
	{COLL_REDUCE_SCATTER, "ring", all_pairs, others, others, others},
	{COLL_REDUCE_SCATTER, "rings", all_pairs, others, others, others_twice},
	{COLL_REDUCE_SCATTER, "circulant", all_pairs, others, others, log_up},
	{COLL_REDUCE_SCATTER, "direct", all_pairs, others, others, others},
	{COLL_REDUCE_SCATTER, "knomial", up_and_down, all_blocks_and_own, all_logs, both_logs},
	{COLL_ALL_GATHER, "ring", all_pairs, others, others, others},
	{COLL_ALL_GATHER, "rings", all_pairs, others, others, others_twice},
	{COLL_ALL_GATHER, "circulant", all_pairs, others, others, log_up},
	{COLL_ALL_GATHER, "direct", all_pairs, others, others, others},
	{COLL_ALL_GATHER, "knomial", up_and_down, all_blocks_down, all_blocks_and_own,
	 knomial_both},
	{COLL_BROADCAST, "ring", others, one, one, one},
	{COLL_BROADCAST, "doubling", others, log_up, one, log_up},
	{COLL_BROADCAST, "direct", others, others, one, others},
	{COLL_BROADCAST, "knomial", others, knomial_sends, one, knomial_sends},
	{COLL_BROADCAST, "tree", others, one, one, two},
	{COLL_BROADCAST, "spread", spread_total, both_phases, spread_receives, two_logs},
	{COLL_REDUCE, "direct", others, one, others, one},
	{COLL_REDUCE, "ring", others, one, one, one},
	{COLL_REDUCE, "knomial", others, one, log_up, one},
	{COLL_REDUCE, "tree", others, one, one, two},
	{COLL_GATHER, "direct", others, one, others, one},
	{COLL_GATHER, "knomial", all_subtrees, largest_subtree, others, one},
	{COLL_SCATTER, "direct", others, others, one, others},
	{COLL_SCATTER, "knomial", all_subtrees, others, largest_subtree, log_up},
	{COLL_ALL_TO_ALL, "direct", all_pairs, others, others, others},
	{COLL_ALL_TO_ALL, "pairwise", all_pairs, others, others, others},
	{COLL_ALL_TO_ALL, "bruck", bruck_total, bruck_blocks, bruck_blocks, log_up},
	{COLL_ALL_TO_ALL, "knomial", twice_up, all_pairs, all_pairs, both_logs},
	{COLL_BARRIER, "doubling", all_logs, log_up, log_up, log_up},
	{COLL_BARRIER, "knomial", others_twice, knomial_both, log_up, knomial_both},
};

static const struct claim *claim_of(const struct algorithm *a)
{
	for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++)
		if (claims[i].collective == a->collective && strcmp(claims[i].name, a->name) == 0)
			return &claims[i];
	fail_msg("nobody says what %s %s sends", collective_name(a->collective), a->name);
	return NULL;
}

static void holds(const struct algorithm *a, int size, const char *what, double is, double at_most)
{
	if (is > at_most + 1e-6)
		fail_msg("%s %s, %d ranks: %s is %g, not %g", collective_name(a->collective),
			 a->name, size, what, is, at_most);
}

/* Of all ranks; most: of one that has the most. In units. */
struct traffic {
	double total, most_sent, most_received;
};

static void near(const struct algorithm *a, int size, const char *what, double says, double is,
		 double times)
{
	if (says < is * (1 - 1e-6) || says > is * times * (1 + 1e-6))
		fail_msg("%s %s, %d ranks: the cost has %g as %s; by the plans it is %g",
			 collective_name(a->collective), a->name, size, says, what, is);
}

/* A cost never says less than the plans send. It may say more: where a power of two stands for the
 * number of ranks, or up and down are one after the other. */
static void check_cost(const struct algorithm *a, int size, const struct traffic *t)
{
	struct cost c = a->cost((struct topology){size, 1});
	bool are_alike = c.mean.messages <= 0;
	double mean = are_alike ? c.link[LINK_LOCAL].bytes : c.mean.bytes;

	if (size < 3 || a->collective == COLL_BARRIER)
		return;
	near(a, size, "link.bytes", c.link[LINK_LOCAL].bytes, fmax(t->most_sent, t->most_received),
	     2.5);
	near(a, size, "mean.bytes", mean, t->total / size, are_alike ? 2.3 : 1.5);
	if (!are_alike)
		near(a, size, "busiest.bytes", c.busiest.bytes,
		     fmax(t->most_sent, t->most_received / 2), 2);
}

/* Counts that divide into all parts, and one slice. */
static void count_traffic(const struct algorithm *a, int size)
{
	const struct claim *claim = claim_of(a);
	bool has_blocks = collective_has_blocks(a->collective, SEND_SIDE) ||
			  collective_has_blocks(a->collective, RECV_SIDE);
	struct sim_ranks_config config = {.sim = {.size = size, .seed = (uint64_t)size},
					  .slice_bytes = 1 << 20,
					  .scratch_bytes = (size_t)1 << 30};
	struct trial t = {.algorithm = a,
			  .count = has_blocks ? 4 : 4 * (size_t)size,
			  .dtype = TUTTI_I32,
			  .root = collective_has_root(a->collective) ? size / 2 : 0};
	struct sim_ranks ranks;
	struct trial_run run;
	double unit = a->collective == COLL_BARRIER ? 4 : 4 * (double)t.count, p = size;
	struct traffic traffic = {0};

	sim_ranks_open(&ranks, &config);
	trial_start(&run, &ranks, &t, NULL, NULL);
	sim_ranks_run(&ranks);
	for (int r = 0; r < size; r++) {
		tutti_stats stats = {0};
		engine_stats(ranks.engines[r], &stats);
		double sent = (double)stats.sent_bytes / unit;
		double received = (double)stats.received_bytes / unit;
		traffic.total += sent;
		traffic.most_sent = fmax(traffic.most_sent, sent);
		traffic.most_received = fmax(traffic.most_received, received);
		holds(a, size, "what a rank sends", sent, claim->sends(p));
		holds(a, size, "what a rank receives", received, claim->receives(p));
		holds(a, size, "a rank's messages", (double)stats.messages, claim->messages(p));
	}
	holds(a, size, "what all send", traffic.total, claim->total(p));
	holds(a, size, "what nobody sends", claim->total(p), traffic.total);
	check_cost(a, size, &traffic);
	assert_null(trial_end(&run));
	sim_ranks_close(&ranks);
}

/* Has plans, and for so many ranks; test_nodes.c has those that need nodes. */
static bool is_tried(const struct algorithm *a, int size)
{
	return a->build && !(a->needs & NEEDS_NODES) &&
	       (!(a->needs & NEEDS_FEW_RANKS) || size <= 32);
}

static void test_traffic(void **state)
{
	static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 31, 33, 64};
	for (int i = 0; algorithm_at(i); i++)
		for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
			if (is_tried(algorithm_at(i), sizes[s]))
				count_traffic(algorithm_at(i), sizes[s]);
}

/* The most messages that a rank sends or receives. */
static uint32_t messages_of(const struct algorithm *a, int size)
{
	uint32_t most = 0;
	for (int r = 0; r < size; r++) {
		uint32_t count[2] = {0, 0};
		struct plan_key key = {.rank = r, .size = size};
		struct plan *p = algorithm_plan(a, &key);
		assert_non_null(p);
		for (uint32_t i = 0; i < p->count; i++)
			if (p->steps[i].peer >= 0)
				count[p->steps[i].kind == STEP_SEND]++;
		for (int k = 0; k < 2; k++)
			most = count[k] > most ? count[k] : most;
		plan_free(p);
	}
	return most;
}

/* Every collective has an algorithm of logarithmically many rounds and messages. */
static void test_logarithmic(void **state)
{
	for (int c = 0; c < COLL_PATTERNS; c++) {
		bool is_known = false, is_quick = false;
		for (int i = 0; algorithm_at(i) && !is_quick; i++) {
			const struct algorithm *a = algorithm_at(i);
			if ((int)a->collective != c || !a->build || (a->needs & NEEDS_NODES))
				continue;
			is_known = true;
			is_quick =
				a->cost((struct topology){100, 1}).link[LINK_LOCAL].rounds <= 14 &&
				messages_of(a, 100) <= 14;
		}
		if (is_known && !is_quick)
			fail_msg("%s has nothing logarithmic", collective_name((enum collective)c));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_traffic),
		cmocka_unit_test(test_logarithmic),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
