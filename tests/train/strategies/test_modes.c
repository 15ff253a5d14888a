/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: an infinity on one rank after which not all ranks skip, strategies that add in
 * another order than DDP, deterministic = 2 that depends on the number of ranks, and state in
 * files that trains differently from state in memory. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/state/trainer_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, STEPS = 3 };

static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

struct run {
	tutti_train_config config;
	float values[TOY_PARAMS][TOY_MAX];
};

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct toy toy;

	toy_make(&toy, comm, &run->config);
	for (int step = 0; step < STEPS; step++) {
		tutti_step_info info;
		toy_micro_batch(&toy, TUTTI_PASS_LAST, step, SAMPLES);
		CHECK(tutti_step(toy.trainer, &toy_adamw, 1, &info) == TUTTI_OK);
		CHECK(!info.skipped);
	}
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_keep(&toy, run->values);
	toy_destroy(&toy);
}

static void offloaded(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_stats stats;
	struct toy toy;

	train(comm, arg);
	toy_make(&toy, comm, &run->config);
	CHECK(toy_step(&toy, 0, SAMPLES) == TUTTI_OK);
	CHECK(tutti_trainer_stats(toy.trainer, &stats) == TUTTI_OK);
	CHECK(stats.optimizer_bytes == 0);
	toy_destroy(&toy);
	/* The folder is missing on one rank: no rank updates, and all name that rank and the file.
	 */
	tutti_train_config missing = run->config;
	missing.param_dtype = TUTTI_F32;
	missing.offload_dir = tutti_rank(comm) == 1 ? "/nowhere/at/all" : run->config.offload_dir;
	toy_make(&toy, comm, &missing);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, SAMPLES);
	CHECK_ERROR(tutti_step(toy.trainer, &toy_adamw, 1, NULL), TUTTI_ERR_SYSTEM,
		    "Rank 1 could not make its optimizer state in this step, so no rank updates: "
		    "Making the file of offload_dir '/nowhere/at/all/");
	toy_destroy(&toy);
}

static void test_offload(void **state)
{
	tutti_train_config config = {.seed = 3, .deterministic = 1, .param_dtype = TUTTI_BF16};
	struct run expected = {.config = config}, run = {.config = config};
	char folder[] = "/tmp/tutti_offload_XXXXXX";

	assert_non_null(mkdtemp(folder));
	assert_int_equal(ranks_as_threads(1, train, &expected), 0);
	run.config.offload_optimizer = 1;
	run.config.offload_dir = folder;
	for (int s = 0; s < STRATEGIES; s++) {
		run.config.strategy = strategies[s];
		assert_int_equal(ranks_as_threads(2, offloaded, &run), 0);
		assert_memory_equal(run.values, expected.values, sizeof run.values);
	}
	assert_int_equal(remove(folder), 0); /* the files have no names */
}

static const tutti_train_config with_infinity[] = {
	{.param_dtype = TUTTI_F16, .loss_scale = -1},
	{.param_dtype = TUTTI_F16, .reduce_dtype = TUTTI_F16, .loss_scale = -1},
	{.param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_BF16, .loss_scale = -1},
	{.param_dtype = TUTTI_F32},
};

static void one_sample(struct toy *toy, float at_60)
{
	tutti_trainer *t = toy->trainer;

	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, TOY_UNITS) == TUTTI_OK);
	for (int u = TOY_UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
		float *grad = tutti_param_grad(t, 3);
		if (u == 1 && grad)
			grad[60] += at_60;
		CHECK(tutti_backward_end(t, u) == TUTTI_OK);
	}
}

/* The last rank's. F16 gradients are also divided by the items of a step, a power of two. */
static void infinite(tutti_comm *comm, void *arg)
{
	const tutti_train_config *config = arg;
	float before[TOY_PARAMS][TOY_MAX] = {{0}}, after[TOY_PARAMS][TOY_MAX] = {{0}};
	struct toy toy;
	tutti_step_info info;
	float factor = config->loss_scale < 0 ? 65536 : 1, half = factor > 1 ? 2 : 1;
	float divisor = 1;

	toy_make(&toy, comm, config);
	tutti_trainer *t = toy.trainer;
	toy_read(t, before);
	while (config->reduce_dtype == TUTTI_F16 && divisor < (float)toy.size)
		divisor *= 2;
	CHECK(tutti_grad_scale(t) == factor);
	one_sample(&toy, toy.rank == toy.size - 1 ? INFINITY : 1);
	CHECK(tutti_step(t, &toy_adamw, 1, &info) == TUTTI_OK);
	CHECK(info.skipped && info.loss_scale == factor);
	CHECK(tutti_grad_scale(t) == factor / half / divisor);
	CHECK(tutti_skipped_param(t) == 3);
	CHECK(strstr(tutti_comm_error(NULL), "'param.3'") != NULL);
	toy_read(t, after);
	CHECK(memcmp(before, after, sizeof before) == 0);
	one_sample(&toy, 1);
	CHECK(tutti_step(t, &toy_adamw, 1, &info) == TUTTI_OK);
	CHECK(!info.skipped && tutti_skipped_param(t) == -1);
	toy_read(t, after);
	CHECK(before[3][60] != after[3][60]);
	toy_destroy(&toy);
}

static void test_infinite(void **state)
{
	for (size_t i = 0; i < sizeof with_infinity / sizeof *with_infinity; i++)
		for (int s = 0; s <= STRATEGIES; s++)
			for (int n = 1; n <= 4; n++) {
				tutti_train_config config = with_infinity[i];
				config.strategy = s < STRATEGIES ? strategies[s] : TUTTI_HSDP;
				config.shard_size = n % 2 == 0 ? 2 : 1;
				assert_int_equal(ranks_as_threads(n, infinite, &config), 0);
			}
}

/* Gradients whose sums depend on the order: item's of parameter p. */
static float piece(int item, int p, size_t i)
{
	uint32_t bits = tutti_random(99, (uint64_t)item, (uint64_t)p, i);
	return ldexpf((float)bits / 4294967296.0f - 0.5f, (int)(bits % 24) - 12);
}

static void tree_micro_batch(tutti_trainer *t, tutti_pass pass, int item)
{
	CHECK(tutti_micro_batch(t, pass, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, TOY_UNITS) == TUTTI_OK);
	for (int u = TOY_UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
		for (int p = 0; p < TOY_PARAMS; p++) {
			float *grad = tutti_param_grad(t, p);
			int is_of = u == toy_unit(p);
			for (size_t i = 0; is_of && grad && i < toy_count(p); i++)
				grad[i] += piece(item, p, i);
		}
		CHECK(tutti_backward_end(t, u) == TUTTI_OK);
	}
}

/* Such short sums may have the right order by chance. */
static void expect_deterministic(tutti_comm *comm)
{
	tutti_config config = {0};

	CHECK(!comm || tutti_comm_config(comm, &config) == TUTTI_OK);
	CHECK(!comm || config.deterministic == 1);
}

static void tree(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	int each = SAMPLES / tutti_size(comm), first = each * tutti_rank(comm);
	struct toy toy;

	toy_make(&toy, comm, &run->config);
	if (run->config.deterministic) {
		expect_deterministic(toy.trainer->homes[0].reduce);
		expect_deterministic(toy.trainer->homes[0].replicas);
	}
	for (int step = 0; step < STEPS; step++) {
		for (int m = 0; m < each; m++)
			tree_micro_batch(toy.trainer,
					 m + 1 < each ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST,
					 step * 100 + first + m);
		CHECK(tutti_step(toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	}
	toy_keep(&toy, run->values);
	toy_destroy(&toy);
}

static void test_tree(void **state)
{
	const tutti_train_config config = {.seed = 5, .deterministic = 2, .max_grad_norm = 1};
	struct run expected = {.config = config}, loose = {.config = config};

	assert_int_equal(ranks_as_threads(1, tree, &expected), 0);
	for (int s = 0; s <= STRATEGIES; s++)
		for (int n = 1; n <= 8; n *= 2) {
			struct run run = {.config = config};
			run.config.strategy = s < STRATEGIES ? strategies[s] : TUTTI_HSDP;
			run.config.shard_size = n > 1 ? 2 : 1;
			assert_int_equal(ranks_as_threads(n, tree, &run), 0);
			assert_memory_equal(run.values, expected.values, sizeof run.values);
		}
	loose.config.deterministic = 0;
	assert_int_equal(ranks_as_threads(2, tree, &loose), 0);
	assert_memory_not_equal(loose.values, expected.values, sizeof loose.values);
}

/* 3 ranks have other samples than 2, 4 and 8. */
static void test_strategies_agree(void **state)
{
	static const int ranks[] = {2, 3, 4, 8};
	struct run expected[4];

	for (int i = 0; i < 4; i++) {
		expected[i] =
			(struct run){.config = {.seed = 5, .deterministic = 1, .max_grad_norm = 1}};
		assert_int_equal(ranks_as_threads(ranks[i], tree, &expected[i]), 0);
		for (int s = 1; s < STRATEGIES; s++) {
			struct run run = {.config = expected[i].config};
			run.config.strategy = strategies[s];
			assert_int_equal(ranks_as_threads(ranks[i], tree, &run), 0);
			assert_memory_equal(run.values, expected[i].values, sizeof run.values);
		}
	}
	/* The order of additions is visible in these gradients. */
	assert_memory_not_equal(expected[0].values, expected[3].values, sizeof expected->values);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_offload),
		cmocka_unit_test(test_infinite),
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_strategies_agree),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
