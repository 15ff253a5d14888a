/* What would break: a checkpoint of a trainer on GPUs that another one, there or in host memory,
 * cannot go on from with the same bits; an exported file with other values. */
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"
#include "tests/train/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, RANKS = 2, FILE_MOST = 1 << 16 };

struct job {
	tutti_train_config config;
	int saves_on, loads_on;               /* so many GPUs; 0: in host memory */
	float values[2][TOY_PARAMS][TOY_MAX]; /* after three steps: uninterrupted, and loaded */
	char files[2][FILE_MOST];
	size_t bytes[2];
};

static void steps(struct toy *toy, int first, int last)
{
	for (int step = first; step < last; step++) {
		device_rank_reuse();
		CHECK(toy_step(toy, step, SAMPLES) == TUTTI_OK);
	}
}

static void keep(const struct toy *toy, struct job *job, int which)
{
	char path[128];

	toy_keep(toy, job->values[which]);
	snprintf(path, sizeof path, "%s/%d.safetensors", saved_dir, which);
	CHECK(tutti_export_safetensors(toy->trainer, path) == TUTTI_OK);
	FILE *file = toy->rank == 0 ? fopen(path, "rb") : NULL;
	if (file) {
		job->bytes[which] = fread(job->files[which], 1, FILE_MOST, file);
		fclose(file);
	}
}

static void save_and_load(tutti_comm *comm, void *arg)
{
	struct job *job = arg;
	tutti_train_config config = job->config;
	struct toy toy;
	int64_t step;

	device_rank_begin_on(comm, &config, job->saves_on);
	toy_make(&toy, comm, &config);
	steps(&toy, 0, 2);
	CHECK(tutti_save(toy.trainer, saved_dir, 2) == TUTTI_OK);
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	steps(&toy, 2, 3);
	keep(&toy, job, 0);
	toy_destroy(&toy);
	device_rank_end();

	device_rank_begin_on(comm, &config, job->loads_on);
	config.seed += !config.stochastic_rounding; /* what is not loaded differs */
	toy_make(&toy, comm, &config);
	CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK && step == 2);
	steps(&toy, 2, 3);
	keep(&toy, job, 1);
	toy_destroy(&toy);
	device_rank_end();
}

static void round_trip(tutti_train_config config)
{
	struct job *job = calloc(1, sizeof *job);

	assert_non_null(job);
	for (int way = 1; way < 9; way++) {
		*job = (struct job){.config = config, .saves_on = way % 3, .loads_on = way / 3};
		assert_int_equal(ranks_as_threads(RANKS, save_and_load, job), 0);
		assert_memory_equal(job->values[0], job->values[1], sizeof job->values[0]);
		assert_true(job->bytes[0] > 500 && job->bytes[0] == job->bytes[1]);
		assert_memory_equal(job->files[0], job->files[1], job->bytes[0]);
	}
	free(job);
}

static void test_f32(void **state)
{
	round_trip((tutti_train_config){.strategy = TUTTI_FSDP, .seed = 3});
	round_trip((tutti_train_config){.strategy = TUTTI_DDP, .seed = 4});
}

static void test_bf16(void **state)
{
	round_trip((tutti_train_config){
		.strategy = TUTTI_ZERO2, .seed = 5, .param_dtype = TUTTI_BF16});
}

static void test_offloaded(void **state)
{
	round_trip((tutti_train_config){.strategy = TUTTI_FSDP, .seed = 6, .offload_optimizer = 1});
	round_trip((tutti_train_config){.strategy = TUTTI_ZERO1,
					.seed = 7,
					.param_dtype = TUTTI_BF16,
					.stochastic_rounding = 1,
					.offload_optimizer = 1});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_f32, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(test_bf16, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(test_offloaded, saved_setup, saved_teardown),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
