/* What would break on one GPU or two: a step with an infinity that some rank does not skip, or that
 * names another parameter; an update of the caller's own whose values other ranks do not see; ranks
 * that run different units, where one hangs or updates. */
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, GPUS = 2 };

static atomic_int say_units; /* ranks whose message names the units that differ */

struct job {
	tutti_train_config config;
	int gpus, bad_param;
	float values[TOY_PARAMS][TOY_MAX];
};

static void begin(struct toy *toy, tutti_comm *comm, const struct job *job)
{
	tutti_train_config config = job->config;

	device_rank_begin_on(comm, &config, job->gpus);
	toy_make(toy, comm, &config);
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
			void *grad = tutti_param_grad(toy.trainer, job->bad_param);
			CHECK(grad != NULL);
			if (toy_memory->enter)
				toy_memory->enter(toy_unit(job->bad_param));
			toy_memory->add(grad, infinite, 3);
		}
		toy_micro_batch(&toy, TUTTI_PASS_LAST, 2 * step + 1, SAMPLES);
		CHECK(tutti_step(toy.trainer, &toy_adamw, 1, &info) == TUTTI_OK);
		CHECK(info.skipped == (step == 1));
		CHECK(tutti_skipped_param(toy.trainer) == (step == 1 ? job->bad_param : -1));
		CHECK(info.loss_scale == (step < 2 ? 65536 : 32768));
	}
	toy_keep(&toy, job->values);
	end(&toy);
}

/* values -= grad / 2, in the order of stream, or in host memory. */
static void update_shard(const tutti_shard *shard, CUstream stream)
{
	float *values = shard->values, *grad = shard->grad;
	size_t bytes = shard->count * sizeof *values;

	CHECK(shard->count == 0 || shard->grad_dtype == TUTTI_F32);
	if (stream) {
		values = gpu_alloc_pinned(2 * bytes + 1);
		grad = values + shard->count;
		gpu_copy_in(stream, values, shard->values, bytes);
		gpu_copy_in(stream, grad, shard->grad, bytes);
		gpu_sync(stream);
	}
	for (size_t i = 0; i < shard->count; i++)
		values[i] -= grad[i] / 2;
	if (stream) {
		gpu_copy_in(stream, shard->values, values, bytes);
		gpu_sync(stream);
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
			update_shard(&shard, device_rank_stream(toy_unit(p)));
		}
		CHECK(tutti_params_updated(toy.trainer) == TUTTI_OK);
	}
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_keep(&toy, job->values);
	end(&toy);
}

/* In host memory, and on one GPU and two. */
static void same_bits(rank_fn fn, tutti_train_config config, int bad_param)
{
	struct job jobs[GPUS + 1];

	for (int gpus = 0; gpus <= GPUS; gpus++) {
		jobs[gpus] = (struct job){.config = config, .gpus = gpus, .bad_param = bad_param};
		assert_int_equal(ranks_as_threads(2, fn, &jobs[gpus]), 0);
		assert_memory_equal(jobs[gpus].values, jobs[0].values, sizeof jobs[0].values);
	}
}

static void test_skip(void **state)
{
	for (int bad = 3; bad < 7; bad += 3) { /* of either GPU */
		same_bits(skipped_step,
			  (tutti_train_config){.strategy = TUTTI_DDP, .loss_scale = -1}, bad);
		same_bits(skipped_step,
			  (tutti_train_config){.strategy = TUTTI_ZERO1, .loss_scale = -1}, bad);
	}
}

static void test_own_update(void **state)
{
	same_bits(own_update, (tutti_train_config){.strategy = TUTTI_DDP}, 0);
	same_bits(own_update, (tutti_train_config){.strategy = TUTTI_FSDP}, 0);
	same_bits(own_update,
		  (tutti_train_config){.strategy = TUTTI_ZERO2, .param_dtype = TUTTI_BF16}, 0);
}

/* Rank 1 skips a unit. A begin does not wait for the other rank, so a later call may be the one
 * that fails; in any case it is one of the step. */
static void other_units(tutti_comm *comm, void *arg)
{
	tutti_status status;
	struct toy toy;

	begin(&toy, comm, arg);
	tutti_trainer *t = toy.trainer;
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, SAMPLES, NULL) == TUTTI_OK);
	status = TUTTI_OK;
	for (int u = toy.rank; u < TOY_UNITS && status == TUTTI_OK; u++)
		if ((status = tutti_forward_begin(t, u)) == TUTTI_OK)
			status = tutti_forward_end(t, u);
	for (int u = TOY_UNITS - 1; u >= toy.rank && status == TUTTI_OK; u--)
		if ((status = tutti_backward_begin(t, u)) == TUTTI_OK)
			status = tutti_backward_end(t, u);
	if (status == TUTTI_OK)
		status = tutti_step(t, &toy_adamw, 1, NULL);
	if (status == TUTTI_ERR_MISMATCH) {
		CHECK_MESSAGE("ank 0 is at the forward of unit 'unit.0' while rank 1 is at the "
			      "forward of unit 'unit.1'");
		atomic_fetch_add(&say_units, 1);
	}
	CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED);
	end(&toy);
}

static void test_other_units(void **state)
{
	for (int gpus = 0; gpus <= GPUS; gpus++) {
		struct job job = {.config = {.strategy = TUTTI_FSDP}, .gpus = gpus};
		atomic_store(&say_units, 0);
		assert_int_equal(ranks_with_timeout(2, 20000, other_units, &job), 0);
		assert_true(atomic_load(&say_units) > 0);
	}
}

/* Slots are planned for each GPU, and suffice. */
static void at_limit(tutti_comm *comm, void *arg)
{
	const struct job *job = arg;
	tutti_train_config config = job->config;
	tutti_train_stats need, has;
	struct toy toy;

	device_rank_begin_on(comm, &config, job->gpus);
	toy_register(&toy, comm, 0);
	CHECK(tutti_memory_estimate(toy.model, toy.size, &config, &need) == TUTTI_OK);
	config.memory_limit = need.param_bytes + need.grad_bytes + need.optimizer_bytes +
			      need.gathered_peak_bytes;
	toy_train(&toy, comm, &config);
	for (int step = 0; step < 2; step++) {
		device_rank_reuse();
		toy_micro_batch(&toy, TUTTI_PASS_ACCUMULATE, 2 * step, SAMPLES);
		CHECK(toy_step(&toy, 2 * step + 1, SAMPLES) == TUTTI_OK);
	}
	CHECK(tutti_trainer_stats(toy.trainer, &has) == TUTTI_OK);
	CHECK(has.gathered_peak_bytes > 0 && has.gathered_peak_bytes <= need.gathered_peak_bytes);
	CHECK(has.param_bytes <= need.param_bytes && has.grad_bytes <= need.grad_bytes &&
	      has.optimizer_bytes <= need.optimizer_bytes);
	end(&toy);
}

static void test_limit_of_two(void **state)
{
	const tutti_train_config configs[] = {
		{.strategy = TUTTI_FSDP},
		{.strategy = TUTTI_FSDP, .prefetch_units = 2, .keep_after_forward = 1},
		{.strategy = TUTTI_ZERO2, .bucket_bytes = 200},
		{.strategy = TUTTI_ZERO2,
		 .param_dtype = TUTTI_BF16,
		 .reduce_dtype = TUTTI_BF16,
		 .bucket_bytes = 200},
	};

	for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
		assert_int_equal(ranks_as_threads(2, at_limit,
						  &(struct job){.config = configs[i], .gpus = 2}),
				 0);
}

static void refused(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_DDP}, on_host = config;
	tutti_trainer *trainer;
	struct toy toy;

	device_rank_begin_on(comm, &config, 2);
	toy_register(&toy, comm, 1);
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &on_host), TUTTI_ERR_INVALID,
		    "Unit 'unit.2' has a stream, which needs on_device");
	CHECK(tutti_model_unit_stream(toy.model, 3, gpu_stream()) == TUTTI_OK);
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &config), TUTTI_ERR_INVALID,
		    "have two streams of CUDA device");
	CHECK(tutti_model_unit_stream(toy.model, 3, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &config), TUTTI_ERR_INVALID,
		    "but the stream of its unit 'unit.3' is of device");
	if (toy.rank == 1)
		CHECK(tutti_model_unit_stream(toy.model, 2, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &config), TUTTI_ERR_MISMATCH,
		    "'unit.2' in the stream of unit 'unit.2'");
	CHECK_ERROR(tutti_model_unit_stream(toy.model, TOY_UNITS, NULL), TUTTI_ERR_INVALID,
		    "there is no unit 4 among 4");
	CHECK_ERROR(tutti_model_unit_stream(NULL, 0, NULL), TUTTI_ERR_INVALID, "no unit 0 among 0");
	tutti_model_destroy(toy.model);
	device_rank_end();
}

static void test_refused(void **state)
{
	if (gpu_count() == 1)
		skip(); /* its units have streams of two */
	assert_int_equal(ranks_as_threads(2, refused, NULL), 0);
}

/* It would have got the memory that the ranks share, which is a GPU's. */
static void test_host_trainer(void **state)
{
	tutti_train_config config = {.strategy = TUTTI_DDP};
	tutti_comm *comm;
	struct toy toy;

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
		cmocka_unit_test(test_other_units), cmocka_unit_test(test_skip),
		cmocka_unit_test(test_own_update),  cmocka_unit_test(test_limit_of_two),
		cmocka_unit_test(test_refused),     cmocka_unit_test(test_host_trainer),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
