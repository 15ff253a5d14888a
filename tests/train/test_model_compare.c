/* What would break: ranks that train different models, and replicas that drift apart undetected. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/state/trainer_state.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

static const int64_t shape[] = {4, 3}, turned[] = {3, 4};
static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};

/* How the last rank's model differs from the others'. */
struct difference {
	const char *name;
	const int64_t *shape;
	unsigned flags;
	int group, is_missing, uses, more_units;
	size_t buffer, bucket_bytes;
	const char *message;
};

static const struct difference same = {.name = "w", .shape = shape, .buffer = 5};

static void differ(tutti_comm *comm, void *arg)
{
	const struct difference *d = arg;
	const struct difference *how = tutti_rank(comm) == tutti_size(comm) - 1 ? d : &same;
	const tutti_train_config config = {.bucket_bytes = how->bucket_bytes};
	tutti_model *model;
	tutti_trainer *trainer = NULL;
	char buffer[8] = {0};

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_unit(model, "head") == 1);
	CHECK(tutti_model_param(model, 0, "first", 2, shape, 0) == 0);
	if (!how->is_missing)
		CHECK(tutti_model_param(model, 0, how->name, 2, how->shape, how->flags) == 1);
	if (how->group)
		CHECK(tutti_model_param_group(model, 1, how->group) == TUTTI_OK);
	if (how->uses)
		CHECK(tutti_model_unit_uses(model, 1, 1) == TUTTI_OK);
	if (how->more_units)
		CHECK(tutti_model_unit(model, "of nothing") == 2);
	CHECK(tutti_model_buffer(model, "mean", TUTTI_U8, how->buffer, buffer) == 0);
	tutti_status status = tutti_trainer_create(&trainer, model, comm, &config);
	if (tutti_size(comm) == 1) {
		CHECK(status == TUTTI_OK);
	} else {
		char rank[32];
		snprintf(rank, sizeof rank, "rank %d has", tutti_size(comm) - 1);
		CHECK_ERROR(status, TUTTI_ERR_MISMATCH, d->message);
		CHECK_MESSAGE(rank);
	}
	/* The communicator still works. */
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	tutti_trainer_destroy(trainer);
	tutti_model_destroy(model);
}

static void test_differences(void **state)
{
	struct difference cases[] = {
		{.name = "v",
		 .shape = shape,
		 .buffer = 5,
		 .message = "parameter 'v' of unit 'unit': f32 [4, 3], flags 0x0, group 0, but "
			    "rank 0 has parameter 'w'"},
		{.name = "w", .shape = turned, .buffer = 5, .message = "f32 [3, 4]"},
		{.name = "w",
		 .shape = shape,
		 .buffer = 5,
		 .flags = TUTTI_PARAM_NO_DECAY,
		 .message = "flags 0x1"},
		{.name = "w", .shape = shape, .buffer = 5, .group = 2, .message = "group 2"},
		{.name = "w", .shape = shape, .buffer = 5, .uses = 1, .message = "used by 'head'"},
		{.name = "w", .shape = shape, .buffer = 6, .message = "buffer 'mean': 6"},
		{.name = "w",
		 .shape = shape,
		 .buffer = 5,
		 .bucket_bytes = 9,
		 .message = "bucket_bytes 9"},
		{.name = "w",
		 .shape = shape,
		 .buffer = 5,
		 .more_units = 1,
		 .message = "has unit 'of nothing', but rank 0 has nothing more"},
		{.is_missing = 1,
		 .buffer = 5,
		 .message = "has buffer 'mean': 5 of type 7, but rank 0 has parameter 'w'"},
	};
	for (int n = 1; n <= 4; n++)
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			assert_int_equal(ranks_as_threads(n, differ, &cases[i]), 0);
}

/* Extern values begin as rank 0's, own values depend on the seed alone. */
static void first_values(tutti_comm *comm, void *arg)
{
	struct toy toy;
	float(*expected)[TOY_MAX] = arg;
	const tutti_train_config config = {.seed = 5};

	toy_register(&toy, comm, 1);
	for (int p = 0; p < TOY_PARAMS; p++)
		for (size_t i = 0; i < toy_count(p); i++)
			toy.data[p][i] = (float)(1000 * tutti_rank(comm)) + (float)i;
	CHECK(tutti_trainer_create(&toy.trainer, toy.model, comm, &config) == TUTTI_OK);
	for (int p = 0; p < TOY_PARAMS; p++)
		for (size_t i = 0; i < toy_count(p); i++)
			CHECK(toy.data[p][i] == (float)i);
	CHECK(tutti_param_data(toy.trainer, 3) == toy.data[3]);
	CHECK(tutti_param_init_normal(toy.trainer, 3, 1, 0.5f) == TUTTI_OK);
	if (tutti_size(comm) == 1)
		memcpy(expected[3], toy.data[3], sizeof toy.data[3]);
	CHECK(memcmp(expected[3], toy.data[3], sizeof toy.data[3]) == 0);
	toy_destroy(&toy);
}

static void test_first_values(void **state)
{
	float expected[TOY_PARAMS][TOY_MAX];
	double sum = 0, squares = 0;

	for (int n = 1; n <= 4; n++)
		assert_int_equal(ranks_as_threads(n, first_values, expected), 0);
	for (size_t i = 0; i < toy_count(3); i++) {
		sum += (double)expected[3][i];
		squares += ((double)expected[3][i] - 1) * ((double)expected[3][i] - 1);
	}
	/* 64 draws of mean 1 and deviation 0.5, within four standard errors. */
	assert_true(sum / 64 > 0.75 && sum / 64 < 1.25);
	assert_true(squares / 64 > 0.07 && squares / 64 < 0.43);
}

/* One flipped bit on one rank is found and named, also by check_replicas_every. */
static void drift(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.check_replicas_every = 2};
	struct toy toy;
	int culprit = tutti_size(comm) - 1;
	uint32_t bits;

	toy_make(&toy, comm, &config);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	if (tutti_rank(comm) == culprit) {
		float *x = tutti_param_data(toy.trainer, 5);
		memcpy(&bits, &x[39], sizeof bits);
		bits ^= 1;
		memcpy(&x[39], &bits, sizeof bits);
	}
	/* With two ranks the first counts as right. */
	char message[96];
	snprintf(message, sizeof message,
		 "after 2 steps: rank %d has other values of parameter 'param.5'", culprit);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, 8);
	CHECK(tutti_step(toy.trainer, &sgd, 1, NULL) == TUTTI_OK);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, 8);
	CHECK_ERROR(tutti_step(toy.trainer, &sgd, 1, NULL), TUTTI_ERR_MISMATCH, message);
	toy_destroy(&toy);
}

static void test_drift(void **state)
{
	for (int n = 2; n <= 4; n++)
		assert_int_equal(ranks_as_threads(n, drift, NULL), 0);
	assert_int_equal(ranks_as_processes(3, drift, NULL), 0);
}

/* The rank that drifts, and where: in a replica's values, or in their master copy. */
struct drifting {
	tutti_train_config config;
	int ranks, culprit;
	enum { VALUES, MASTER } what;
};

/* The last bit of the last element of a parameter on the rank. */
static void flip(const struct toy *toy, const struct drifting *how, int param)
{
	tutti_trainer *t = toy->trainer;

	for (int i = 0; i < t->piece_count; i++) {
		const struct piece *piece = &t->pieces[i];
		if (piece->param != param)
			continue;
		CHECK((piece->low != NULL) == (how->config.param_dtype == TUTTI_BF16));
		if (how->what == MASTER || !piece->low)
			((uint32_t *)(void *)piece->value)[piece->count - 1] ^= 1;
		else
			((uint16_t *)piece->low)[piece->count - 1] ^= 1;
		return;
	}
	CHECK(!"the rank has a part of the parameter");
}

static void drift_apart(tutti_comm *comm, void *arg)
{
	const struct drifting *how = arg;
	const tutti_optimizer still = {.kind = TUTTI_SGD}; /* rounds, but moves nothing */
	tutti_train_config config = how->config;
	struct toy toy;
	char message[96];

	config.check_replicas_every = 2;
	toy_make(&toy, comm, &config);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, 8);
	CHECK(tutti_step(toy.trainer, &still, 1, NULL) == TUTTI_OK);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	if (toy.rank == how->culprit)
		flip(&toy, how, 3);
	snprintf(message, sizeof message, "rank %d has other values of parameter 'param.3'",
		 how->culprit);
	CHECK_ERROR(tutti_check_replicas(toy.trainer), TUTTI_ERR_MISMATCH, message);
	/* An update rounds the master copy again, and with ZeRO sends the owner's value to all
	 * ranks. */
	bool is_repaired = how->config.strategy == TUTTI_ZERO1 ||
			   how->config.strategy == TUTTI_ZERO2 ||
			   (how->what == VALUES && how->config.param_dtype == TUTTI_BF16);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, 8);
	tutti_status status = tutti_step(toy.trainer, &still, 1, NULL);
	if (is_repaired)
		CHECK(status == TUTTI_OK);
	else
		CHECK_ERROR(status, TUTTI_ERR_MISMATCH, message);
	toy_destroy(&toy);
}

static void test_drift_of_shards(void **state)
{
	static struct drifting cases[] = {
		{{.strategy = TUTTI_HSDP, .shard_size = 2}, 4, 2, VALUES},
		{{.strategy = TUTTI_HSDP, .shard_size = 2}, 4, 3, VALUES},
		{{.strategy = TUTTI_HSDP, .shard_size = 2}, 6, 1, VALUES}, /* most are right */
		{{.strategy = TUTTI_HSDP, .shard_size = 2, .param_dtype = TUTTI_BF16},
		 4,
		 2,
		 MASTER},
		{{.strategy = TUTTI_ZERO1}, 2, 1, VALUES},
		{{.strategy = TUTTI_ZERO1}, 4, 2, VALUES},
		{{.strategy = TUTTI_ZERO1, .param_dtype = TUTTI_BF16}, 3, 2, VALUES},
		{{.strategy = TUTTI_ZERO2, .param_dtype = TUTTI_BF16}, 3, 1, VALUES},
		{{.strategy = TUTTI_DDP, .param_dtype = TUTTI_BF16}, 2, 1, MASTER},
		{{.strategy = TUTTI_DDP, .param_dtype = TUTTI_BF16}, 3, 0, MASTER},
		{{.strategy = TUTTI_DDP, .param_dtype = TUTTI_BF16}, 3, 2, VALUES},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		assert_int_equal(ranks_as_threads(cases[i].ranks, drift_apart, &cases[i]), 0);
}

/* The same arguments give the same number on every machine and in every version. */
static void test_random(void **state)
{
	double sum = 0;

	assert_int_equal(tutti_random(1, 2, 3, 4), tutti_random(1, 2, 3, 4));
	assert_int_not_equal(tutti_random(1, 2, 3, 4), tutti_random(2, 1, 3, 4));
	assert_int_not_equal(tutti_random(1, 2, 3, 4), tutti_random(1, 3, 2, 4));
	assert_int_not_equal(tutti_random(1, 2, 3, 4), tutti_random(1, 2, 4, 3));
	for (uint64_t i = 0; i < 10000; i++)
		sum += tutti_random(0, 0, 0, i) / 4294967296.0;
	assert_true(sum > 4880 && sum < 5120); /* four standard errors */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_drift),       cmocka_unit_test(test_drift_of_shards),
		cmocka_unit_test(test_differences), cmocka_unit_test(test_first_values),
		cmocka_unit_test(test_random),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
