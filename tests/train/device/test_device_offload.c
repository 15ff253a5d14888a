/* What would break: an offloaded update that reads or writes a tile of another turn, forgets the
 * last one, or counts other bytes than go over the bus; host memory that is on the GPU. */
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* Several tiles, and a rest. */
enum { ELEMENTS = 3 * (1 << 17) + 1001, STEPS = 2 };

struct job {
	bool on_device, is_offloaded;
	tutti_dtype param_dtype;
	float *values;
	tutti_train_stats stats;
};

static void set_grad(float *grad, bool on_device)
{
	float *host = on_device ? gpu_alloc_pinned(ELEMENTS * sizeof *host) : grad;

	for (size_t i = 0; i < ELEMENTS; i++)
		host[i] = (float)(i % 1009) / 64 - 7;
	if (!on_device)
		return;
	gpu_copy_in(device_rank.stream, grad, host, ELEMENTS * sizeof *host);
	gpu_sync(device_rank.stream);
	gpu_free_pinned(host);
}

static void train(tutti_comm *comm, void *arg)
{
	const int64_t shape[] = {ELEMENTS};
	struct job *job = arg;
	tutti_train_config config = {.strategy = TUTTI_DDP,
				     .param_dtype = job->param_dtype,
				     .seed = 11,
				     .offload_optimizer = job->is_offloaded};
	tutti_model *model;
	tutti_trainer *t;

	device_rank_begin(comm, &config, job->on_device);
	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_param(model, 0, "w", 1, shape, 0) == 0);
	CHECK(tutti_trainer_create(&t, model, comm, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	CHECK(tutti_param_init_normal(t, 0, 0, 1) == TUTTI_OK);
	for (int step = 0; step < STEPS; step++) {
		CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
		set_grad(tutti_param_grad(t, 0), job->on_device);
		CHECK(tutti_grad_ready(t, 0) == TUTTI_OK);
		CHECK(tutti_step(t, &toy_adamw, 1, NULL) == TUTTI_OK);
	}
	CHECK(tutti_param_read(t, 0, 0, ELEMENTS, job->values) == TUTTI_OK);
	CHECK(tutti_trainer_stats(t, &job->stats) == TUTTI_OK);
	CHECK(tutti_check_replicas(t) == TUTTI_OK);
	tutti_trainer_destroy(t);
	device_rank_end();
}

static void same_bits(tutti_dtype param_dtype, size_t width)
{
	struct job jobs[3];

	for (int i = 0; i < 3; i++) {
		jobs[i] = (struct job){.on_device = i > 0,
				       .is_offloaded = i == 2,
				       .param_dtype = param_dtype,
				       .values = malloc(ELEMENTS * sizeof(float))};
		assert_int_equal(ranks_as_threads(1, train, &jobs[i]), 0);
		assert_memory_equal(jobs[i].values, jobs[0].values, ELEMENTS * sizeof(float));
	}
	assert_true(jobs[1].stats.offload_down_bytes == 0 && jobs[1].stats.offload_up_bytes == 0);
	assert_true(jobs[1].stats.optimizer_bytes ==
		    (size_t)ELEMENTS * (width == 4 ? 2 : 3) * sizeof(float));
	assert_true(jobs[2].stats.offload_down_bytes == (uint64_t)STEPS * ELEMENTS * 4);
	assert_true(jobs[2].stats.offload_up_bytes == (uint64_t)STEPS * ELEMENTS * width);
	assert_true(jobs[2].stats.optimizer_bytes == 0);
	for (int i = 0; i < 3; i++)
		free(jobs[i].values);
}

static void test_same_bits(void **state)
{
	same_bits(TUTTI_F32, 4);
	same_bits(TUTTI_BF16, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_bits),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
