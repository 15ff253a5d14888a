/* slow: 5 s */
/* What would break: a trainer on a GPU, or on two, that has other bits than the one in host memory,
 * or that reads gradients before their stream has written them. Each variant is trained in all of
 * them, with the same number of ranks, as threads that share GPUs and as processes. */
#include "tests/limit.h"
#include "tests/whole.h"
#include "tests/train/device/device_rank.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, STEPS = 3, MICRO_BATCHES = 3, GPUS = 2 };

struct variant {
	const char *name;
	tutti_train_config config;
	bool is_extern, is_gated;
	int least; /* ranks, which must be a multiple of it */
};

#define COMMON   .seed = 7, .max_grad_norm = 3, .bucket_bytes = 200
#define LOW(...) .param_dtype = TUTTI_BF16, __VA_ARGS__

static const struct variant variants[] = {
	{"ddp", {COMMON, .strategy = TUTTI_DDP}, 0, 1, 1},
	{"ddp in the caller's memory", {COMMON, .strategy = TUTTI_DDP}, 1, 1, 1},
	{"zero1", {COMMON, .strategy = TUTTI_ZERO1, .deterministic = 1}, 0, 1, 1},
	{"zero1 in the caller's memory", {COMMON, .strategy = TUTTI_ZERO1}, 1, 0, 1},
	{"zero2", {COMMON, .strategy = TUTTI_ZERO2}, 0, 0, 1},
	{"fsdp", {COMMON, .strategy = TUTTI_FSDP}, 0, 0, 1},
	{"fsdp of whole tensors", {COMMON, .strategy = TUTTI_FSDP, .whole_tensors = 1}, 0, 0, 1},
	{"fsdp, deterministic", {COMMON, .strategy = TUTTI_FSDP, .deterministic = 1}, 0, 0, 1},
	{"hsdp", {COMMON, .strategy = TUTTI_HSDP, .shard_size = 2}, 0, 0, 2},
	{"local sgd", {COMMON, .strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 3}, 0, 0, 1},
	{"ddp in bf16", {COMMON, LOW(.reduce_dtype = TUTTI_BF16)}, 0, 1, 1},
	{"fsdp in bf16, rounded at random",
	 {COMMON, LOW(.strategy = TUTTI_FSDP, .grad_dtype = TUTTI_BF16, .stochastic_rounding = 1)},
	 0,
	 0,
	 1},
	{"zero2 in f16",
	 {COMMON, .strategy = TUTTI_ZERO2, .param_dtype = TUTTI_F16, .reduce_dtype = TUTTI_F16,
	  .loss_scale = -1},
	 0,
	 0,
	 1},
	{"local sgd in bf16",
	 {COMMON, LOW(.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 3, .local_sgd_state = 1)},
	 0,
	 0,
	 1},
	{"ddp, offloaded", {COMMON, .strategy = TUTTI_DDP, .offload_optimizer = 1}, 0, 0, 1},
	{"zero2, offloaded", {COMMON, .strategy = TUTTI_ZERO2, .offload_optimizer = 1}, 0, 0, 1},
	{"zero1 in the caller's memory, offloaded",
	 {COMMON, .strategy = TUTTI_ZERO1, .offload_optimizer = 1},
	 1,
	 0,
	 1},
	{"fsdp in bf16, offloaded and rounded at random",
	 {COMMON, LOW(.strategy = TUTTI_FSDP, .offload_optimizer = 1, .stochastic_rounding = 1)},
	 0,
	 0,
	 1},
	{"ddp in bf16, offloaded to files",
	 {COMMON, LOW(.strategy = TUTTI_DDP, .offload_dir = "/tmp")},
	 0,
	 0,
	 1},
	{"local sgd, offloaded",
	 {COMMON, .strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 3, .offload_optimizer = 1},
	 0,
	 0,
	 1},
	{"zero1, the same at every number of ranks",
	 {COMMON, .strategy = TUTTI_ZERO1, .deterministic = 2},
	 0,
	 0,
	 1},
};

struct run {
	const struct variant *variant;
	int gpus; /* 0: in host memory */
	int ranks;
	float values[TOY_PARAMS][TOY_MAX];
	tutti_step_info infos[STEPS];
};

static void hold(CUstream stream, int which, const _Atomic uint32_t *gate)
{
	CUdeviceptr word;

	gpu_use(device_rank_gpu(device_rank.rank, which));
	GPU(mem_host_get_device_pointer, &word, (void *)(uintptr_t)gate, 0);
	GPU(stream_wait_value32, stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
}

/* Of two streams both are held, then the second one, then the first. */
static void close_gate(_Atomic uint32_t *gate, int step)
{
	atomic_store(gate, 0);
	if (!device_rank.second || step != 1)
		hold(device_rank.stream, 0, gate);
	if (device_rank.second && step != 2)
		hold(device_rank.second, 1, gate);
}

static const tutti_optimizer *optimizers(tutti_optimizer groups[2], int step)
{
	groups[0] = toy_adamw;
	groups[0].lr = 0.05f / (float)(step + 1);
	groups[1] = (tutti_optimizer){.kind = TUTTI_SGD,
				      .lr = 0.25f * (float)(step + 1),
				      .momentum = 0.9f,
				      .weight_decay = 0.01f};
	return groups;
}

static int micro_batches(const struct run *run)
{
	return run->variant->config.deterministic == 2 ? 4 : MICRO_BATCHES;
}

static void train_step(struct toy *toy, struct run *run, int step, _Atomic uint32_t *gate)
{
	tutti_optimizer groups[2];
	tutti_step_info info;
	int last = micro_batches(run) - 1, held = step == 2 ? 0 : last;

	device_rank_reuse();
	for (int m = 0; m <= last; m++) {
		if (m == held && gate)
			close_gate(gate, step);
		toy_micro_batch(toy, m < last ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST,
				step * 10 + m, SAMPLES);
	}
	if (gate)
		atomic_store(gate, 1);
	CHECK(tutti_step(toy->trainer, optimizers(groups, step), 2, &info) == TUTTI_OK);
	if (toy->rank == 0)
		run->infos[step] = info;
	toy_micro_batch(toy, TUTTI_PASS_EVAL, step, SAMPLES);
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_config config = run->variant->config;
	_Atomic uint32_t *gate = NULL;
	struct toy toy;

	device_rank_begin_on(comm, &config, run->gpus);
	if (run->gpus && run->variant->is_gated)
		gate = gpu_alloc_pinned(sizeof *gate);
	toy_register(&toy, comm, run->variant->is_extern);
	for (int p = 1; p < TOY_PARAMS; p += 2)
		CHECK(tutti_model_param_group(toy.model, p, 1) == TUTTI_OK);
	toy_train(&toy, comm, &config);
	for (int step = 0; step < STEPS; step++)
		train_step(&toy, run, step, gate);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_keep(&toy, run->values);
	toy_destroy(&toy);
	device_rank_end();
}

static void compare(const struct run *got, const struct run *want)
{
	char name[128];

	snprintf(name, sizeof name, "%s on %d GPUs", got->variant->name, got->gpus);
	for (int p = 0; p < TOY_PARAMS; p++)
		if (memcmp(got->values[p], want->values[p], sizeof want->values[p]) != 0)
			check_failed(__FILE__, __LINE__, name);
	for (int s = 0; s < STEPS; s++)
		if (got->infos[s].grad_norm != want->infos[s].grad_norm ||
		    got->infos[s].loss_scale != want->infos[s].loss_scale ||
		    got->infos[s].skipped != want->infos[s].skipped)
			check_failed(__FILE__, __LINE__, name);
}

/* In all memories, on the same ranks. */
static void train_everywhere(tutti_comm *comm, void *arg)
{
	struct run *runs = arg;

	for (int gpus = 0; gpus <= GPUS; gpus++) {
		if (gpus == 2 && gpu_count() == 1)
			return;
		train(comm, &runs[gpus]);
		if (tutti_rank(comm) == 0 && gpus > 0)
			compare(&runs[gpus], &runs[0]);
	}
}

static void every_variant(int n, int (*as)(int n, rank_fn fn, void *arg))
{
	for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
		struct run runs[GPUS + 1];
		for (int gpus = 0; gpus <= GPUS; gpus++)
			runs[gpus] = (struct run){.variant = &variants[v], .gpus = gpus};
		if (n % variants[v].least == 0 && as(n, train_everywhere, runs) != 0)
			fail_msg("%s on %d ranks", variants[v].name, n);
	}
}

/* Before the process has threads. The ranks are processes: of these ThreadSanitizer sees nothing.
 */
static void test_processes(void **state)
{
	if (whole_or(1, 1, 0))
		every_variant(2, ranks_as_processes);
	if (whole_or(1, 0, 0))
		every_variant(4, ranks_as_processes);
}

static void test_threads(void **state)
{
	if (whole_or(1, 0, 0))
		every_variant(1, ranks_as_threads);
	every_variant(2, ranks_as_threads);
	if (whole_or(1, 0, 0))
		every_variant(4, ranks_as_threads);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes),
		cmocka_unit_test(test_threads),
	};

	test_limit(900);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
