/* slow: 5 s */
/* What would break: a strategy that trains other values than DDP, holds or sends other bytes than
 * its arithmetic says, or leaves parameters readable that it has freed. The toy's gradients are
 * sums of small integers, so whatever the order of additions every strategy and number of ranks has
 * the same bits. */
#include "tests/train/design.h"
#include "tests/train/plain_update.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"
#include "tests/whole.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, STEPS = 3 };

struct variant {
	const char *name;
	tutti_train_config config;
	int is_extern, least; /* least: ranks, which must be a multiple of it */
};

#define COMMON .seed = 7, .max_grad_norm = 3, .bucket_bytes = 200, .deterministic = 1

static const struct variant variants[] = {
	{"ddp", {COMMON, .strategy = TUTTI_DDP}, 0, 1},
	{"ddp of any order, in the caller's memory",
	 {.seed = 7, .max_grad_norm = 3, .bucket_bytes = 200, .strategy = TUTTI_DDP},
	 1,
	 1},
	{"zero1", {COMMON, .strategy = TUTTI_ZERO1}, 0, 1},
	{"zero1 of whole tensors", {COMMON, .strategy = TUTTI_ZERO1, .whole_tensors = 1}, 0, 1},
	{"zero1 in the caller's memory", {COMMON, .strategy = TUTTI_ZERO1}, 1, 1},
	{"zero2", {COMMON, .strategy = TUTTI_ZERO2}, 0, 1},
	{"zero2 of whole tensors", {COMMON, .strategy = TUTTI_ZERO2, .whole_tensors = 1}, 0, 1},
	{"fsdp", {COMMON, .strategy = TUTTI_FSDP}, 0, 1},
	{"fsdp of whole tensors", {COMMON, .strategy = TUTTI_FSDP, .whole_tensors = 1}, 0, 1},
	{"fsdp that keeps after forward",
	 {COMMON, .strategy = TUTTI_FSDP, .keep_after_forward = 1},
	 0,
	 1},
	{"fsdp far ahead", {COMMON, .strategy = TUTTI_FSDP, .prefetch_units = 3}, 0, 1},
	{"hsdp", {COMMON, .strategy = TUTTI_HSDP, .shard_size = 2}, 0, 2},
	{"hsdp of one", {COMMON, .strategy = TUTTI_HSDP, .shard_size = 1}, 0, 1},
};

/* A training by a variant, and its results on rank 0. in_groups: parameters of odd index by SGD
 * with momentum, the others by AdamW, with rates that change every step. */
struct run {
	const struct variant *variant;
	bool in_groups;
	int micro_batches, deterministic;
	float values[TOY_PARAMS][TOY_MAX];
	float norms[STEPS];
};

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

static void train_steps(struct toy *toy, struct run *run, int rank)
{
	for (int step = 0; step < STEPS; step++) {
		tutti_optimizer groups[2];
		tutti_step_info info;
		for (int m = 0; m < run->micro_batches; m++)
			toy_micro_batch(toy,
					m + 1 < run->micro_batches ? TUTTI_PASS_ACCUMULATE
								   : TUTTI_PASS_LAST,
					step * 10 + m, SAMPLES);
		const tutti_optimizer *o = run->in_groups ? optimizers(groups, step) : &toy_adamw;
		CHECK(tutti_step(toy->trainer, o, run->in_groups ? 2 : 1, &info) == TUTTI_OK);
		CHECK(!info.skipped && info.items == SAMPLES * run->micro_batches);
		if (rank == 0)
			run->norms[step] = info.grad_norm;
		toy_micro_batch(toy, TUTTI_PASS_EVAL, step, SAMPLES);
	}
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_config config = run->variant->config;
	struct toy toy;

	config.deterministic = run->deterministic;
	toy_register(&toy, comm, run->variant->is_extern);
	for (int p = 1; p < TOY_PARAMS && run->in_groups; p += 2)
		CHECK(tutti_model_param_group(toy.model, p, 1) == TUTTI_OK);
	toy_train(&toy, comm, &config);
	train_steps(&toy, run, tutti_rank(comm));
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_keep(&toy, run->values);
	toy_destroy(&toy);
}

static void compare(const struct run *run, const struct run *expected, int n)
{
	for (int p = 0; p < TOY_PARAMS; p++)
		if (memcmp(run->values[p], expected->values[p], toy_count(p) * sizeof(float)) != 0)
			fail_msg("%s on %d ranks, %d micro-batches: parameter %d is another than "
				 "with DDP on one rank: %g, %g",
				 run->variant->name, n, run->micro_batches, p,
				 (double)run->values[p][0], (double)expected->values[p][0]);
	assert_memory_equal(run->norms, expected->norms, sizeof run->norms);
}

/* Every variant against expected, which is DDP's on one rank. */
static void same_bits(const struct run *expected, int most)
{
	for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
		for (int n = 1; n <= most; n++) {
			struct run run = {.variant = &variants[v],
					  .in_groups = expected->in_groups,
					  .micro_batches = expected->micro_batches,
					  .deterministic = variants[v].config.deterministic};
			if (n % variants[v].least != 0 || (n > 4 && n < 8))
				continue;
			assert_int_equal(ranks_as_threads(n, train, &run), 0);
			compare(&run, expected, n);
		}
}

static void test_same_bits(void **state)
{
	for (int micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
		struct run expected = {.variant = &variants[0],
				       .micro_batches = micro_batches,
				       .deterministic = 1};
		assert_int_equal(ranks_as_threads(1, train, &expected), 0);
		same_bits(&expected, whole_or(8, 4, 4));
	}
}

/* One parameter of the run, computed from its first values by the formulas. */
static void check_plainly(const struct run *run, int param, const float *first)
{
	for (size_t i = 0; i < toy_count(param); i++) {
		struct plain x = {.value = first[i]};
		for (int step = 0; step < STEPS; step++) {
			tutti_optimizer groups[2];
			double clip = fmin(1, 3 / (double)run->norms[step]);
			double sum = toy_sum(param, i, step * 10, SAMPLES);
			optimizers(groups, step);
			plain_update(&x, clip * sum / SAMPLES, &groups[param % 2], step);
		}
		if (!(fabs(x.value - (double)run->values[param][i]) < 2e-5))
			fail_msg("parameter %d, element %zu: %g instead of %g", param, i,
				 (double)run->values[param][i], x.value);
	}
}

static void first_values(tutti_comm *comm, void *arg)
{
	struct toy toy;

	toy_make(&toy, comm, &variants[0].config);
	toy_read(toy.trainer, arg);
	toy_destroy(&toy);
}

static void test_groups(void **state)
{
	struct run expected = {
		.variant = &variants[0], .in_groups = true, .micro_batches = 1, .deterministic = 1};
	float first[TOY_PARAMS][TOY_MAX];

	assert_int_equal(ranks_as_threads(1, first_values, first), 0);
	assert_int_equal(ranks_as_threads(1, train, &expected), 0);
	for (int p = 0; p < TOY_PARAMS; p++)
		check_plainly(&expected, p, first[p]);
	same_bits(&expected, 4);
}

static void test_processes(void **state)
{
	/* TSan sees nothing of what processes share. */
	const int all = (int)(sizeof variants / sizeof *variants), count = whole_or(all, all, 1);

	for (int v = 0; v < count; v++) {
		struct run run = {.variant = &variants[v], .micro_batches = 2};
		assert_int_equal(ranks_as_processes(2, train, &run), 0);
	}
}

static double elements(int first_unit, int last_unit)
{
	double sum = 0;

	for (int p = 0; p < TOY_PARAMS; p++)
		if (toy_unit(p) >= first_unit && toy_unit(p) <= last_unit)
			sum += (double)toy_count(p);
	return sum;
}

/* Buckets are rounded down one by one. */
static void check_near(double got, double expected, double slack, const char *what,
		       const struct variant *variant, int n)
{
	if (got > expected + slack || got < expected - slack) {
		printf("%s on %d ranks: %s is %g, not %g\n", variant->name, n, what, got, expected);
		CHECK(!"bytes");
	}
}

static void count_bytes(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	const tutti_train_config *c = &run->variant->config;
	struct run copy = *run;
	struct toy toy;
	tutti_train_stats before, after, estimate;
	int size = tutti_size(comm), strategy = (int)c->strategy;
	int shards = strategy == TUTTI_DDP ? 1 : strategy == TUTTI_HSDP ? c->shard_size : size;

	toy_register(&toy, comm, run->variant->is_extern);
	CHECK(tutti_memory_estimate(toy.model, size, c, &estimate) == TUTTI_OK);
	toy_train(&toy, comm, c);
	CHECK(tutti_trainer_stats(toy.trainer, &before) == TUTTI_OK);
	train_steps(&toy, &copy, tutti_rank(comm));
	CHECK(tutti_trainer_stats(toy.trainer, &after) == TUTTI_OK);
	toy_destroy(&toy);

	double all = 4 * elements(0, 3), f = (shards - 1.0) / shards, m = run->micro_batches;
	double r = size / shards, per_replica = 2 * (r - 1) / r * all / shards,
	       pad = c->whole_tensors ? 300 : 4 * 16;
	int by_unit = strategy == TUTTI_FSDP || strategy == TUTTI_HSDP;
	double grads = strategy == TUTTI_DDP || strategy == TUTTI_ZERO1 ? all : all / shards;
	check_near((double)after.param_bytes, by_unit ? all / shards : all, pad, "param_bytes",
		   run->variant, size);
	if (!run->variant->is_extern)
		check_near((double)after.grad_bytes, grads, pad, "grad_bytes", run->variant, size);
	check_near((double)after.optimizer_bytes, 2 * all / shards, 2 * pad, "optimizer_bytes",
		   run->variant, size);
	CHECK(after.param_bytes <= estimate.param_bytes && after.grad_bytes <= estimate.grad_bytes);
	CHECK(after.optimizer_bytes <= estimate.optimizer_bytes);
	CHECK(after.gathered_peak_bytes <= estimate.gathered_peak_bytes);

	/* The tied parameter's unit is gathered once more, for the last unit's forward. */
	double first = 4 * elements(0, 0), last = 4 * elements(3, 3), gathered = 0;
	double sent = strategy == TUTTI_ZERO1              ? f * all
		      : by_unit || strategy == TUTTI_ZERO2 ? f * m * all
							   : 0;
	if (strategy == TUTTI_ZERO1 || strategy == TUTTI_ZERO2)
		gathered = f * all;
	else if (by_unit && shards > 1)
		gathered = f * (c->keep_after_forward ? m * all : m * (2 * all - last + first)) +
			   f * (all + first);
	if (c->keep_after_forward)
		gathered = f * m * all + f * (all + first); /* EVAL keeps nothing */
	check_near((double)(after.sent_grad_bytes - before.sent_grad_bytes),
		   STEPS * (sent + per_replica), STEPS * (10 * m + 40), "sent_grad_bytes",
		   run->variant, size);
	if (shards > 1)
		check_near((double)(after.sent_param_bytes - before.sent_param_bytes),
			   STEPS * gathered, STEPS * 20 * m, "sent_param_bytes", run->variant,
			   size);
}

static void test_bytes(void **state)
{
	const int most = whole_or(8, 4, 2);

	for (int micro_batches = 1; micro_batches <= 3; micro_batches += 2)
		for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
			for (int n = 1; n <= most; n *= 2) {
				struct variant plain = variants[v];
				struct run run = {.variant = &plain,
						  .micro_batches = micro_batches};
				plain.config.deterministic = 0;
				if (n % plain.least == 0)
					assert_int_equal(ranks_as_threads(n, count_bytes, &run), 0);
			}
}

static void freed(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = TUTTI_FSDP};
	struct toy toy;

	toy_make(&toy, comm, &config);
	tutti_trainer *t = toy.trainer;
	CHECK(tutti_param_data(t, 0) == NULL && tutti_param_grad(t, 0) == NULL);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(tutti_forward_begin(t, 1) == TUTTI_OK);
	const float *data = tutti_param_data(t, 2);
	CHECK(data != NULL && tutti_param_data(t, 0) == NULL && tutti_param_grad(t, 2) == NULL);
	float kept = data ? data[0] : 0;
	CHECK(tutti_forward_end(t, 1) == TUTTI_OK);
	CHECK(tutti_param_data(t, 2) == NULL);
	CHECK(tutti_forward_begin(t, 3) == TUTTI_OK);
	CHECK(tutti_param_data(t, 0) != NULL); /* tied: unit 3 uses it */
	CHECK(tutti_forward_end(t, 3) == TUTTI_OK);
	for (int u = 3; u > 0; u -= 2) {
		CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
		CHECK(tutti_param_data(t, u == 3 ? 5 : 2) != NULL &&
		      tutti_param_grad(t, u == 3 ? 5 : 2) != NULL);
		CHECK(tutti_backward_end(t, u) == TUTTI_OK);
	}
	CHECK_ERROR(tutti_grads_finish(t, NULL), TUTTI_ERR_INVALID, "'param.1'");
	float value;
	CHECK(tutti_param_read(t, 2, 0, 1, &value) == TUTTI_OK && value == kept);
	value = 5;
	CHECK(tutti_param_write(t, 3, 63, 1, &value) == TUTTI_OK);
	CHECK(tutti_param_read(t, 3, 63, 1, &value) == TUTTI_OK && value == 5);
	toy_destroy(&toy);
}

/* Rank 1 skips a unit, of the same size as the next one, that the others run. */
static void other_order(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = TUTTI_FSDP};
	const struct design design = design_equal(4, 12, TUTTI_PARAM_MAY_BE_UNUSED);
	tutti_model *model = design_build(&design);
	tutti_trainer *t;
	tutti_status status = TUTTI_OK;

	CHECK(tutti_trainer_create(&t, model, comm, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	for (int u = 0; u < 4 && status == TUTTI_OK; u++) {
		if (u == 2 && tutti_rank(comm) == 1)
			continue;
		status = unit_forward(t, u);
	}
	if (status == TUTTI_OK)
		status = tutti_grads_finish(t, NULL);
	CHECK_ERROR(status, TUTTI_ERR_MISMATCH, " is at the forward of unit 'u2'");
	CHECK_MESSAGE("ank 1 is at the forward of unit 'u3'");
	CHECK_MESSAGE("run the same units in the same order on all ranks");
	tutti_trainer_destroy(t);
}

/* Through the window and by messages. */
static void test_other_order(void **state)
{
	static const char *const ways[][2] = {{"1", "shm,tcp"}, {"0", "shm"}, {"0", "tcp"}};

	for (int w = 0; w < 3; w++) {
		setenv("TUTTI_WINDOW", ways[w][0], 1);
		setenv("TUTTI_TRANSPORTS", ways[w][1], 1);
		for (int n = 2; n <= 4; n++)
			assert_int_equal(ranks_with_timeout(n, 10000, other_order, NULL), 0);
	}
	unsetenv("TUTTI_WINDOW");
	unsetenv("TUTTI_TRANSPORTS");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes), cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_bytes),     RANKS_TEST(freed, 2, 3),
		cmocka_unit_test(test_groups),    cmocka_unit_test(test_other_order),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
