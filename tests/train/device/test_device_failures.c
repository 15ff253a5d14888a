/* slow: 12 s */
/* What would break: a GPU whose memory is full, or that fails, and ends in a hang, a crash, or a
 * failure on some ranks only; memory or a stream of the wrong kind that is taken. */
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/unit.h"

enum { RANKS = 2, STEPS = 2, SAMPLES = 8, MOST_FAULTS = 200 };

/* Of each rank; shared with its process. */
struct outcome {
	tutti_status status[RANKS];
	int has_failed[RANKS];
};

struct job {
	struct outcome *out;
	tutti_strategy strategy;
	int gpus;
	bool is_named;   /* the communicator has the ranks' devices */
	char faults[64]; /* of rank 1 */
};

static tutti_status run(struct toy *toy, tutti_comm *comm, const tutti_train_config *config)
{
	tutti_status status = tutti_trainer_create(&toy->trainer, toy->model, comm, config);

	for (int step = 0; step < STEPS && status == TUTTI_OK; step++) {
		status = units_micro_batch(toy->trainer, TUTTI_PASS_LAST, SAMPLES, TOY_UNITS);
		if (status == TUTTI_OK)
			status = tutti_step(toy->trainer, &toy_adamw, 1, NULL);
	}
	return status == TUTTI_OK ? tutti_check_replicas(toy->trainer) : status;
}

static void with_faults(tutti_comm *comm, void *arg)
{
	const struct job *job = arg;
	tutti_train_config config = {.strategy = job->strategy};
	int rank = tutti_rank(comm);
	tutti_comm *named = NULL;
	struct toy toy;

	if (rank == 1)
		setenv("FAKE_CUDA_FAULTS", job->faults, 1);
	device_rank_begin_on(comm, &config, job->gpus);
	tutti_config with_device = {.device = device_rank_gpu(rank, 0) + 1};
	if (job->is_named)
		CHECK(tutti_comm_split(comm, 0, rank, &with_device, &named) == TUTTI_OK);
	toy_register(&toy, comm, 0);
	job->out->status[rank] = run(&toy, named ? named : comm, &config);
	toy_destroy(&toy);
	tutti_comm_destroy(named);
	job->out->has_failed[rank] = 0;
	/* No device_rank_end: a GPU that has failed has no streams to synchronise. */
}

/* Rank 1's n-th call of a kind fails. Returns whether the ranks could tell. */
static bool fails_together(struct job *job, const char *fault, int n)
{
	for (int r = 0; r < RANKS; r++)
		job->out->has_failed[r] = 1; /* until the rank has come to its end */
	snprintf(job->faults, sizeof job->faults, "0:%s=%d", fault, n);
	assert_int_equal(ranks_as_processes(RANKS, with_faults, job), 0);
	const tutti_status *status = job->out->status;
	for (int r = 0; r < RANKS; r++)
		assert_false(job->out->has_failed[r]);
	if ((status[0] == TUTTI_OK) != (status[1] == TUTTI_OK))
		fail_msg("%s: rank 0 has %s, rank 1 %s", job->faults,
			 tutti_status_string(status[0]), tutti_status_string(status[1]));
	return status[1] != TUTTI_OK;
}

/* expected: of rank 1; TUTTI_OK: any, since a GPU that has failed may refuse memory first. */
static void each_call(const char *fault, int step, int gpus, tutti_strategy strategy,
		      tutti_status expected)
{
	struct outcome *out =
		mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct job job = {.out = out, .strategy = strategy, .gpus = gpus};
	int n = 2; /* the first one is device_rank_begin's, whose failure ends the program */

	assert_true(out != MAP_FAILED);
	step *= whole_or(1, 1, 3);
	for (; n < MOST_FAULTS && fails_together(&job, fault, n); n += step)
		assert_true(!expected || out->status[1] == expected);
	printf("%s: %d calls\n", fault, n);
	assert_in_range(n, 4, MOST_FAULTS - 1);
	munmap(out, sizeof *out);
}

static void test_no_memory(void **state)
{
	each_call("memory", 1, 1, TUTTI_FSDP, TUTTI_ERR_MEMORY);
	each_call("memory", 1, 1, TUTTI_DDP, TUTTI_ERR_MEMORY);
}

/* Memory that the other ranks map. A communicator that has none for its kernels goes without them,
 * so not every failure is one of the trainer. */
static void no_mapped_memory(int gpus, int calls, int least)
{
	struct outcome *out =
		mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct job job = {.out = out, .strategy = TUTTI_FSDP, .gpus = gpus, .is_named = true};
	int failed = 0, step = whole_or(1, 1, 4);

	assert_true(out != MAP_FAILED);
	for (int n = 2; n < calls; n += step)
		if (fails_together(&job, "memory", n)) {
			assert_int_equal(out->status[1], TUTTI_ERR_MEMORY);
			failed++;
		}
	printf("mapped memory on %d GPUs: %d failures\n", gpus, failed);
	assert_in_range(failed, least / step, calls);
	munmap(out, sizeof *out);
}

static void test_no_mapped_memory(void **state)
{
	no_mapped_memory(1, 30, 6);
	no_mapped_memory(2, 50, 12);
}

/* The error names the GPU of the unit that does not fit. */
static void too_large(tutti_comm *comm, void *arg)
{
	const int64_t gigabytes[] = {3 << 8, 1 << 20};
	tutti_train_config config = {.strategy = *(tutti_strategy *)arg};
	char text[64];
	struct toy toy;

	device_rank_begin_on(comm, &config, 2);
	toy_register(&toy, comm, 0);
	CHECK(tutti_model_param(toy.model, TOY_UNITS - 1, "large", 2, gigabytes, 0) == TOY_PARAMS);
	snprintf(text, sizeof text, "CUDA device %d has no ", device_rank_gpu(0, 1));
	CHECK_ERROR(tutti_trainer_create(&toy.trainer, toy.model, comm, &config), TUTTI_ERR_MEMORY,
		    text);
	tutti_model_destroy(toy.model);
	device_rank_end();
}

static void test_too_large(void **state)
{
	tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_FSDP};

	for (int i = 0; i < 2; i++)
		assert_int_equal(ranks_as_processes(RANKS, too_large, &strategies[i]), 0);
}

static void test_failing_gpu(void **state)
{
	each_call("launch_illegal", 5, 1, TUTTI_FSDP, TUTTI_OK);
	each_call("copy_ecc", 5, 1, TUTTI_ZERO1, TUTTI_OK);
	each_call("launch_illegal", 11, 2, TUTTI_FSDP, TUTTI_OK);
	each_call("copy_ecc", 11, 2, TUTTI_ZERO1, TUTTI_OK);
}

static void refused(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_DDP};
	tutti_trainer *trainer;
	int64_t one = 1;
	struct toy toy;

	device_rank_begin(comm, &config, true);
	toy_memory = NULL; /* registers memory of the host */
	toy_register(&toy, comm, 1);
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &config), TUTTI_ERR_INVALID,
		    "With on_device parameter 'param.0' must lie in device memory");
	tutti_model_destroy(toy.model);
	toy_register(&toy, comm, 0);
	CHECK(tutti_model_buffer(toy.model, "seen", TUTTI_I64, 1, gpu_alloc(8)) == 0);
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &config), TUTTI_ERR_INVALID,
		    "With on_device buffer 'seen' must lie in host memory");
	tutti_model_destroy(toy.model);
	toy_register(&toy, comm, 0);
	CHECK(tutti_model_buffer(toy.model, "seen", TUTTI_I64, 1, &one) == 0);
	config.stream = CU_STREAM_PER_THREAD;
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &config), TUTTI_ERR_INVALID,
		    "stream is the default stream of a thread");
	config.stream = NULL; /* the legacy one, of the thread's device */
	CHECK(tutti_trainer_create(&trainer, toy.model, comm, &config) == TUTTI_OK);
	tutti_trainer_destroy(trainer);
	config.on_device = tutti_rank(comm) == 0;
	CHECK_ERROR(tutti_trainer_create(&trainer, toy.model, comm, &config), TUTTI_ERR_MISMATCH,
		    "on_device 0");
	tutti_model_destroy(toy.model);
	device_rank_end();
}

static void test_refused(void **state)
{
	assert_int_equal(ranks_as_processes(RANKS, refused, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused),          cmocka_unit_test(test_no_memory),
		cmocka_unit_test(test_no_mapped_memory), cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_failing_gpu),
	};

	test_limit(600);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
