/* What would break: trainers on one GPU or two that continue from others of another strategy, in
 * memory of the GPU or offloaded, with other values, moments or counts than those had. */
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"

#include <stdbool.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, RANKS = 2, STOP = 2, STEPS = 4 };

struct scene {
	tutti_train_config first, second;
	int gpus, gpus_after;              /* 0: host memory */
	bool continues, is_lost;           /* is_lost: rank 1's first trainer */
	float values[TOY_PARAMS][TOY_MAX]; /* at the end, rank 0's */
};

static void steps(struct toy *toy, int first, int last)
{
	for (int step = first; step < last; step++) {
		device_rank_reuse();
		CHECK(toy_step(toy, step, SAMPLES) == TUTTI_OK);
	}
}

/* With other first values, which must go. */
static void go_on(struct toy *toy, struct toy *before, tutti_comm *comm, const struct scene *scene)
{
	tutti_train_config config = scene->second;
	int64_t done = -1;

	config.on_device = device_rank.stream != NULL;
	config.stream = device_rank.stream;
	config.seed = 99;
	device_rank.is_spread = scene->gpus_after == 2;
	toy_make(toy, comm, &config);
	tutti_trainer *held = scene->is_lost && toy->rank == 1 ? NULL : before->trainer;
	CHECK(tutti_trainer_continue(toy->trainer, held, &done) == TUTTI_OK);
	CHECK(done == STOP);
	toy_destroy(before);
}

static void run(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	tutti_train_config config = scene->first;
	struct toy toys[2], *now = &toys[0];

	bool has_two = scene->gpus == 2 || scene->gpus_after == 2;

	device_rank_begin_on(comm, &config, has_two ? 2 : scene->gpus);
	device_rank.is_spread = scene->gpus == 2;
	toy_make(now, comm, &config);
	steps(now, 0, STOP);
	if (scene->continues) {
		go_on(&toys[1], now, comm, scene);
		now = &toys[1];
	}
	steps(now, STOP, STEPS);
	CHECK(tutti_check_replicas(now->trainer) == TUTTI_OK);
	toy_keep(now, scene->values);
	toy_destroy(now);
	device_rank_end();
}

/* A host's trainer that is not disturbed has the bits to expect. */
static void same_bits(tutti_train_config first, tutti_train_config second)
{
	struct scene want = {.first = first};

	want.first.offload_optimizer = 0;
	assert_int_equal(ranks_as_threads(RANKS, run, &want), 0);
	for (int way = 0; way < 4; way++) {
		struct scene got = {first, second, 1 + way % 2, 1 + way / 2, .continues = true};
		assert_int_equal(ranks_as_threads(RANKS, run, &got), 0);
		assert_memory_equal(got.values, want.values, sizeof got.values);
	}
}

static void test_f32(void **state)
{
	const tutti_train_config ddp = {.strategy = TUTTI_DDP}, fsdp = {.strategy = TUTTI_FSDP},
				 zero1 = {.strategy = TUTTI_ZERO1, .offload_optimizer = 1};

	same_bits(fsdp, ddp);
	same_bits(ddp, fsdp);
	same_bits(zero1, fsdp);
	same_bits(fsdp, zero1);
}

/* What rank 1 had comes from rank 0's shadow. */
static void lose_one(tutti_train_config config)
{
	struct scene want = {.first = config};

	want.first.shadow = want.first.offload_optimizer = 0;
	assert_int_equal(ranks_as_threads(RANKS, run, &want), 0);
	for (int gpus = 1; gpus < 3; gpus++) {
		struct scene got = {config, config, gpus, gpus, .continues = true, .is_lost = true};
		got.first.shadow = got.second.shadow = 1;
		assert_int_equal(ranks_as_threads(RANKS, run, &got), 0);
		assert_memory_equal(got.values, want.values, sizeof got.values);
	}
}

static void test_shadow(void **state)
{
	lose_one((tutti_train_config){.strategy = TUTTI_FSDP});
	lose_one((tutti_train_config){.strategy = TUTTI_ZERO1, .offload_optimizer = 1});
	lose_one((tutti_train_config){.strategy = TUTTI_ZERO2, .param_dtype = TUTTI_BF16});
	lose_one((tutti_train_config){.strategy = TUTTI_FSDP,
				      .param_dtype = TUTTI_BF16,
				      .stochastic_rounding = 1,
				      .offload_optimizer = 1});
}

static void test_bf16(void **state)
{
	const tutti_train_config zero2 = {.strategy = TUTTI_ZERO2, .param_dtype = TUTTI_BF16},
				 ddp = {.strategy = TUTTI_DDP,
					.param_dtype = TUTTI_BF16,
					.offload_optimizer = 1};

	same_bits(zero2, ddp);
	same_bits(ddp, zero2);
}

static void misfit(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_DDP};
	struct toy before, toy;
	int64_t done;

	device_rank_begin(comm, &config, false);
	toy_make(&before, comm, &config);
	device_rank_begin(comm, &config, true);
	toy_make(&toy, comm, &config);
	CHECK_ERROR(tutti_trainer_continue(toy.trainer, before.trainer, &done), TUTTI_ERR_INVALID,
		    "one of the two trainers is on a GPU");
	toy_destroy(&toy);
	toy_destroy(&before);
	device_rank_end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_f32),
		cmocka_unit_test(test_bf16),
		cmocka_unit_test(test_shadow),
		RANKS_TEST(misfit, RANKS, RANKS),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
