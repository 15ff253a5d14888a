/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: the rules of units. A unit that runs twice, one that is recomputed inside
 * backward, a frozen one, one that is not sharded, one that never runs, one that all ranks skip in
 * some steps: every strategy must train the same bits. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { FIRST, TWICE, FROZEN, RARE, WHOLE, UNUSED, UNITS, PARAMS = 9, MOST = 50, STEPS = 4 };

static const struct spec {
	int unit;
	int64_t count;
	unsigned flags;
} specs[PARAMS] = {
	{FIRST, 37, 0},
	{TWICE, 50, 0},
	{TWICE, 3, TUTTI_PARAM_NO_DECAY},
	{FROZEN, 41, TUTTI_PARAM_FROZEN},
	{RARE, 29, TUTTI_PARAM_MAY_BE_UNUSED},
	{RARE, 5, TUTTI_PARAM_MAY_BE_UNUSED | TUTTI_PARAM_NO_SHARD},
	{WHOLE, 20, TUTTI_PARAM_NO_SHARD},
	{FROZEN, 7, TUTTI_PARAM_FROZEN | TUTTI_PARAM_NO_SHARD},
	{UNUSED, 33, TUTTI_PARAM_MAY_BE_UNUSED},
};

struct run {
	tutti_train_config config;
	float values[PARAMS][MOST];
};

static tutti_trainer *make(tutti_comm *comm, const tutti_train_config *config)
{
	tutti_model *model;
	tutti_trainer *t = NULL;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < UNITS; u++) {
		snprintf(name, sizeof name, "unit.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
	}
	for (int p = 0; p < PARAMS; p++) {
		snprintf(name, sizeof name, "param.%d", p);
		CHECK(tutti_model_param(model, specs[p].unit, name, 1, &specs[p].count,
					specs[p].flags) == p);
	}
	CHECK(tutti_trainer_create(&t, model, comm, config) == TUTTI_OK);
	tutti_model_destroy(model);
	for (int p = 0; p < PARAMS; p++)
		CHECK(tutti_param_init_normal(t, p, 0.5f, 2) == TUTTI_OK);
	return t;
}

/* Forward and backward must see the values of the last step. */
static void look(tutti_trainer *t, int unit, float expected[PARAMS][MOST])
{
	for (int p = 0; p < PARAMS; p++)
		if (specs[p].unit == unit) {
			const float *data = tutti_param_data(t, p);
			CHECK(data && memcmp(data, expected[p],
					     (size_t)specs[p].count * sizeof(float)) == 0);
		}
}

static void forward(tutti_trainer *t, int unit, float expected[PARAMS][MOST])
{
	CHECK(tutti_forward_begin(t, unit) == TUTTI_OK);
	look(t, unit, expected);
	CHECK(tutti_forward_end(t, unit) == TUTTI_OK);
}

static void backward(tutti_trainer *t, int unit, int sample, float expected[PARAMS][MOST])
{
	CHECK(tutti_backward_begin(t, unit) == TUTTI_OK);
	look(t, unit, expected);
	for (int p = 0; p < PARAMS; p++) {
		float *grad = specs[p].unit == unit ? tutti_param_grad(t, p) : NULL;
		CHECK(specs[p].unit != unit ||
		      (grad != NULL) == !(specs[p].flags & TUTTI_PARAM_FROZEN));
		for (int64_t i = 0; grad && i < specs[p].count; i++)
			grad[i] += (float)((sample * 31 + p * 7 + (int)i * 3) % 17 - 8);
	}
	CHECK(tutti_backward_end(t, unit) == TUTTI_OK);
}

/* TWICE runs before and after FROZEN, which is recomputed for its backward, and RARE runs in every
 * other step. */
static void micro_batch(tutti_trainer *t, tutti_pass pass, int sample, float expected[PARAMS][MOST])
{
	static const int orders[2][6] = {{FIRST, TWICE, FROZEN, WHOLE, TWICE},
					 {FIRST, TWICE, RARE, FROZEN, WHOLE, TWICE}};
	int with_rare = sample / 100 % 2;
	const int *order = orders[with_rare];

	CHECK(tutti_micro_batch(t, pass, 1, NULL) == TUTTI_OK);
	for (int i = 0; i < 5 + with_rare; i++)
		forward(t, order[i], expected);
	for (int i = 4 + with_rare; i >= 0 && pass != TUTTI_PASS_EVAL; i--) {
		if (order[i] == FROZEN)
			forward(t, FROZEN, expected);
		backward(t, order[i], sample, expected);
	}
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_trainer *t = make(comm, &run->config);
	float values[PARAMS][MOST] = {{0}};
	int size = tutti_size(comm), rank = tutti_rank(comm), samples = 12;

	for (int step = 0; step <= STEPS; step++) {
		for (int p = 0; p < PARAMS; p++)
			CHECK(tutti_param_read(t, p, 0, (size_t)specs[p].count, values[p]) ==
			      TUTTI_OK);
		if (step == STEPS)
			break;
		for (int s = rank; s < samples; s += size) {
			bool is_last = s + size >= samples;
			micro_batch(t, is_last ? TUTTI_PASS_LAST : TUTTI_PASS_ACCUMULATE,
				    step * 100 + s, values);
			if (!is_last && s < size) /* in the middle of a step */
				micro_batch(t, TUTTI_PASS_EVAL, 0, values);
		}
		CHECK(tutti_step(t, &toy_adamw, 1, NULL) == TUTTI_OK);
	}
	CHECK(tutti_check_replicas(t) == TUTTI_OK);
	if (rank == 0)
		memcpy(run->values, values, sizeof values);
	tutti_trainer_destroy(t);
}

static void test_units(void **state)
{
	const tutti_train_config configs[] = {
		{.strategy = TUTTI_DDP},
		{.strategy = TUTTI_ZERO1},
		{.strategy = TUTTI_ZERO2, .bucket_bytes = 100},
		{.strategy = TUTTI_FSDP},
		{.strategy = TUTTI_FSDP, .keep_after_forward = 1, .whole_tensors = 1},
		{.strategy = TUTTI_FSDP, .prefetch_units = 4},
		{.strategy = TUTTI_HSDP, .shard_size = 2},
	};
	struct run expected = {.config = {.seed = 2}};

	assert_int_equal(ranks_as_threads(1, train, &expected), 0);
	for (size_t c = 0; c < sizeof configs / sizeof *configs; c++)
		for (int n = 1; n <= 4; n++)
			for (int deterministic = 0; deterministic <= 2; deterministic++) {
				struct run run = {.config = configs[c]};
				run.config.seed = 2;
				run.config.deterministic = deterministic;
				if (run.config.shard_size && n % run.config.shard_size != 0)
					continue;
				if (deterministic == 2 && n % 2 == 0)
					continue; /* 6 and 3 micro-batches are no power of two */
				assert_int_equal(ranks_as_threads(n, train, &run), 0);
				assert_memory_equal(run.values, expected.values, sizeof run.values);
			}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_units)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
