/* no_tsan: it has one thread */
/* Without this an algorithm of two levels could deliver wrong bytes, or never end, for some number
 * of nodes, ranks in a node, numbering of the ranks, root or order of delivery. */
#include "tests/collectives/sim_ranks.h"

#include "tests/core/memory/proof_kind.h"
#include "tests/unit.h"

static const char *run(const struct trial *t, int size, uint64_t seed)
{
	struct sim_ranks_config config = {.sim = {.size = size, .seed = seed, .order = SIM_RANDOM},
					  .slice_bytes = 64 << seed % 4,
					  .scratch_bytes = 1 << 20};
	return trial_try(t, &config, NULL, NULL);
}

/* Fewer elements than ranks, counts that do not divide, none. */
static const size_t counts[] = {0, 1, 5, 64, 333};

static void every_call(const struct algorithm *a, const struct nodes *nodes, bool staged,
		       uint64_t *seed)
{
	int size = nodes->count * nodes->local;
	bool is_rooted = collective_has_root(a->collective);

	for (int root = 0; root < (is_rooted ? size : 1); root++)
		for (int how = 0; how < 10; how++) {
			struct trial t = {.algorithm = a,
					  .count = counts[how / 2],
					  .dtype = TUTTI_I64,
					  .op = TUTTI_SUM,
					  .root = root,
					  .in_place = how % 2,
					  .staged = staged,
					  .uneven = !is_rooted && a->cut == CUT_NONE &&
						    sim_mix(seed) % 2,
					  .nodes = nodes,
					  .seed = sim_mix(seed)};
			uint64_t order = sim_mix(seed);
			const char *wrong = run(&t, size, order);
			if (wrong)
				fail_msg("%s %s, %d nodes of %d ranks, node step %d, count %zu, "
					 "root %d, "
					 "in place %d, uneven %d, seed %llu: %s",
					 collective_name(a->collective), a->name, nodes->count,
					 nodes->local, nodes->node_step, t.count, root, t.in_place,
					 t.uneven, (unsigned long long)order, wrong);
		}
}

static const int shapes[][2] = {{2, 2}, {2, 3}, {3, 2}, {2, 4}, {4, 2}, {3, 5}, {18, 2}};

static void every_shape(bool staged, size_t most)
{
	uint64_t seed = sim_first_seed();
	int tried = 0;
	for (int i = 0; algorithm_at(i); i++)
		for (size_t s = 0; algorithm_at(i)->needs & NEEDS_NODES && s < most; s++) {
			int count = shapes[s][0], local = shapes[s][1];
			struct nodes by_node = nodes_in_order(count * local, count);
			struct nodes in_turn = {count, local, 1, count};
			every_call(algorithm_at(i), &by_node, staged, &seed);
			every_call(algorithm_at(i), &in_turn, staged, &seed);
			tried++;
		}
	assert_true(tried >= 4);
}

static void test_every_shape(void **state)
{
	every_shape(false, sizeof shapes / sizeof shapes[0]);
}

static void test_staged(void **state)
{
	assert_int_equal(proof_kind_use(1), TUTTI_OK);
	every_shape(true, 3);
	assert_int_equal(proof_allocated(), 0);
}

/* An average is divided once, at the end, by the number of all ranks. */
static void test_average(void **state)
{
	struct nodes nodes = nodes_in_order(6, 2);
	const struct algorithm *a = algorithm_find(COLL_ALL_REDUCE, "two_level");
	for (uint64_t seed = 1; seed < 20; seed++) {
		struct trial t = {.algorithm = a,
				  .count = 50,
				  .dtype = TUTTI_F32,
				  .op = TUTTI_AVG,
				  .whole_average = true,
				  .nodes = &nodes,
				  .seed = seed};
		const char *wrong = run(&t, 6, seed);
		if (wrong)
			fail_msg("seed %llu: %s", (unsigned long long)seed, wrong);
	}
}

/* What a rank sends: twice its node's share within the node, and a node's part of that across; no
 * more bytes than a ring, and one message for each peer and phase. */
static void test_traffic(void **state)
{
	for (size_t s = 0; s < 6; s++) {
		int count = shapes[s][0], local = shapes[s][1], size = count * local;
		struct nodes nodes = nodes_in_order(size, count);
		struct trial t = {.algorithm = algorithm_find(COLL_ALL_REDUCE, "two_level"),
				  .count = 240,
				  .dtype = TUTTI_I64,
				  .nodes = &nodes,
				  .seed = s};
		struct sim_ranks_config config = {.sim = {.size = size, .seed = s + 1}};
		struct sim_ranks ranks;
		struct trial_run trial;
		tutti_stats stats;

		sim_ranks_open(&ranks, &config);
		trial_start(&trial, &ranks, &t, NULL, NULL);
		sim_ranks_run(&ranks);
		uint64_t all = 240 * 8, share = all / (uint64_t)local;
		uint64_t within = 2 * share * (uint64_t)(local - 1);
		uint64_t across = 2 * (share / (uint64_t)count) * (uint64_t)(count - 1);
		for (int r = 0; r < size; r++) {
			engine_stats(ranks.engines[r], &stats);
			assert_int_equal(stats.sent_bytes, within + across);
			assert_int_equal(stats.messages, 2 * (local - 1) + 2 * (count - 1));
		}
		assert_null(trial_end(&trial));
		sim_ranks_close(&ranks);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_shape),
		cmocka_unit_test(test_staged),
		cmocka_unit_test(test_average),
		cmocka_unit_test(test_traffic),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
