/* slow: 3 s */
/* no_tsan: it has one thread */
/* Without this tutti-plan layout could name a mesh that does not fit, or is not the fastest by its
 * own model: memory against the library's estimate and by hand, times at corners where they are
 * known, and the search against one that leaves out nothing. */
#include "tools/tutti-plan/layout_memory.h"
#include "tools/tutti-plan/layout_search.h"
#include "tools/tutti-plan/layout_tail.h"

#include "train/pipeline/schedule/virtual_step.h"
#include "tests/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static const struct gpt_sizes small = {4, 4, 32, 80, 16};
static uint64_t seed;

/* Links that take no time, and sums, too. */
static struct machine free_machine(void)
{
	return (struct machine){.element = 4, .slice_bytes = 256 << 10, .scratch_bytes = 4 << 20};
}

static struct machine slow_machine(void)
{
	struct machine machine = free_machine();

	machine.links = links_default();
	machine.node_beta = machine.links.link[LINK_NET].beta;
	return machine;
}

static struct layout_question question_of(struct gpt_sizes model, int ranks, int nodes,
					  const struct machine *machine)
{
	return (struct layout_question){.model = model,
					.ranks = ranks,
					.nodes = nodes,
					.batch = 2 * ranks,
					.dtype = TUTTI_F32,
					.has_weights = true,
					.rate = 1e9,
					.machine = machine};
}

static void test_sizes_are_read(void **state)
{
	static const char *const wrong[] = {
		"",
		"gpt-1.5b",
		"layers=4",
		"layers=4,heads=3,channels=32,vocab=80,length=16",
		"layers=4,heads=4,channels=32,vocab=80,length=16,",
		"layers=4,layers=4,heads=4,channels=32,vocab=80,length=16",
		"layers=4,heads=4,channels=32,vocab=80,length=16,depth=3",
		"layers=-4,heads=4,channels=32,vocab=80,length=16",
		"layers=4x,heads=4,channels=32,vocab=80,length=16",
	};
	struct gpt_sizes sizes;

	(void)state;
	assert_true(gpt_sizes_read(&sizes, "heads=4,layers=4,channels=32,vocab=80,length=16"));
	assert_memory_equal(&sizes, &small, sizeof sizes);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(gpt_sizes_read(&sizes, wrong[i]));
	for (int i = 0; gpt_preset(i); i++)
		assert_true(gpt_sizes_read(&sizes, gpt_preset(i)));
	/* GPT-2's largest has 1,557,611,200. */
	assert_true(gpt_sizes_read(&sizes, "gpt-1.5B"));
	assert_true(48 * gpt_layer_elements(&sizes, 1) + gpt_embedding_elements(&sizes, 1) +
			    gpt_head_elements(&sizes) ==
		    1557611200);
}

static void test_trainers_are_as_estimated(void **state)
{
	static const struct candidate candidates[] = {
		{1, 1, 1, 1, TUTTI_DDP, 0, TUTTI_1F1B, 1, 1, false},
		{2, 2, 1, 2, TUTTI_ZERO1, 0, TUTTI_1F1B, 1, 2, false},
		{4, 1, 1, 2, TUTTI_ZERO2, 0, TUTTI_1F1B, 1, 2, false},
		{2, 2, 1, 2, TUTTI_FSDP, 0, TUTTI_1F1B, 1, 1, true},
		{4, 1, 1, 2, TUTTI_HSDP, 2, TUTTI_1F1B, 1, 1, true},
		{2, 1, 2, 1, TUTTI_FSDP, 0, TUTTI_ZERO_BUBBLE, 1, 2, false},
		{2, 1, 2, 2, TUTTI_ZERO2, 0, TUTTI_INTERLEAVED, 2, 2, false},
		{1, 2, 2, 2, TUTTI_ZERO1, 0, TUTTI_INTERLEAVED, 2, 2, false},
	};
	struct machine machine = slow_machine();
	struct trainer_book book = {0};

	(void)state;
	for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
		const struct candidate *c = &candidates[i];
		struct layout_question q =
			question_of(small, c->dp * c->cp * c->pp * c->tp, 1, &machine);
		const tutti_axis axes[] = {
			{"dp", c->dp}, {"cp", c->cp}, {"pp", c->pp}, {"tp", c->tp}};
		const tutti_train_config config = {.strategy = c->strategy,
						   .shard_size = c->shard_size};
		tutti_model *model = gpt_describe(&small, c->pp * c->chunks);
		tutti_train_stats stats;
		assert_int_equal(tutti_memory_estimate_on(model, axes, 4, &config, &stats),
				 TUTTI_OK);
		tutti_model_destroy(model);
		struct held_bytes held = candidate_memory(&q, c, &book);
		assert_true(held.trainer ==
			    (double)(stats.param_bytes + stats.grad_bytes + stats.optimizer_bytes +
				     stats.gathered_peak_bytes));
	}
	trainer_book_close(&book);
}

/* 2 sequences of 16 tokens, 4 layers of 32 channels with 4 heads, f32. A layer keeps 16 c and 4 x
 * 16 weights a token, and 4 numbers of its norms; the head 2 c and 80 logits; gradients take 6 c.
 */
static void test_activations_by_hand(void **state)
{
	struct machine machine = slow_machine();
	struct layout_question q = question_of(small, 1, 1, &machine);
	struct candidate c = {1, 1, 1, 1, TUTTI_DDP, 0, TUTTI_1F1B, 1, 1, false};
	struct trainer_book book = {0};
	double layer = 16 * 32 + 64 + 4, rest = 2 * 32 + 80 + 6 * 32;

	(void)state;
	assert_true(candidate_memory(&q, &c, &book).activations == 4 * 32 * (4 * layer + rest));
	q.has_weights = false;
	assert_true(candidate_memory(&q, &c, &book).activations ==
		    4 * 32 * (4 * (layer - 64) + rest));
	c.recomputes = true;
	assert_true(candidate_memory(&q, &c, &book).activations ==
		    4 * 32 * (4 * 32 + (layer - 64) + rest));
	/* Half of each sequence, half of each layer: tokens of the stream are divided, too. */
	q = question_of(small, 4, 1, &machine);
	q.batch = 2;
	q.has_weights = false;
	c = (struct candidate){1, 2, 1, 2, TUTTI_DDP, 0, TUTTI_1F1B, 1, 1, false};
	assert_true(candidate_memory(&q, &c, &book).activations ==
		    4 * 16 * (4 * (16 * 16 + 2) + 2 * 16 + 40 + 6 * 16));
	q.has_weights = true; /* ring attention: a sum for each of 2 heads */
	assert_true(candidate_memory(&q, &c, &book).activations ==
		    4 * 16 * (4 * (16 * 16 + 2 + 2) + 2 * 16 + 40 + 6 * 16));
	/* 1F1B on 2 ranks holds 2 of 4 micro-batches of 2 layers on the first, GPipe all. */
	q = question_of(small, 2, 1, &machine);
	q.batch = 4;
	q.has_weights = false;
	c = (struct candidate){1, 1, 2, 1, TUTTI_DDP, 0, TUTTI_1F1B, 1, 4, false};
	assert_true(candidate_memory(&q, &c, &book).activations ==
		    4 * 16 * (2 * 2 * (layer - 64) + 6 * 32));
	c.schedule = TUTTI_GPIPE;
	assert_true(candidate_memory(&q, &c, &book).activations ==
		    4 * 16 * (4 * 2 * (layer - 64) + 4 * (2 * 32 + 80) + 6 * 32));
	/* Zero bubble holds 2 of them on each rank, with gradients. */
	c.schedule = TUTTI_ZERO_BUBBLE;
	assert_true(candidate_memory(&q, &c, &book).activations ==
		    4 * 16 * (2 * 2 * (27 * 32 + 4) + 2 * (2 * 32 + 80) + 6 * 32));
	trainer_book_close(&book);
}

static void test_axes_lie_on_nodes(void **state)
{
	struct machine machine = slow_machine();
	struct layout_question q = question_of(small, 32, 4, &machine);
	double beta = machine.links.link[LINK_NET].beta;
	struct axis_ranks a = axis_ranks_of(&q, 8, 1);

	(void)state;
	assert_int_equal(a.nodes, 1);
	a = axis_ranks_of(&q, 4, 2);
	assert_int_equal(a.nodes, 1);
	/* Two of a node; the other six have such groups, too. */
	a = axis_ranks_of(&q, 8, 4);
	assert_int_equal(a.nodes, 4);
	assert_true(fabs(a.beta / beta - 4) < 1e-9);
	a = axis_ranks_of(&q, 4, 8);
	assert_int_equal(a.nodes, 4);
	assert_true(fabs(a.beta / beta - 8) < 1e-9);
	a = axis_ranks_of(&q, 16, 1);
	assert_int_equal(a.nodes, 2);
	assert_true(fabs(a.beta / beta - 1) < 1e-9);
	a = axis_ranks_of(&q, 1, 0);
	assert_int_equal(a.nodes, 1);
}

static struct step_found step_of(const struct layout_question *q, const struct candidate *c)
{
	struct step_time time = step_time_open(q, c);
	struct step_found found = step_time_run(&time, q, c);

	assert_true(time.least <= found.seconds * (1 + 1e-12));
	step_time_close(&time);
	return found;
}

static void assert_close(double a, double b)
{
	if (!(fabs(a - b) <= 1e-9 * fabs(b)))
		fail_msg("%.12g is not %.12g", a, b);
}

/* Of a token, forward: a layer 24 c c in products and 2 c length in attention, the head 2 c vocab.
 * Backward is twice that. */
static void test_one_rank_computes(void **state)
{
	struct machine machine = free_machine();
	struct layout_question q = question_of(small, 1, 1, &machine);
	struct candidate c = {1, 1, 1, 1, TUTTI_DDP, 0, TUTTI_1F1B, 1, 2, false};
	double layer = 24 * 32 * 32 + 2 * 32 * 16, head = 2 * 32 * 80;
	struct step_found found = step_of(&q, &c);

	(void)state;
	assert_close(found.seconds, 32 * 3 * (4 * layer + head) / 1e9);
	assert_close(found.compute, 1);
	c.recomputes = true;
	assert_close(step_of(&q, &c).seconds, 32 * (3 * (4 * layer + head) + 4 * layer) / 1e9);
	/* 2 micro-batches of 4 layers, four times in each, or three times. */
	q.overhead = 1e-3;
	assert_close(step_of(&q, &c).seconds,
		     32 * (3 * (4 * layer + head) + 4 * layer) / 1e9 + 2 * 4 * 4e-3);
	c.recomputes = false;
	assert_close(step_of(&q, &c).seconds, found.seconds + 2 * 4 * 3e-3);
	q.overhead = 0;
	/* An update is 28 / 3 sums of bytes an element. */
	machine.links.gamma = 1e-9;
	double elements = 4 * (12 * 32 * 32 + 13 * 32) + (80 + 16) * 32 + 2 * 32;
	assert_close(step_of(&q, &c).seconds - found.seconds, elements * 28 / 3 * 1e-9);
}

/* Links that cost nothing: the schedule alone. Stage 0 has layers, stage 1 also the head. */
static void test_pipelines_are_executed(void **state)
{
	struct machine machine = free_machine();
	struct layout_question q = question_of(small, 2, 1, &machine);
	double unit = 16 / 1e9, layer = 24 * 32 * 32, attention = 2 * 32 * 16, head = 2 * 32 * 80;

	(void)state;
	for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE; s++) {
		int chunks = s == TUTTI_INTERLEAVED ? 2 : 1, layers = 2 / chunks;
		struct candidate c = {1,      1, 2,    1, TUTTI_DDP, 0, (tutti_schedule)s,
				      chunks, 4, false};
		struct pipeline_shape shape = {c.schedule, 2, 4, chunks};
		struct action_list lists[2] = {schedule_list(&shape, 0), schedule_list(&shape, 1)};
		struct action_times times[4];
		struct virtual_rank ranks[2];
		for (int stage = 0; stage < 2 * chunks; stage++) {
			double own = stage == 2 * chunks - 1 ? head : 0;
			times[stage] = (struct action_times){
				unit * (layers * (layer + attention) + own),
				unit * (layers * (layer + 2 * attention) + own),
				unit * (layers * layer + own), 0};
		}
		assert_close(step_of(&q, &c).seconds,
			     virtual_step_by_stage(&shape, lists, NULL, times, ranks).time);
		free(lists[0].at);
		free(lists[1].at);
	}
}

/* What takes time only through links, at twice the speed, is never slower; nor with twice the rate.
 */
static void test_faster_machines_are_not_slower(void **state)
{
	struct machine slow = slow_machine(), fast = slow;
	struct layout_question q = question_of(small, 16, 4, &slow), better, quick;
	struct layout_search search;

	(void)state;
	for (int l = 0; l < LINKS; l++)
		fast.links.link[l].beta /= 2;
	fast.node_beta /= 2;
	better = quick = q;
	better.machine = &fast;
	quick.rate *= 2;
	layout_search_open(&search, &q);
	assert_true(search.count > 500);
	for (int i = 0; i < 2000; i++) {
		const struct candidate *c = &search.candidates[random_below(&seed, search.count)];
		double seconds = step_of(&q, c).seconds;
		double links = step_of(&better, c).seconds, rate = step_of(&quick, c).seconds;
		if (links > seconds * (1 + 1e-12) || rate > seconds * (1 + 1e-12))
			fail_msg("dp=%d cp=%d pp=%d tp=%d, strategy %d, schedule %d, %d chunks, %d "
				 "micro-batches: %.12g s, with faster links %.12g, with twice the "
				 "rate %.12g",
				 c->dp, c->cp, c->pp, c->tp, c->strategy, c->schedule, c->chunks,
				 c->micro_batches, seconds, links, rate);
	}
	layout_search_close(&search);
}

/* Bytes are what differs: with one node's cores shared nothing is hidden and work adds up. */
static void test_ranks_share_cores(void **state)
{
	struct machine machine = free_machine();
	struct layout_question q = question_of(small, 8, 1, &machine);
	struct candidate data = {8, 1, 1, 1, TUTTI_DDP, 0, TUTTI_1F1B, 1, 1, false};
	struct candidate stages = {1, 1, 4, 2, TUTTI_DDP, 0, TUTTI_1F1B, 1, 16, false};
	double alone = step_of(&q, &data).seconds;

	(void)state;
	machine.links.cores = 2;
	assert_close(step_of(&q, &data).seconds, 4 * alone);
	/* Of 8 ranks two compute at any time, so what a pipeline idles is not lost. */
	assert_close(step_of(&q, &stages).seconds, 4 * alone);
}

static int by_rank(const void *a, const void *b)
{
	return layout_compare(a, b);
}

/* The best of all, each with its memory and step, are those of the search. */
static void compare_with_all(const struct layout_question *q, int top)
{
	struct layout_search search;
	struct trainer_book book = {0};
	size_t fitting = 0;

	layout_search_open(&search, q);
	struct found_layout *all = calloc(search.count, sizeof *all);
	assert_non_null(all);
	for (size_t i = 0; i < search.count; i++) {
		all[fitting] = layout_find(q, &search.candidates[i], &book);
		fitting += q->memory <= 0 || held_sum(&all[fitting].held) <= q->memory;
	}
	qsort(all, fitting, sizeof *all, by_rank);
	struct layout_question remembered = *q;
	remembered.prices = price_book_open();
	layout_search_run(&search, &remembered, top);
	free(remembered.prices);
	assert_int_equal(search.found, fitting < (size_t)top ? fitting : (size_t)top);
	for (int i = 0; i < search.found; i++) {
		assert_int_equal(layout_compare(&search.best[i], &all[i]), 0);
		assert_true(q->memory <= 0 || held_sum(&search.best[i].held) <= q->memory);
	}
	if (fitting > 0)
		assert_true(search.found > 0);
	trainer_book_close(&book);
	free(all);
	layout_search_close(&search);
}

static void test_the_best_are_found(void **state)
{
	struct machine machine = slow_machine();

	(void)state;
	for (int i = 0; i < 12; i++) {
		int nodes = 1 << random_below(&seed, 3),
		    ranks = nodes * (1 << random_below(&seed, 3));
		struct layout_question q = question_of(small, ranks, nodes, &machine);
		q.rate = pow(10, 8 + (double)random_below(&seed, 4));
		q.memory = random_below(&seed, 2) ? 0 : 2e5 + (double)random_below(&seed, 2000000);
		q.dtype = random_below(&seed, 2) ? TUTTI_F32 : TUTTI_BF16;
		compare_with_all(&q, 10);
	}
}

/* Where nothing fits it is the least of all, and with that much memory something does. */
static void test_least_memory_is_named(void **state)
{
	struct machine machine = slow_machine();
	struct layout_question q = question_of(small, 8, 2, &machine);
	struct layout_search search;
	struct trainer_book book = {0};
	double least = INFINITY;

	(void)state;
	layout_search_open(&search, &q);
	for (size_t i = 0; i < search.count; i++) {
		struct found_layout f = layout_find(&q, &search.candidates[i], &book);
		least = fmin(least, held_sum(&f.held));
	}
	q.memory = 1;
	layout_search_run(&search, &q, 10);
	assert_int_equal(search.found, 0);
	assert_true(held_sum(&search.least.held) == least);
	layout_search_close(&search);
	q.memory = least;
	layout_search_open(&search, &q);
	layout_search_run(&search, &q, 10);
	assert_true(search.found > 0);
	layout_search_close(&search);
	trainer_book_close(&book);
}

/* A large one: that few are timed is what keeps it short. */
static void test_large_searches_are_bounded(void **state)
{
	struct machine machine = slow_machine();
	struct layout_question q = {.ranks = 64,
				    .nodes = 8,
				    .batch = 512,
				    .dtype = TUTTI_BF16,
				    .memory = 80 * 0x1p30,
				    .rate = 150e12,
				    .machine = &machine};
	struct layout_search search;

	(void)state;
	assert_true(gpt_sizes_read(&q.model, "gpt-1.5B"));
	layout_search_open(&search, &q);
	layout_search_run(&search, &q, 10);
	assert_int_equal(search.found, 10);
	assert_in_range(search.count, 1000, 20000);
	assert_in_range(search.simulated, 10, 1000);
	layout_search_close(&search);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_are_read),
		cmocka_unit_test(test_trainers_are_as_estimated),
		cmocka_unit_test(test_activations_by_hand),
		cmocka_unit_test(test_axes_lie_on_nodes),
		cmocka_unit_test(test_one_rank_computes),
		cmocka_unit_test(test_pipelines_are_executed),
		cmocka_unit_test(test_faster_machines_are_not_slower),
		cmocka_unit_test(test_ranks_share_cores),
		cmocka_unit_test(test_the_best_are_found),
		cmocka_unit_test(test_least_memory_is_named),
		cmocka_unit_test(test_large_searches_are_bounded),
	};

	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	printf("seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
