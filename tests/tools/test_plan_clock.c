/* slow: 3 s */
/* no_asan: one thread that computes for long in plain arrays */
/* Without this the predictions could differ from the model that they claim, from what the engine
 * does in the same model, or one rank could stand for all where it does not. */
#include "tests/collectives/sim_ranks.h"
#include "tools/tutti-plan/predict.h"

#include "core/memory/dtype.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

#define ALPHA 2e-6
#define BETA  4e-11
#define GAMMA 1e-10

static struct machine machine_of(size_t slice)
{
	struct link_speed link = {ALPHA, ALPHA, BETA};
	return (struct machine){.links = {{link, link}, GAMMA},
				.node_beta = BETA,
				.element = 4,
				.slice_bytes = slice,
				.scratch_bytes = 1 << 26};
}

static struct run_time run(const struct plan_set *set, const struct machine *m, double bytes,
			   bool exact)
{
	struct world world;
	double chunk = bytes / algorithm_split(set->algorithm, set->size);
	uint32_t width = algorithm_width(set->algorithm, set->size, (struct plan_options){0});

	assert_true(world_open(&world, set, 1 << 24, exact));
	struct run_time time = clock_run(&world, m, clock_cut(m, chunk, width));
	world_close(&world);
	return time;
}

static void assert_near(double a, double b)
{
	if (a < b * 0.9999 - 1e-10 || a > b * 1.0001 + 1e-10)
		fail_msg("%g s is not %g s", a, b);
}

static void test_events_come_in_order(void **state)
{
	struct events events;
	const struct event *due;
	uint64_t seed = 20261120, last = 0, added = 0, taken = 0;
	size_t n;
	(void)state;
	events_open(&events);
	events_add(&events, (struct event){.at = 5});
	added++;
	while ((n = events_take(&events, &due))) {
		assert_true(events.now >= last);
		last = events.now;
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(due[i].at, events.now);
			taken++;
			for (int k = 0; k < 3 && added < 20000; k++, added++) {
				seed = seed * 6364136223846793005u + 1442695040888963407u;
				events_add(&events,
					   (struct event){.at = events.now + (seed >> 33) % 5000});
			}
		}
	}
	assert_int_equal(taken, added);
	events_close(&events);
}

static double time_of(enum collective c, const char *name, int size, double bytes)
{
	struct plan_set set = {.algorithm = algorithm_find(c, name), .size = size, .nodes = 1};
	struct machine m = machine_of(1 << 20);
	double seconds = run(&set, &m, bytes, true).seconds;
	return seconds;
}

static void test_closed_forms(void **state)
{
	double n = 8192;
	(void)state;
	for (int p = 2; p <= 16; p *= 2) {
		double log = log2_up(p), part = n / p;
		assert_near(time_of(COLL_ALL_REDUCE, "ring", p, n),
			    (p - 1) * (2 * (ALPHA + part * BETA) + part * GAMMA));
		assert_near(time_of(COLL_ALL_REDUCE, "doubling", p, n),
			    log * (ALPHA + n * (BETA + GAMMA)));
		assert_near(time_of(COLL_BROADCAST, "doubling", p, n), log * (ALPHA + n * BETA));
		assert_near(time_of(COLL_BROADCAST, "ring", p, n), (p - 1) * (ALPHA + n * BETA));
		assert_near(time_of(COLL_ALL_TO_ALL, "direct", p, n), (p - 1) * (ALPHA + n * BETA));
	}
}

/* Slices stream through a chain: the last rank has the first after P - 1 links, and then one after
 * another. */
static void test_slices_stream(void **state)
{
	struct plan_set set = {
		.algorithm = algorithm_find(COLL_BROADCAST, "ring"), .size = 6, .nodes = 1};
	struct machine m = machine_of(4096);
	(void)state;
	assert_near(run(&set, &m, 64 * 4096, true).seconds, (5 + 63) * (ALPHA + 4096 * BETA));
}

/* Four ranks on two nodes exchange with the other node at once: through its port one goes after the
 * other. */
static void test_nodes_share_a_port(void **state)
{
	struct plan_set set = {
		.algorithm = algorithm_find(COLL_ALL_REDUCE, "doubling"), .size = 4, .nodes = 2};
	struct machine m = machine_of(1 << 20);
	double n = 1 << 16;
	(void)state;
	m.links.gamma = 0;
	m.links.link[LINK_LOCAL] = (struct link_speed){0, 0, 0};
	m.links.link[LINK_NET] = (struct link_speed){0, 0, BETA};
	assert_near(run(&set, &m, n, true).seconds, 2 * n * BETA);
	/* As fast as its two ranks together, and message after message. */
	m.node_beta = BETA / 2;
	assert_near(run(&set, &m, n, true).seconds, 1.5 * n * BETA);
}

static bool test_symmetry_at(const struct algorithm *a, int size, double bytes, size_t slice)
{
	struct plan_set set = {.algorithm = a, .size = size, .nodes = 1};
	struct machine m = machine_of(slice);
	bool is_one = false;

	if (look_why_not(a, size, 1))
		return false;
	m.links.link[LINK_LOCAL].overhead = m.links.link[LINK_NET].overhead =
		ALPHA / (size % 3 + 1);
	if (symmetry_of(&set) != SYMMETRY_NONE) {
		struct run_time one = run(&set, &m, bytes, false);
		struct run_time all = run(&set, &m, bytes, true);
		is_one = true;
		if (one.seconds != all.seconds || one.messages * (uint64_t)size != all.messages ||
		    one.stuck >= 0)
			fail_msg("%s %s, %d ranks: one rank takes %g s, all take %g s",
				 collective_name(a->collective), a->name, size, one.seconds,
				 all.seconds);
	}
	return is_one;
}

static void test_one_rank_stands_for_all(void **state)
{
	static const int sizes[] = {2, 3, 4, 5, 8, 12, 16, 31, 32, 64};
	int rings = 0;
	(void)state;
	for (int i = 0; algorithm_at(i); i++)
		for (size_t k = 0; algorithm_at(i)->build && k < 10; k++) {
			bool is_one = test_symmetry_at(algorithm_at(i), sizes[k], 1 << 14, 256);
			is_one &= test_symmetry_at(algorithm_at(i), sizes[k], 8, 1 << 17);
			rings += is_one && algorithm_at(i)->build == ring_all_reduce;
		}
	assert_int_equal(rings, 10);
}

/* Chains and trees must be run in full. */
static void test_others_do_not(void **state)
{
	struct plan_set set = {.size = 100, .nodes = 1};
	(void)state;
	set.algorithm = algorithm_find(COLL_BROADCAST, "ring");
	assert_int_equal(symmetry_of(&set), SYMMETRY_NONE);
	set.algorithm = algorithm_find(COLL_BROADCAST, "doubling");
	assert_int_equal(symmetry_of(&set), SYMMETRY_NONE);
	set.algorithm = algorithm_find(COLL_ALL_REDUCE, "doubling");
	assert_int_equal(symmetry_of(&set), SYMMETRY_NONE); /* 100 is no power of two */
}

/* The engine in the simulated network, whose links are as fast; it reduces in no time. */
static double engine_seconds(const struct algorithm *a, int size, size_t count,
			     const struct machine *m)
{
	struct sim_ranks ranks;
	struct trial_run trial_run;
	struct sim_ranks_config config = {.sim = {.size = size,
						  .seed = 1,
						  .order = SIM_TIMED,
						  .alpha_ns = m->links.link[0].alpha * 1e9,
						  .beta_ns = m->links.link[0].beta * 1e9},
					  .slice_bytes = m->slice_bytes,
					  .scratch_bytes = m->scratch_bytes};
	struct trial trial = {.algorithm = a, .count = count, .dtype = TUTTI_I32, .seed = 1};

	sim_ranks_open(&ranks, &config);
	trial_start(&trial_run, &ranks, &trial, NULL, NULL);
	sim_ranks_run(&ranks);
	double seconds = (double)sim_now_ns(ranks.sim) * 1e-9;
	assert_null(trial_end(&trial_run));
	sim_ranks_close(&ranks);
	return seconds;
}

static void compare_with_engine(const struct algorithm *a, const struct machine *m)
{
	for (int size = 2; size <= 9; size++) {
		struct plan_set set = {.algorithm = a, .size = size, .nodes = 1};
		size_t count = (size_t)size * 4096;
		if (a->build == doubling_all_reduce && (size & (size - 1)))
			continue; /* two send to one at a time */
		double mine = run(&set, m, (double)count * 4, true).seconds;
		double engine = engine_seconds(a, size, count, m);
		if (mine < engine * 0.99 || mine > engine * 1.01)
			fail_msg("%s %s, %d ranks, slices of %zu bytes: %g s, but the engine takes "
				 "%g s",
				 collective_name(a->collective), a->name, size, m->slice_bytes,
				 mine, engine);
	}
}

/* With one message at a time for each rank a port and a link are the same. The simulated network
 * lets alphas of slices overlap, so either there is no alpha or there are no slices. */
static void test_engine_takes_as_long(void **state)
{
	static const struct {
		enum collective collective;
		const char *name;
	} tried[] = {{COLL_ALL_REDUCE, "ring"},
		     {COLL_ALL_GATHER, "ring"},
		     {COLL_REDUCE_SCATTER, "ring"},
		     {COLL_BROADCAST, "ring"},
		     {COLL_ALL_REDUCE, "doubling"}};
	struct machine whole = machine_of(1 << 20), sliced = machine_of(1024);
	(void)state;
	whole.links.gamma = sliced.links.gamma = 0;
	for (int l = 0; l < LINKS; l++)
		sliced.links.link[l] = (struct link_speed){0, 0, 1e-9};
	for (int i = 0; i < 5; i++) {
		const struct algorithm *a = algorithm_find(tried[i].collective, tried[i].name);
		assert_non_null(a);
		compare_with_engine(a, &whole);
		if (a->build != doubling_all_reduce) /* there slices go to several peers at once */
			compare_with_engine(a, &sliced);
	}
}

/* Two rounds of slots, and sends that wait for their receives: the harshest that a transport may
 * do. */
static void test_nobody_waits_forever(void **state)
{
	(void)state;
	for (int i = 0; algorithm_at(i); i++)
		for (int size = 2; size <= 17; size++) {
			const struct algorithm *a = algorithm_at(i);
			bool by_nodes = (a->needs & NEEDS_NODES) && size % 2 == 0;
			struct plan_set set = {
				.algorithm = a, .size = size, .nodes = by_nodes ? 2 : 1};
			struct machine m = machine_of(64);
			if (!a->build || look_why_not(a, size, set.nodes))
				continue;
			m.rendezvous = true;
			struct run_time time = run(&set, &m, 64.0 * 19 * size, true);
			if (time.stuck >= 0)
				fail_msg("%s %s, %d ranks: rank %d never ends",
					 collective_name(a->collective), a->name, size, time.stuck);
		}
}

/* Beyond its means a prediction says so, and goes on by the formula from the last point. */
static void test_beyond_means(void **state)
{
	struct machine m = machine_of(1 << 17);
	struct question q = {.algorithm = algorithm_find(COLL_ALL_REDUCE, "ring"),
			     .bytes = 1 << 20,
			     .machine = &m,
			     .steps_max = 1000};
	struct point p[3] = {{.ranks = 64}, {.ranks = 128}, {.ranks = 1024}};
	(void)state;
	predict_curve(q, 1024, p, 3);
	assert_int_equal(p[0].how, HOW_SIMULATED);
	assert_int_equal(p[2].how, HOW_FORMULA);
	assert_near(p[2].seconds, 2 * 1023 * ALPHA + (1 << 20) * (2 * BETA + GAMMA) * 1023 / 1024);
	q.algorithm = algorithm_find(COLL_ALL_REDUCE, "direct");
	p[2].ranks = 2048;
	predict_curve(q, 2048, p, 3);
	assert_int_equal(p[2].how, HOW_NOT);
	assert_non_null(p[2].why);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events_come_in_order),
		cmocka_unit_test(test_closed_forms),
		cmocka_unit_test(test_slices_stream),
		cmocka_unit_test(test_nodes_share_a_port),
		cmocka_unit_test(test_one_rank_stands_for_all),
		cmocka_unit_test(test_others_do_not),
		cmocka_unit_test(test_engine_takes_as_long),
		cmocka_unit_test(test_nobody_waits_forever),
		cmocka_unit_test(test_beyond_means),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
