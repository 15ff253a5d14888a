/* slow: 5 s */
/* no_tsan: its ranks are processes */
/* What would break: a trainer on several nodes whose gathers and sums send more between nodes than
 * each rank's own share, or whose values are wrong then. Each strategy is trained with the kernels
 * of the GPUs and by the engine alone, which sends within nodes, too: what the calls are for says
 * how many bytes fewer it is to be. Gradients are whole numbers, so both have the same bits. */
#include "tests/cuda/gpu_ranks.h"
#include "tests/limit.h"
#include "tests/train/device/device_rank.h"

#include "train/state/trainer_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "tests/unit.h"

enum { RANKS = 4, NODES = 2, LOCAL = 2, UNITS = 3, COUNT = 90001, STEPS = 3 };
/* As collectives/device/across.c has it. */
#define PIECE_BYTES ((size_t)64 << 10)

static const struct {
	const char *name;
	tutti_train_config config;
} variants[] = {
	{"zero1", {.strategy = TUTTI_ZERO1}},
	{"zero2", {.strategy = TUTTI_ZERO2}},
	{"fsdp", {.strategy = TUTTI_FSDP}},
	{"fsdp of bf16", {.strategy = TUTTI_FSDP, .param_dtype = TUTTI_BF16}},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Of one rank's steps. across and within: bytes that the long calls send in two levels. */
struct result {
	uint64_t sent, across, within, calls, hash;
};
static struct result (*results)[RANKS]; /* of the engine and of the kernels; all processes */
static struct result own;
static bool is_counting;

static size_t sum_of(const size_t *counts, int first, int step)
{
	size_t sum = 0;

	for (int r = first; r < RANKS; r += step)
		sum += counts[r];
	return sum;
}

/* Ranks of one place in their nodes, which are numbered node by node, are a lane. */
static void note(const size_t *counts, tutti_dtype dtype, int rank, bool gathers)
{
	size_t width = dtype_bytes(dtype), all = sum_of(counts, 0, 1);
	size_t lane = sum_of(counts, rank % LOCAL, LOCAL), mine = counts[rank];

	if (!is_counting || all * width / NODES < PIECE_BYTES)
		return;
	own.across += (gathers ? (NODES - 1) * mine : lane - mine) * width;
	own.within += (gathers ? (LOCAL - 1) * lane : all - lane) * width;
	own.calls++;
}

tutti_status __real_tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
				      const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
				      const tutti_call *call);
tutti_status __wrap_tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
				      const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
				      const tutti_call *call);
tutti_status __wrap_tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
				      const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
				      const tutti_call *call)
{
	note(counts, dtype, tutti_rank(comm), true);
	return __real_tutti_all_gatherv(send, recv, counts, offsets, dtype, comm, call);
}

tutti_status __real_tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
					  const size_t *offsets, tutti_dtype dtype, tutti_op op,
					  tutti_comm *comm, const tutti_call *call);
tutti_status __wrap_tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
					  const size_t *offsets, tutti_dtype dtype, tutti_op op,
					  tutti_comm *comm, const tutti_call *call);
tutti_status __wrap_tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
					  const size_t *offsets, tutti_dtype dtype, tutti_op op,
					  tutti_comm *comm, const tutti_call *call)
{
	note(counts, dtype, tutti_rank(comm), false);
	return __real_tutti_reduce_scatterv(send, recv, counts, offsets, dtype, op, comm, call);
}

static uint64_t sent_by(const tutti_trainer *t)
{
	tutti_comm *const comms[] = {t->homes[0].gather, t->homes[0].reduce};
	uint64_t sent = 0;

	for (int i = 0; i < 2; i++) {
		tutti_stats stats;
		gpu_rank_must(tutti_comm_stats(comms[i], &stats), "stats");
		sent += stats.sent_bytes;
	}
	return sent;
}

static void make_trainer(tutti_trainer **t, tutti_comm *comm, const tutti_train_config *config)
{
	int64_t count = COUNT;
	tutti_model *model;
	char name[32];

	gpu_rank_must(tutti_model_create(&model), "model");
	for (int u = 0; u < UNITS; u++) {
		snprintf(name, sizeof name, "unit.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		snprintf(name, sizeof name, "param.%d", u);
		CHECK(tutti_model_param(model, u, name, 1, &count, 0) == u);
	}
	gpu_rank_must(tutti_trainer_create(t, model, comm, config), "trainer");
	tutti_model_destroy(model);
	for (int u = 0; u < UNITS; u++)
		gpu_rank_must(tutti_param_init_normal(*t, u, 0.5f, 2), "init");
}

/* The values that were gathered. */
static void hash_values(tutti_trainer *t, int unit)
{
	static unsigned char values[COUNT * sizeof(float)];
	size_t bytes = COUNT * dtype_bytes(t->config.param_dtype);

	gpu_sync(device_rank.stream);
	gpu_read(values, tutti_param_data(t, unit), bytes);
	for (size_t i = 0; i < bytes; i++)
		own.hash = (own.hash ^ values[i]) * UINT64_C(0x100000001b3);
}

static void add_grad(tutti_trainer *t, int unit, int step)
{
	static float grad[COUNT];

	gpu_sync(device_rank.stream);
	gpu_read(grad, tutti_param_grad(t, unit), sizeof grad);
	for (size_t i = 0; i < COUNT; i++)
		grad[i] += (float)((i + (size_t)(31 * unit + 7 * step + t->rank)) % 13);
	gpu_write(tutti_param_grad(t, unit), grad, sizeof grad);
}

static void step(tutti_trainer *t, int number)
{
	tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};

	gpu_rank_must(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL), "micro_batch");
	for (int u = 0; u < UNITS; u++) {
		gpu_rank_must(tutti_forward_begin(t, u), "forward_begin");
		hash_values(t, u);
		gpu_rank_must(tutti_forward_end(t, u), "forward_end");
	}
	for (int u = UNITS - 1; u >= 0; u--) {
		gpu_rank_must(tutti_backward_begin(t, u), "backward_begin");
		add_grad(t, u, number);
		gpu_rank_must(tutti_backward_end(t, u), "backward_end");
	}
	gpu_rank_must(tutti_step(t, &sgd, 1, NULL), "step");
	gpu_sync(device_rank.stream);
}

static int rank_main(int rank, int v)
{
	bool by_kernels = v >= VARIANTS;
	tutti_config config = {.device = rank + 1, .timeout_ms = 20000};
	tutti_train_config train_config = variants[v % VARIANTS].config;
	char host[16];
	tutti_comm *comm;
	tutti_trainer *t;

	snprintf(host, sizeof host, "node%d", rank / LOCAL);
	setenv("TUTTI_HOST_ID", host, 1);
	setenv("TUTTI_CUDA", by_kernels ? "2" : "1", 1);
	setenv("TUTTI_ALGO", "all_gather=two_level,reduce_scatter=two_level,all_reduce=two_level",
	       1);
	gpu_rank_must(tutti_init(&comm, &config), "init");
	device_rank_begin(comm, &train_config, true);
	make_trainer(&t, comm, &train_config);
	gpu_rank_must(tutti_check_replicas(t), "check_replicas"); /* ends what is in flight */
	is_counting = true;
	uint64_t before = sent_by(t);
	for (int i = 0; i < STEPS; i++)
		step(t, i);
	gpu_rank_must(tutti_check_replicas(t), "check_replicas");
	own.sent = sent_by(t) - before;
	results[by_kernels][rank] = own;
	tutti_trainer_destroy(t);
	device_rank_end();
	tutti_comm_destroy(comm);
	return 0;
}

static void test_bytes(void **state)
{
	for (int v = 0; v < VARIANTS; v++) {
		gpu_ranks_run(RANKS, rank_main, v, 0);
		gpu_ranks_run(RANKS, rank_main, v + VARIANTS, 0);
		for (int r = 0; r < RANKS; r++) {
			const struct result *engine = &results[0][r], *kernels = &results[1][r];
			print_message("%s, rank %d: %" PRIu64 " bytes, and %" PRIu64
				      " by the engine, in %" PRIu64 " long calls\n",
				      variants[v].name, r, kernels->sent, engine->sent,
				      kernels->calls);
			assert_true(kernels->calls >= (uint64_t)2 * STEPS &&
				    kernels->calls == engine->calls);
			assert_int_equal(engine->sent - kernels->sent, kernels->within);
			assert_true(kernels->sent >= kernels->across);
			assert_int_equal(kernels->hash, engine->hash);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes)};

	test_limit(300);
	results = mmap(NULL, 2 * sizeof *results, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(results != MAP_FAILED);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
