/* What would break on a GPU: a step with an infinity that some rank does not skip, or that names
 * another parameter; an update of the caller's own whose values other ranks do not see. */
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, BAD_PARAM = 3 };

struct job {
	tutti_train_config config;
	bool on_device;
	float values[TOY_PARAMS][TOY_MAX];
};

static void keep(const struct toy *toy, struct job *job)
{
	float values[TOY_MAX];

	for (int p = 0; p < TOY_PARAMS; p++) {
		CHECK(tutti_param_read(toy->trainer, p, 0, toy_count(p), values) == TUTTI_OK);
		if (toy->rank == 0)
			memcpy(job->values[p], values, toy_count(p) * sizeof *values);
	}
}

static void begin(struct toy *toy, tutti_comm *comm, const struct job *job)
{
	tutti_train_config config = job->config;

	device_rank_begin(comm, &config, job->on_device);
	toy_register(toy, comm, 0);
	toy_train(toy, comm, &config);
}

static void end(struct toy *toy)
{
	toy_destroy(toy);
	device_rank_end();
}

/* Gradients that are accumulated lie still between two micro-batches. */
static void skipped_step(tutti_comm *comm, void *arg)
{
	const float infinite[3] = {0, INFINITY, 1};
	struct job *job = arg;
	tutti_step_info info;
	struct toy toy;

	begin(&toy, comm, job);
	for (int step = 0; step < 3; step++) {
		device_rank_reuse();
		toy_micro_batch(&toy, TUTTI_PASS_ACCUMULATE, 2 * step, SAMPLES);
		if (step == 1 && toy.rank == toy.size - 1) {
			void *grad = tutti_param_grad(toy.trainer, BAD_PARAM);
			CHECK(grad != NULL);
			toy_memory->add(grad, infinite, 3);
		}
		toy_micro_batch(&toy, TUTTI_PASS_LAST, 2 * step + 1, SAMPLES);
		CHECK(tutti_step(toy.trainer, &toy_adamw, 1, &info) == TUTTI_OK);
		CHECK(info.skipped == (step == 1));
		CHECK(tutti_skipped_param(toy.trainer) == (step == 1 ? BAD_PARAM : -1));
		CHECK(info.loss_scale == (step < 2 ? 65536 : 32768));
	}
	keep(&toy, job);
	end(&toy);
}

/* values -= grad / 2, in the stream's order. */
static void update_shard(const tutti_shard *shard, bool on_device)
{
	float *values = shard->values, *grad = shard->grad;
	size_t bytes = shard->count * sizeof *values;

	CHECK(shard->count == 0 || shard->grad_dtype == TUTTI_F32);
	if (on_device) {
		values = gpu_alloc_pinned(2 * bytes + 1);
		grad = values + shard->count;
		gpu_copy_in(device_rank.stream, values, shard->values, bytes);
		gpu_copy_in(device_rank.stream, grad, shard->grad, bytes);
		gpu_sync(device_rank.stream);
	}
	for (size_t i = 0; i < shard->count; i++)
		values[i] -= grad[i] / 2;
	if (on_device) {
		gpu_copy_in(device_rank.stream, shard->values, values, bytes);
		gpu_sync(device_rank.stream);
		gpu_free_pinned(values);
	}
}

static void own_update(tutti_comm *comm, void *arg)
{
	struct job *job = arg;
	tutti_shard shard;
	struct toy toy;

	begin(&toy, comm, job);
	for (int step = 0; step < 2; step++) {
		device_rank_reuse();
		toy_micro_batch(&toy, TUTTI_PASS_LAST, step, SAMPLES);
		CHECK(tutti_grads_finish(toy.trainer, NULL) == TUTTI_OK);
		for (int p = 0; p < TOY_PARAMS; p++) {
			CHECK(tutti_param_shard(toy.trainer, p, &shard) == TUTTI_OK);
			update_shard(&shard, job->on_device);
		}
		CHECK(tutti_params_updated(toy.trainer) == TUTTI_OK);
	}
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	keep(&toy, job);
	end(&toy);
}

/* In both memories. */
static void same_bits(rank_fn fn, tutti_train_config config)
{
	struct job jobs[2] = {{.config = config}, {.config = config, .on_device = true}};

	for (int i = 0; i < 2; i++)
		assert_int_equal(ranks_as_threads(2, fn, &jobs[i]), 0);
	assert_memory_equal(jobs[0].values, jobs[1].values, sizeof jobs[0].values);
}

static void test_skip(void **state)
{
	(void)state;
	same_bits(skipped_step, (tutti_train_config){.strategy = TUTTI_DDP, .loss_scale = -1});
	same_bits(skipped_step, (tutti_train_config){.strategy = TUTTI_ZERO1, .loss_scale = -1});
}

static void test_own_update(void **state)
{
	(void)state;
	same_bits(own_update, (tutti_train_config){.strategy = TUTTI_DDP});
	same_bits(own_update, (tutti_train_config){.strategy = TUTTI_FSDP});
	same_bits(own_update,
		  (tutti_train_config){.strategy = TUTTI_ZERO2, .param_dtype = TUTTI_BF16});
}

/* It would have got the memory that the ranks share, which is a GPU's. */
static void test_host_trainer(void **state)
{
	tutti_train_config config = {.strategy = TUTTI_DDP};
	tutti_comm *comm;
	struct toy toy;

	(void)state;
	gpu_use(0);
	assert_int_equal(tutti_init_all(&comm, 1, &(tutti_config){.device = 1}), TUTTI_OK);
	toy_register(&toy, comm, 0);
	assert_int_equal(tutti_trainer_create(&toy.trainer, toy.model, comm, &config),
			 TUTTI_ERR_INVALID);
	assert_non_null(strstr(tutti_comm_error(NULL), "on_device"));
	tutti_model_destroy(toy.model);
	tutti_comm_destroy(comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_skip),
		cmocka_unit_test(test_own_update),
		cmocka_unit_test(test_host_trainer),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
