/* What would break: a trainer whose buffers the other ranks' GPUs do not map, so that each of its
 * collectives copies them through staging. The ranks are processes with a GPU each; the launches of
 * the kernels say where the buffers lie. */
#include "tests/cuda/gpu_ranks.h"
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"

#include "cuda/channels.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

enum { SAMPLES = 8, STEPS = 2, LARGE = 140000 };

struct variant {
	const char *name;
	int ranks, gpus;
	tutti_train_config config;
};

static const struct variant variants[] = {
	{"ddp", 2, 1, {.strategy = TUTTI_DDP}},
	{"ddp in bf16",
	 2,
	 1,
	 {.strategy = TUTTI_DDP, .param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_BF16}},
	{"zero1", 2, 1, {.strategy = TUTTI_ZERO1}},
	{"zero2 on two GPUs each", 2, 2, {.strategy = TUTTI_ZERO2}},
	{"zero2 in bf16",
	 2,
	 1,
	 {.strategy = TUTTI_ZERO2, .param_dtype = TUTTI_BF16, .reduce_dtype = TUTTI_BF16}},
	{"fsdp", 2, 1, {.strategy = TUTTI_FSDP}},
	{"hsdp on two GPUs each", 4, 2, {.strategy = TUTTI_HSDP, .shard_size = 2}},
	{"local sgd", 2, 1, {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 1}},
};

/* Of this process. */
static int mapped, staged;

tutti_status __real_cuda_channels_launch(struct cuda_channels *channels,
					 const struct cuda_channels_launch *launch, void **used,
					 bool *is_captured);
tutti_status __wrap_cuda_channels_launch(struct cuda_channels *channels,
					 const struct cuda_channels_launch *launch, void **used,
					 bool *is_captured);
tutti_status __wrap_cuda_channels_launch(struct cuda_channels *channels,
					 const struct cuda_channels_launch *launch, void **used,
					 bool *is_captured)
{
	const struct lines_args *lines = launch->args;

	if (launch->kernel == CUDA_KERNEL_lines && lines->send_place != CHANNEL_NOWHERE &&
	    lines->recv_place != CHANNEL_NOWHERE)
		mapped++;
	else if (launch->kernel == CUDA_KERNEL_lines)
		staged++;
	return __real_cuda_channels_launch(channels, launch, used, is_captured);
}

static void train(tutti_comm *comm, const tutti_train_config *config)
{
	int64_t large = LARGE;
	struct toy toy;

	toy_register(&toy, comm, 0);
	CHECK(tutti_model_param(toy.model, TOY_UNITS - 1, "large", 1, &large, 0) == TOY_PARAMS);
	toy_train(&toy, comm, config);
	for (int step = 0; step < STEPS; step++) {
		device_rank_reuse();
		toy_micro_batch(&toy, TUTTI_PASS_ACCUMULATE, 2 * step, SAMPLES);
		toy_micro_batch(&toy, TUTTI_PASS_LAST, 2 * step + 1, SAMPLES);
		gpu_rank_must(tutti_step(toy.trainer, &toy_adamw, 1, NULL), "step");
	}
	gpu_rank_must(tutti_check_replicas(toy.trainer), "check_replicas");
	toy_destroy(&toy);
}

/* And again: the second trainer takes the first one's memory. */
static int rank_main(int rank, int v)
{
	tutti_config config = {.device = device_rank_gpu(rank, 0) + 1, .timeout_ms = 20000};
	tutti_train_config train_config = variants[v].config;
	tutti_comm *comm;

	gpu_rank_must(tutti_init(&comm, &config), "init");
	device_rank_begin_on(comm, &train_config, variants[v].gpus);
	for (int i = 0; i < 2; i++)
		train(comm, &train_config);
	device_rank_end();
	tutti_comm_destroy(comm);
	if (staged == 0 && mapped >= 2 * STEPS)
		return 0;
	fprintf(stderr, "%s, rank %d: %d calls of mapped memory, %d staged\n", variants[v].name,
		rank, mapped, staged);
	return 1;
}

static void test_mapped(void **state)
{
	for (int v = 0; v < (int)(sizeof variants / sizeof *variants); v++) {
		print_message("%s\n", variants[v].name);
		gpu_ranks_run(variants[v].ranks, rank_main, v, 0);
	}
}

/* Only rank 0 has named its device: no rank asks the others for memory. */
static int some_named(int rank, int unused)
{
	tutti_config config = {.device = rank == 0, .timeout_ms = 20000};
	tutti_train_config train_config = {.strategy = TUTTI_FSDP};
	tutti_comm *comm;

	gpu_use(device_rank_gpu(rank, 0));
	gpu_rank_must(tutti_init(&comm, &config), "init");
	device_rank_begin(comm, &train_config, true);
	train(comm, &train_config);
	device_rank_end();
	tutti_comm_destroy(comm);
	return staged > 0 && mapped == 0 ? 0 : 1;
}

static void test_some_named(void **state)
{
	gpu_ranks_run(2, some_named, 0, 0);
}

/* GPUs that do not reach each other: tutti_mem_alloc would give memory of the host. */
static int apart(int rank, int unused)
{
	tutti_config config = {.device = device_rank_gpu(rank, 0) + 1, .timeout_ms = 20000};
	tutti_train_config train_config = {.strategy = TUTTI_ZERO1};
	tutti_comm *comm;

	gpu_rank_must(tutti_init(&comm, &config), "init");
	device_rank_begin(comm, &train_config, true);
	train(comm, &train_config);
	device_rank_end();
	bool is_alone = tutti_size(comm) == 1; /* it has kernels, with itself */
	tutti_comm_destroy(comm);
	return staged == 0 && (mapped == 0 || is_alone) ? 0 : 1;
}

static void test_apart(void **state)
{
	setenv("FAKE_CUDA_PEERS", "none", 1);
	gpu_ranks_run(2, apart, 0, 0);
	gpu_ranks_run(1, apart, 0, 0);
	unsetenv("FAKE_CUDA_PEERS");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mapped),
		cmocka_unit_test(test_some_named),
		cmocka_unit_test(test_apart),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
