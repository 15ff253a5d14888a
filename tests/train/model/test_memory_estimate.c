/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: a trainer that takes more memory than tutti_memory_estimate says, or fails for
 * lack of it in the middle of a step. Random models, with units of very different sizes and tied
 * parameters, run with memory_limit at the estimate, and their tutti_mem_alloc memory is counted.
 */
#include "tests/train/design.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* Every part of every parameter on 1 to 4 ranks begins on a cache line, in 16 bits too: no padding.
 */
enum { MOST_UNITS = 8, GRAIN = 32 * 4 * 3, MODELS = 100, MOST_RANKS = 4 };

static _Thread_local size_t taken; /* by this rank, of what it has not freed in one piece */

tutti_status __real_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm);
tutti_status __wrap_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm);

tutti_status __wrap_tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm)
{
	taken += bytes;
	return __real_tutti_mem_alloc(ptr, bytes, comm);
}

static uint64_t drawn;

static int draw(int below)
{
	return design_draw_below(&drawn, below);
}

static tutti_train_config draw_config(int ranks)
{
	static const tutti_strategy strategies[] = {TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_ZERO2,
						    TUTTI_FSDP,  TUTTI_FSDP,  TUTTI_HSDP};
	tutti_train_config config = {.strategy = strategies[draw(6)],
				     .bucket_bytes = draw(3) ? 1 + (size_t)draw(1 << 16) : 0,
				     .prefetch_units = draw(4) ? draw(4) : 64,
				     .keep_after_forward = draw(3) == 0};

	if (draw(3) == 0) {
		config.param_dtype = TUTTI_BF16;
		config.grad_dtype = draw(2) ? TUTTI_BF16 : TUTTI_F32;
		config.reduce_dtype = draw(2) ? TUTTI_BF16 : TUTTI_F32;
	}
	if (draw(3) == 0)
		config.deterministic = 1 + (config.param_dtype == TUTTI_F32 && draw(2));
	config.shard_size = ranks % 2 == 0 ? 2 : 1;
	return config;
}

/* The result of tutti_micro_batch; later calls do not fail. */
static tutti_status pass(tutti_trainer *trainer, int units, tutti_pass which)
{
	tutti_status status = tutti_micro_batch(trainer, which, 1, NULL);

	if (status != TUTTI_OK)
		return status;
	CHECK(units_forward(trainer, units) == TUTTI_OK);
	if (which != TUTTI_PASS_EVAL)
		CHECK(units_backward(trainer, units) == TUTTI_OK);
	return TUTTI_OK;
}

static size_t sum_of(const tutti_train_stats *stats)
{
	return stats->param_bytes + stats->grad_bytes + stats->optimizer_bytes +
	       stats->gathered_peak_bytes;
}

struct run {
	struct design design;
	tutti_train_config config;
	int micro_batches;
	size_t more; /* the limit is the estimate plus this */
};

static tutti_train_stats estimate_of(const struct run *run, tutti_comm *comm)
{
	tutti_train_stats estimate = {0};
	tutti_model *model = design_build(&run->design);

	CHECK(tutti_memory_estimate(model, tutti_size(comm), &run->config, &estimate) == TUTTI_OK);
	tutti_model_destroy(model);
	return estimate;
}

static tutti_trainer *create(const struct run *run, tutti_comm *comm, size_t limit)
{
	tutti_train_config config = run->config;
	tutti_model *model = design_build(&run->design);
	tutti_trainer *trainer = NULL;

	config.memory_limit = limit;
	CHECK(tutti_trainer_create(&trainer, model, comm, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	return trainer;
}

/* Deterministic modes keep more between micro-batches: they may fail at the beginning, but not
 * later. */
static void accumulate_some(tutti_trainer *trainer, const struct run *run)
{
	tutti_status status = TUTTI_OK;

	for (int m = 1; m < run->micro_batches && status == TUTTI_OK; m++)
		status = pass(trainer, run->design.units, TUTTI_PASS_ACCUMULATE);
	CHECK(status == TUTTI_OK || (status == TUTTI_ERR_MEMORY && run->config.deterministic));
}

/* Of spans without elements: a cache line of values, gradients, and gradients as they are sent. */
static size_t padding_of(const struct design *design)
{
	size_t bytes = 0;

	for (int p = 0; p < design->params; p++)
		bytes += design->count[p] == 0 ? 3 * 64 : 0;
	return bytes;
}

/* Plain order, with the limit at the estimate: nothing fails, and the estimate is taken. */
static void keep_within(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	tutti_train_stats estimate = estimate_of(run, comm), stats = {0};

	taken = 0;
	tutti_trainer *trainer = create(run, comm, sum_of(&estimate) + run->more);
	size_t at_create = taken;
	for (int step = 0; step < 2 && trainer; step++) {
		accumulate_some(trainer, run);
		CHECK(pass(trainer, run->design.units, TUTTI_PASS_EVAL) == TUTTI_OK);
		CHECK(pass(trainer, run->design.units, TUTTI_PASS_LAST) == TUTTI_OK);
		CHECK(tutti_step(trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	}
	size_t expected = estimate.param_bytes + estimate.grad_bytes + estimate.gathered_peak_bytes;
	CHECK(at_create >= expected && at_create <= expected + padding_of(&run->design));
	CHECK(tutti_trainer_stats(trainer, &stats) == TUTTI_OK);
	CHECK(run->config.deterministic ||
	      (taken == at_create && stats.gathered_peak_bytes <= estimate.gathered_peak_bytes));
	tutti_trainer_destroy(trainer);
}

static void print_run(uint64_t seed, const struct run *run, int ranks)
{
	const tutti_train_config *c = &run->config;

	fprintf(stderr,
		"seed %" PRIu64 ": %d ranks, strategy %d, bucket_bytes %zu, prefetch %d, keep %d, "
		"types %d %d %d, deterministic %d\n",
		seed, ranks, (int)c->strategy, c->bucket_bytes, c->prefetch_units,
		c->keep_after_forward, (int)c->param_dtype, (int)c->grad_dtype,
		(int)c->reduce_dtype, c->deterministic);
	for (int p = 0; p < run->design.params; p++)
		fprintf(stderr, "  p%d of unit %d: %" PRId64 " elements, flags %u, tied to %d\n", p,
			run->design.unit[p], run->design.count[p], run->design.flags[p],
			run->design.tied_to[p]);
}

static uint64_t first_seed(void)
{
	const char *seed = getenv("TEST_SEED");
	return seed ? strtoull(seed, NULL, 10) : 1;
}

static void test_random_models(void **state)
{
	uint64_t first = first_seed();
	for (uint64_t seed = first; seed < first + MODELS; seed++) {
		drawn = seed << 20;
		int ranks = 1 + draw(MOST_RANKS);
		struct run run = {.design = design_draw(&drawn, 1, MOST_UNITS, GRAIN),
				  .config = draw_config(ranks),
				  .micro_batches = 1 + draw(3)};
		if (run.config.deterministic == 2)
			run.micro_batches = 1 << draw(3);
		run.more = run.config.deterministic ? (size_t)draw(DESIGN_PARAMS * 20 * GRAIN) : 0;
		if (ranks_as_threads(ranks, keep_within, &run) == 0)
			continue;
		print_run(seed, &run, ranks);
		fail();
	}
}

/* One large unit among small ones has a slot of its own; the others' slots are small. */
static void test_one_large_unit(void **state)
{
	for (int v = 0; v < 3; v++) {
		struct run run = {.design = design_equal(MOST_UNITS, GRAIN, 0),
				  .config = {.strategy = TUTTI_FSDP,
					     .keep_after_forward = v == 1,
					     .prefetch_units = v == 2 ? 64 : 0},
				  .micro_batches = 2};
		run.design.count[MOST_UNITS - 1] = 64 * GRAIN;
		assert_int_equal(ranks_as_threads(2, keep_within, &run), 0);
	}
}

static void ask_far_ahead(tutti_comm *comm, void *arg)
{
	struct run run = {.design = design_equal(4, GRAIN, 0), .config = {.strategy = TUTTI_FSDP}};
	static const int prefetch[] = {4, 5, 1 << 30, INT_MAX};

	for (int i = 0; i < 4; i++) {
		run.config.prefetch_units = prefetch[i];
		size_t units = 4 * sizeof(float) * GRAIN, gradients = 2 * sizeof(float) * GRAIN;
		CHECK(estimate_of(&run, comm).gathered_peak_bytes == units + gradients);
		keep_within(comm, &run);
	}
}

static void backward_some(tutti_trainer *trainer, int units, int rank, int step)
{
	CHECK(tutti_micro_batch(trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	for (int u = 0; u < units; u++)
		if (rank == 0 || u % 2 == step % 2)
			CHECK(unit_forward(trainer, u) == TUTTI_OK);
	for (int u = 0; u < units; u++) { /* the first bucket's comes last */
		if (rank != 0 && u % 2 != step % 2)
			continue;
		CHECK(tutti_backward_begin(trainer, u) == TUTTI_OK);
		float *grad = tutti_param_grad(trainer, u);
		CHECK(grad != NULL);
		for (int i = 0; grad && i < GRAIN; i++)
			grad[i] += (float)(1 + rank + u + i % 5);
		CHECK(tutti_backward_end(trainer, u) == TUTTI_OK);
	}
	tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.25f};
	CHECK(tutti_step(trainer, &sgd, 1, NULL) == TUTTI_OK);
}

/* Buckets that start late hold their gradients: more of them on ranks that miss a unit. */
static void leave_some_out(tutti_comm *comm, void *arg)
{
	struct run run = {.design = design_equal(8, GRAIN, TUTTI_PARAM_MAY_BE_UNUSED),
			  .config = {.bucket_bytes = 1}};
	float values[2][8][GRAIN];

	for (int v = 0; v < 2; v++) {
		run.config.strategy = v == 0 ? TUTTI_DDP : TUTTI_ZERO2;
		tutti_trainer *trainer = create(&run, comm, 0);
		size_t before = taken;
		for (int step = 0; step < 3; step++)
			backward_some(trainer, 8, tutti_rank(comm), step);
		CHECK(taken == before); /* memory that one rank takes alone is ordinary memory */
		for (int p = 0; p < 8; p++)
			CHECK(tutti_param_read(trainer, p, 0, GRAIN, values[v][p]) == TUTTI_OK);
		tutti_trainer_destroy(trainer);
	}
	CHECK(memcmp(values[0], values[1], sizeof values[0]) == 0);
}

static tutti_status backward_in_forward_order(tutti_trainer *trainer, int units)
{
	tutti_status status = tutti_micro_batch(trainer, TUTTI_PASS_LAST, 1, NULL);

	for (int u = 0; u < units && status == TUTTI_OK; u++)
		CHECK(unit_forward(trainer, u) == TUTTI_OK);
	for (int u = 0; u < units && status == TUTTI_OK; u++) {
		status = tutti_backward_begin(trainer, u);
		if (status == TUTTI_OK)
			CHECK(tutti_backward_end(trainer, u) == TUTTI_OK);
	}
	return status;
}

static void turn_round(tutti_comm *comm, void *arg)
{
	struct run run = {.design = design_equal(6, GRAIN, 0),
			  .config = {.strategy = TUTTI_ZERO2, .bucket_bytes = 1}};
	tutti_train_stats estimate = estimate_of(&run, comm), stats;
	size_t all = 6 * sizeof(float) * GRAIN;

	tutti_trainer *trainer = create(&run, comm, 0);
	CHECK(backward_in_forward_order(trainer, 6) == TUTTI_OK);
	CHECK(tutti_step(trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	CHECK(tutti_trainer_stats(trainer, &stats) == TUTTI_OK);
	CHECK(stats.gathered_peak_bytes == all);
	tutti_trainer_destroy(trainer);
	/* Room for all but one of them. */
	trainer = create(&run, comm, sum_of(&estimate) + 3 * sizeof(float) * GRAIN);
	CHECK_ERROR(backward_in_forward_order(trainer, 6), TUTTI_ERR_MEMORY, "memory_limit");
	tutti_trainer_destroy(trainer);
	trainer = create(&run, comm, sum_of(&estimate) + 4 * sizeof(float) * GRAIN);
	CHECK(backward_in_forward_order(trainer, 6) == TUTTI_OK);
	CHECK(tutti_step(trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	tutti_trainer_destroy(trainer);
}

/* Every unit twice: no gradient is final before the second half of backward. */
static tutti_status run_twice(tutti_trainer *trainer, int units)
{
	tutti_status status = tutti_micro_batch(trainer, TUTTI_PASS_LAST, 1, NULL);

	for (int i = 0; i < 2 * units && status == TUTTI_OK; i++) {
		CHECK(tutti_forward_begin(trainer, i % units) == TUTTI_OK);
		CHECK(tutti_forward_end(trainer, i % units) == TUTTI_OK);
	}
	for (int i = 2 * units - 1; i >= 0 && status == TUTTI_OK; i--) {
		status = tutti_backward_begin(trainer, i % units);
		if (status == TUTTI_OK)
			CHECK(tutti_backward_end(trainer, i % units) == TUTTI_OK);
	}
	return status;
}

/* Rank 1 holds a little more. Rank 0, which has room, fails with it instead of waiting. */
static void run_out_together(tutti_comm *comm, void *arg)
{
	struct run run = {.design = design_equal(6, GRAIN + 4, 0),
			  .config = {.strategy = TUTTI_FSDP}};
	tutti_train_stats estimate = estimate_of(&run, comm);
	size_t enough = sum_of(&estimate) + 4 * sizeof(float) * (GRAIN + 16);

	tutti_trainer *trainer = create(&run, comm, enough - 1);
	CHECK_ERROR(run_twice(trainer, 6), TUTTI_ERR_MEMORY, "memory_limit");
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK); /* neither has ended the other's wait */
	tutti_trainer_destroy(trainer);
	trainer = create(&run, comm, enough);
	CHECK(run_twice(trainer, 6) == TUTTI_OK);
	CHECK(tutti_step(trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	tutti_trainer_destroy(trainer);
}

static void test_other_order(void **state)
{
	assert_int_equal(ranks_as_threads(2, turn_round, NULL), 0);
	assert_int_equal(ranks_as_threads(2, run_out_together, NULL), 0);
}

/* What they keep beside the estimate, in buckets: whole gradients, and levels of the tree. */
static const struct kept {
	tutti_train_config config;
	int micro_batches, blocks;
	int64_t count;
} kept[] = {
	{{.strategy = TUTTI_ZERO2, .deterministic = 1}, 2, 4, GRAIN},
	{{.strategy = TUTTI_FSDP, .deterministic = 1}, 4, 4, GRAIN},
	/* Rank 1 has more than rank 0, which has room. */
	{{.strategy = TUTTI_FSDP, .deterministic = 1}, 4, 4, GRAIN + 4},
	{{.strategy = TUTTI_DDP, .deterministic = 2}, 2, 6, GRAIN},
	{{.strategy = TUTTI_DDP, .deterministic = 2}, 4, 12, GRAIN},
	{{.strategy = TUTTI_FSDP, .deterministic = 2}, 4, 16, GRAIN},
	{{.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 1, .deterministic = 2}, 4, 12, GRAIN},
};

static tutti_status accumulate(tutti_trainer *trainer, int micro_batches)
{
	for (int m = 1; m < micro_batches; m++) {
		tutti_status status = pass(trainer, 6, TUTTI_PASS_ACCUMULATE);
		if (status != TUTTI_OK)
			return status;
	}
	return pass(trainer, 6, TUTTI_PASS_LAST);
}

/* The limit is one byte too low: all ranks fail before anything is lost, and the step can end. */
static void refuse(tutti_comm *comm, void *arg)
{
	const struct kept *k = arg;
	struct run run = {.design = design_equal(6, k->count, 0), .config = k->config};
	size_t block = (size_t)(k->count + 15) / 16 * 16 * sizeof(float);

	run.config.bucket_bytes = 1;
	tutti_train_stats estimate = estimate_of(&run, comm);
	size_t enough = sum_of(&estimate) + (size_t)k->blocks * block;
	tutti_trainer *trainer = create(&run, comm, enough - 1);
	for (int again = 0; again < 2; again++) {
		CHECK_ERROR(accumulate(trainer, k->micro_batches), TUTTI_ERR_MEMORY,
			    "memory_limit");
		CHECK(pass(trainer, 6, TUTTI_PASS_LAST) == TUTTI_OK);
		CHECK(tutti_step(trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	}
	tutti_trainer_destroy(trainer);
	trainer = create(&run, comm, enough);
	for (int step = 0; step < 2; step++) {
		CHECK(accumulate(trainer, k->micro_batches) == TUTTI_OK);
		CHECK(tutti_step(trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	}
	tutti_trainer_destroy(trainer);
}

static void test_accumulation(void **state)
{
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
		struct kept k = kept[i];
		if (ranks_as_threads(2, refuse, &k) != 0)
			fail_msg("strategy %d, deterministic %d, %d micro-batches",
				 (int)k.config.strategy, k.config.deterministic, k.micro_batches);
	}
}

enum { SHARE = 5000 };

/* Memory of a pool that grows is tutti_mem_alloc's on some ranks only. */
static void mix(tutti_comm *comm, void *arg)
{
	int size = tutti_size(comm), rank = tutti_rank(comm), is_plain = rank == *(int *)arg;
	size_t counts[MOST_RANKS], total = (size_t)size * SHARE, own = (size_t)rank * SHARE;
	void *shared = NULL;

	CHECK(tutti_mem_alloc(&shared, total * sizeof(float), comm) == TUTTI_OK);
	float *plain = malloc(total * sizeof *plain);
	CHECK(plain != NULL);
	float *values = is_plain ? plain : shared;
	for (int r = 0; r < size; r++)
		counts[r] = SHARE;
	for (int round = 0; round < 3 && values; round++) {
		for (size_t i = 0; i < total; i++)
			values[i] = (float)(i % 97) + (float)(rank + round);
		CHECK(tutti_reduce_scatterv(values, values + own, counts, NULL, TUTTI_F32,
					    TUTTI_SUM, comm, NULL) == TUTTI_OK);
		float ranks = (float)(size * (size - 1) / 2 + size * round);
		for (size_t i = own; i < own + SHARE; i++)
			CHECK(values[i] == (float)size * (float)(i % 97) + ranks);
		CHECK(tutti_all_gatherv(values + own, values, counts, NULL, TUTTI_F32, comm,
					NULL) == TUTTI_OK);
		for (size_t i = 0; i < total; i++)
			CHECK(values[i] == (float)size * (float)(i % 97) + ranks);
	}
	free(plain);
	CHECK(tutti_mem_free(shared) == TUTTI_OK);
}

static void test_mixed_buffers(void **state)
{
	for (int n = 2; n <= 3; n++)
		for (int odd = 0; odd < n; odd++) {
			assert_int_equal(ranks_as_processes(n, mix, &odd), 0);
			assert_int_equal(ranks_as_threads(n, mix, &odd), 0);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mixed_buffers), /* first: it forks */
		cmocka_unit_test(test_random_models), cmocka_unit_test(test_one_large_unit),
		RANKS_TEST(ask_far_ahead, 2, 2),      RANKS_TEST(leave_some_out, 2, 3),
		cmocka_unit_test(test_other_order),   cmocka_unit_test(test_accumulation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
