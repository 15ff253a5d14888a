/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: 16-bit training that differs between strategies, in the master copy, in the
 * rounded parameters, or in the random numbers of rounding, which depend on (seed, step, parameter,
 * element) and never on the rank. BF16 and F16 hold the toy's integer sums, so every strategy and
 * number of ranks has the same bits. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/precision/precision.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, STEPS = 3 };

struct run {
	tutti_train_config config;
	float masters[STEPS][TOY_PARAMS][TOY_MAX];
	uint16_t seen[STEPS][TOY_PARAMS][TOY_MAX]; /* by forward, after each step */
};

static bool is_of(int param, int unit)
{
	return toy_unit(param) == unit || (param == 0 && unit == TOY_UNITS - 1);
}

/* The values that every rank computes with, inside each unit that uses them. */
static void look(struct toy *toy, uint16_t seen[TOY_PARAMS][TOY_MAX])
{
	CHECK(tutti_micro_batch(toy->trainer, TUTTI_PASS_EVAL, 1, NULL) == TUTTI_OK);
	for (int u = 0; u < TOY_UNITS; u++) {
		CHECK(tutti_forward_begin(toy->trainer, u) == TUTTI_OK);
		for (int p = 0; p < TOY_PARAMS; p++) {
			size_t bytes = toy_count(p) * sizeof(uint16_t);
			const void *data = is_of(p, u) ? tutti_param_data(toy->trainer, p) : NULL;
			CHECK(!is_of(p, u) || data != NULL);
			if (p == 0 && u > 0 && data) /* tied: the same as before */
				CHECK(memcmp(seen[p], data, bytes) == 0);
			else if (data)
				memcpy(seen[p], data, bytes);
		}
		CHECK(tutti_forward_end(toy->trainer, u) == TUTTI_OK);
	}
}

/* The master copy rounded. Stochastic rounding depends on the update and the element only. */
static void expect_rounded(const tutti_train_config *config, int step,
			   float masters[TOY_PARAMS][TOY_MAX], uint16_t seen[TOY_PARAMS][TOY_MAX])
{
	uint16_t expected[TOY_MAX];

	for (int p = 0; p < TOY_PARAMS; p++) {
		const struct kernel_rounding keys = {
			.seed = config->seed, .step = (uint64_t)step + 1, .param = p};
		if (config->stochastic_rounding)
			kernel_narrow_at_random(expected, masters[p], toy_count(p), &keys);
		else
			kernel_convert(expected, config->param_dtype, masters[p], TUTTI_F32,
				       toy_count(p));
		CHECK(memcmp(expected, seen[p], toy_count(p) * sizeof *expected) == 0);
	}
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct toy toy;

	toy_make(&toy, comm, &run->config);
	for (int step = 0; step < STEPS; step++) {
		float masters[TOY_PARAMS][TOY_MAX];
		uint16_t seen[TOY_PARAMS][TOY_MAX] = {{0}};
		CHECK(toy_step(&toy, step, SAMPLES) == TUTTI_OK);
		toy_read(toy.trainer, masters);
		look(&toy, seen);
		expect_rounded(&run->config, step, masters, seen);
		if (toy.rank == 0) {
			memcpy(run->masters[step], masters, sizeof masters);
			memcpy(run->seen[step], seen, sizeof seen);
		}
	}
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_destroy(&toy);
}

/* All strategies on 1 to 4 ranks against DDP on one. */
static void same_everywhere(const tutti_train_config *config)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP,
						    TUTTI_HSDP};
	struct run expected = {.config = *config};

	assert_int_equal(ranks_as_threads(1, train, &expected), 0);
	for (int s = 0; s < 5; s++)
		for (int n = 1; n <= 4; n++) {
			struct run run = {.config = *config};
			run.config.strategy = strategies[s];
			run.config.shard_size = n % 2 == 0 ? 2 : 1;
			assert_int_equal(ranks_as_threads(n, train, &run), 0);
			assert_memory_equal(run.masters, expected.masters, sizeof run.masters);
			assert_memory_equal(run.seen, expected.seen, sizeof run.seen);
		}
}

#define COMMON .seed = 11, .deterministic = 1, .max_grad_norm = 2, .bucket_bytes = 200

static void test_rounded_to_nearest(void **state)
{
	const tutti_train_config configs[] = {
		{COMMON, .param_dtype = TUTTI_BF16},
		{COMMON, .param_dtype = TUTTI_F16, .reduce_dtype = TUTTI_F16},
	};
	for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
		same_everywhere(&configs[i]);
}

static void test_rounded_at_random(void **state)
{
	const tutti_train_config config = {COMMON, .param_dtype = TUTTI_BF16,
					   .reduce_dtype = TUTTI_BF16, .stochastic_rounding = 1};
	struct run other_seed = {.config = config}, run = {.config = config};

	same_everywhere(&config);
	/* The seed matters, but only for rounded values. */
	other_seed.config.seed++;
	assert_int_equal(ranks_as_threads(1, train, &run), 0);
	assert_int_equal(ranks_as_threads(1, train, &other_seed), 0);
	assert_memory_not_equal(run.seen, other_seed.seen, sizeof run.seen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rounded_to_nearest),
		cmocka_unit_test(test_rounded_at_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
