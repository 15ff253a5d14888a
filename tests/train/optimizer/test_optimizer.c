/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: gradients that are not the global mean, and optimizers of groups, bad ones, and
 * steps that must not update. test_strategies has the arithmetic of AdamW, SGD and clipping. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <math.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8 };

static const tutti_optimizer sgd = {
	.kind = TUTTI_SGD, .lr = 0.05f, .momentum = 0.9f, .weight_decay = 0.01f};

struct way {
	int is_extern, micro_batches;
};

static void grads_are_means(tutti_comm *comm, void *arg)
{
	const struct way *how = arg;
	struct toy toy;
	tutti_step_info info;

	toy_register(&toy, comm, how->is_extern);
	toy_train(&toy, comm, NULL);
	for (int step = 0; step < 3; step++) {
		double squares = 0;
		for (int m = 0; m < how->micro_batches; m++)
			toy_micro_batch(&toy,
					m + 1 < how->micro_batches ? TUTTI_PASS_ACCUMULATE
								   : TUTTI_PASS_LAST,
					step, SAMPLES);
		CHECK(tutti_grads_finish(toy.trainer, &info) == TUTTI_OK);
		CHECK(info.items == SAMPLES * how->micro_batches);
		for (int p = 0; p < TOY_PARAMS; p++) {
			const float *grad = tutti_param_grad(toy.trainer, p);
			for (size_t i = 0; i < toy_count(p); i++) {
				double mean = toy_sum(p, i, step, SAMPLES) / SAMPLES;
				CHECK(fabs(grad[i] - mean) <= 1e-6 * fabs(mean));
				squares += mean * mean;
			}
		}
		CHECK(fabs(info.grad_norm - sqrt(squares)) < 1e-5 * sqrt(squares));
		CHECK(!info.skipped);
	}
	toy_destroy(&toy);
}

static void test_grads_are_means(void **state)
{
	for (int n = 1; n <= 4; n++)
		for (int is_extern = 0; is_extern < 2; is_extern++)
			for (int micro_batches = 1; micro_batches < 4; micro_batches += 2) {
				struct way how = {.is_extern = is_extern,
						  .micro_batches = micro_batches};
				assert_int_equal(ranks_as_threads(n, grads_are_means, &how), 0);
			}
}

/* Groups have their own optimizer; frozen and no-decay parameters are treated as such. */
static void groups(tutti_comm *comm, void *arg)
{
	const int64_t four = 4;
	const tutti_optimizer both[] = {{.kind = TUTTI_SGD, .lr = 1, .weight_decay = 0.5f},
					{.kind = TUTTI_ADAMW, .lr = 0.5f, .eps = 1e-8f}};
	tutti_train_stats stats;
	tutti_model *model;
	tutti_trainer *t;
	float x[4];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_param(model, 0, "decays", 1, &four, 0) == 0);
	CHECK(tutti_model_param(model, 0, "keeps", 1, &four, TUTTI_PARAM_NO_DECAY) == 1);
	CHECK(tutti_model_param(model, 0, "frozen", 1, &four, TUTTI_PARAM_FROZEN) == 2);
	CHECK(tutti_model_param(model, 0, "adam", 1, &four, 0) == 3);
	CHECK(tutti_model_param_group(model, 3, 1) == TUTTI_OK);
	CHECK(tutti_trainer_create(&t, model, comm, NULL) == TUTTI_OK);
	tutti_model_destroy(model);
	for (int p = 0; p < 4; p++)
		CHECK(tutti_param_init_constant(t, p, 1) == TUTTI_OK);
	CHECK(tutti_param_grad(t, 2) == NULL);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	for (int p = 0; p < 4; p++)
		if (p != 2) {
			((float *)tutti_param_grad(t, p))[0] += 0.25f;
			CHECK(tutti_grad_ready(t, p) == TUTTI_OK);
		}
	CHECK_ERROR(tutti_grad_ready(t, 2), TUTTI_ERR_INVALID, "'frozen' is frozen");
	CHECK_ERROR(tutti_step(t, both, 1, NULL), TUTTI_ERR_INVALID,
		    "'adam' is of group 1, but 1 groups");
	CHECK(tutti_step(t, both, 2, NULL) == TUTTI_OK);
	const float expected[4][2] = {{0.25f, 0.5f}, {0.75f, 1}, {1, 1}, {0.5f, 1}};
	for (int p = 0; p < 4; p++) {
		CHECK(tutti_param_read(t, p, 0, 4, x) == TUTTI_OK);
		CHECK(fabsf(x[0] - expected[p][0]) < 1e-6f && x[1] == expected[p][1]);
	}
	CHECK(tutti_trainer_stats(t, &stats) == TUTTI_OK);
	CHECK(stats.param_bytes == 64 && stats.grad_bytes == 48 && stats.optimizer_bytes == 32);
	tutti_trainer_destroy(t);
}

/* Bad optimizers and bad items fail before anything is sent. */
static void refusals(tutti_comm *comm, void *arg)
{
	const struct {
		tutti_optimizer optimizer;
		const char *why;
	} bad[] = {
		{{.kind = (tutti_optimizer_kind)9}, "kind 9"},
		{{.kind = TUTTI_SGD, .lr = -1}, "learning rate -1"},
		{{.kind = TUTTI_SGD, .lr = NAN}, "learning rate"},
		{{.kind = TUTTI_SGD, .momentum = 1}, "momentum 1"},
		{{.kind = TUTTI_ADAMW, .beta1 = 1, .eps = 1}, "beta1 1"},
		{{.kind = TUTTI_ADAMW, .beta1 = 0.9f, .beta2 = 0.9f}, "eps 0"},
	};
	struct toy toy;
	float x;

	toy_make(&toy, comm, NULL);
	CHECK_ERROR(tutti_step(toy.trainer, &sgd, 1, NULL), TUTTI_ERR_INVALID, "TUTTI_PASS_LAST");
	CHECK_ERROR(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, -1, NULL), TUTTI_ERR_INVALID,
		    "-1");
	CHECK_ERROR(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, NAN, NULL), TUTTI_ERR_INVALID,
		    "items is ");
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, SAMPLES);
	uint64_t sequence = collectives(toy.trainer);
	CHECK_ERROR(tutti_step(toy.trainer, NULL, 1, NULL), TUTTI_ERR_INVALID, "group");
	CHECK_ERROR(tutti_step(toy.trainer, &sgd, 0, NULL), TUTTI_ERR_INVALID, "group");
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		CHECK_ERROR(tutti_step(toy.trainer, &bad[i].optimizer, 1, NULL), TUTTI_ERR_INVALID,
			    bad[i].why);
	CHECK(collectives(toy.trainer) == sequence);
	CHECK(tutti_step(toy.trainer, &sgd, 1, NULL) == TUTTI_OK);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 1, SAMPLES);
	CHECK_ERROR(tutti_step(toy.trainer, &toy_adamw, 1, NULL), TUTTI_ERR_INVALID,
		    "was trained with TUTTI_SGD");
	CHECK(tutti_step(toy.trainer, &sgd, 1, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_param_read(toy.trainer, 2, 1, 1, &x), TUTTI_ERR_INVALID, "'param.2'");
	CHECK(tutti_param_data(toy.trainer, TOY_PARAMS) == NULL);
	CHECK_MESSAGE("no parameter 8 among 8");
	CHECK(tutti_param_grad(NULL, 0) == NULL);
	toy_destroy(&toy);
}

/* A rank with a NaN stops the update on all ranks; no items anywhere is an error on all. */
static void nothing_to_update(tutti_comm *comm, void *arg)
{
	struct toy toy;
	tutti_step_info info;
	float before[TOY_MAX];

	toy_make(&toy, comm, NULL);
	CHECK(tutti_param_read(toy.trainer, 3, 0, toy_count(3), before) == TUTTI_OK);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	if (tutti_rank(comm) == tutti_size(comm) - 1)
		((float *)tutti_param_grad(toy.trainer, 5))[39] = NAN;
	for (int p = 0; p < TOY_PARAMS; p++)
		CHECK(tutti_grad_ready(toy.trainer, p) == TUTTI_OK);
	CHECK(tutti_step(toy.trainer, &sgd, 1, &info) == TUTTI_OK);
	CHECK(info.skipped == 1 && info.items == tutti_size(comm));
	CHECK(memcmp(before, tutti_param_data(toy.trainer, 3), toy_count(3) * sizeof(float)) == 0);

	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, 0);
	CHECK_ERROR(tutti_step(toy.trainer, &sgd, 1, &info), TUTTI_ERR_INVALID,
		    "No rank had any items");
	CHECK(memcmp(before, tutti_param_data(toy.trainer, 3), toy_count(3) * sizeof(float)) == 0);
	toy_destroy(&toy);
}

/* Means are weighted by items, not means of means. */
static void means(tutti_comm *comm, void *arg)
{
	struct toy toy;
	int rank = tutti_rank(comm), size = tutti_size(comm);
	double sums[2] = {rank * 10.0, 1}, items[2] = {rank, 1}, result[2];

	toy_make(&toy, comm, NULL);
	CHECK(tutti_means(toy.trainer, sums, items, result, size > 1 ? 2 : 0) == TUTTI_OK);
	CHECK(size == 1 || (result[0] == 10 && result[1] == 1));
	CHECK_ERROR(tutti_means(toy.trainer, NULL, items, result, 1), TUTTI_ERR_INVALID, "sums");
	toy_destroy(&toy);
}

/* The same as threads; processes join, share memory and meet in another way. */
static void test_processes(void **state)
{
	for (int n = 2; n <= 4; n++)
		for (int is_extern = 0; is_extern < 2; is_extern++) {
			struct way how = {.is_extern = is_extern, .micro_batches = 2};
			assert_int_equal(ranks_as_processes(n, grads_are_means, &how), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_grads_are_means),
		RANKS_TEST(groups, 3, 3),
		RANKS_TEST(refusals, 2, 2),
		RANKS_TEST(nothing_to_update, 3, 3),
		RANKS_TEST(means, 1, 4),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
