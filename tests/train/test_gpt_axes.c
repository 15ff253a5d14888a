/* no_tsan: other tests run the same code with more steps */
/* What would break: a GPT whose losses depend on how "tp", "cp" and "ep" divide it, and one that
 * sends more or less over them than docs/parallel.md says. The communicators are asked what really
 * left their ranks. Rings send exactly what a collective has to. */
#include "tests/train/ranks.h"

#include "examples/gpt/gpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { ELEMENT = 4, BATCH = 4, AXES = 3, STEPS = 20 };

static const struct gpt_shape shape = {
	.vocab = 16, .length = 32, .layers = 2, .heads = 4, .channels = 16};

struct run {
	int sizes[AXES]; /* of "ep", "cp", "tp" */
	int batch;       /* sequences of a step */
	int experts;
	struct gpt_config config;
	double *losses; /* of each step */
};

static const char *const names[AXES] = {"ep", "cp", "tp"};

/* A rank's own. */
struct own {
	const struct run *run;
	struct gpt gpt;
	tutti_mesh *mesh;
	tutti_trainer *trainer;
};

static void start(struct own *own, tutti_comm *comm)
{
	const struct run *run = own->run;
	struct gpt_shape wanted = shape;
	struct gpt_config config = run->config;
	tutti_axis axes[AXES];
	tutti_model *model;

	for (int i = 0; i < AXES; i++)
		axes[i] = (tutti_axis){names[i], run->sizes[i]};
	wanted.experts = run->experts;
	config.max_sequences = (run->batch + run->sizes[0] - 1) / run->sizes[0];
	config.dtype = TUTTI_F32;
	config.group = 4;
	config.capacity = 1.25f;
	config.balance = 0.05f;
	must(tutti_mesh_create(&own->mesh, comm, axes, AXES));
	must(tutti_model_create(&model));
	gpt_register(&own->gpt, wanted, 1, model);
	must(tutti_trainer_create_on(&own->trainer, model, own->mesh,
				     &(tutti_train_config){.seed = 5}));
	tutti_model_destroy(model);
	gpt_start(&own->gpt, own->trainer, own->mesh, &config);
}

/* This rank's part of the step's batch: the ranks of "ep" divide sequences. */
static int load(const struct own *own, int step, unsigned char *tokens, unsigned char *targets)
{
	int ranks = own->run->sizes[0], rank = tutti_mesh_coord(own->mesh, "ep");
	int batch = own->run->batch, first = batch * rank / ranks;
	int count = batch * (rank + 1) / ranks - first;
	int length = own->gpt.context.length;

	for (int i = 0; i < count * length; i++) {
		int at = gpt_position(&own->gpt, i % length);
		int sequence = step * batch + first + i / length;
		tokens[i] =
			(unsigned char)(tutti_random(1, (uint64_t)sequence, 0, (uint64_t)at) % 16);
		targets[i] = (unsigned char)((5 * tokens[i] + 3) % 16);
	}
	return count;
}

/* Returns the sum of this rank's losses. */
static int pass(struct own *own, int step, double *loss)
{
	unsigned char tokens[BATCH * 32], targets[BATCH * 32];
	int sequences = load(own, step, tokens, targets);
	int items = sequences * own->gpt.context.length;

	must(tutti_micro_batch(own->trainer, TUTTI_PASS_LAST, items, NULL));
	gpt_forward(&own->gpt, tokens, sequences);
	gpt_loss(&own->gpt, targets, 1);
	*loss = gpt_loss_sum(&own->gpt);
	gpt_backward(&own->gpt);
	return items;
}

/* ---- the formulas, of all ranks of an axis together ---- */

static int rows_of(const struct run *run)
{
	return run->batch / run->sizes[0] * shape.length / run->sizes[1];
}

/* Blocks of so many elements, each to all others. */
static uint64_t blocks(int count, int ranks, int elements)
{
	return (uint64_t)count * (uint64_t)ranks * (uint64_t)(ranks - 1) * (uint64_t)elements *
	       ELEMENT;
}

static uint64_t all_reduces(int count, int ranks, int elements)
{
	return (uint64_t)count * 2 * (uint64_t)(ranks - 1) * (uint64_t)elements * ELEMENT;
}

/* Of each layer, embedding and head: gathers and scatters of the stream's rows; a scatter has an
 * all_reduce of one number. */
static uint64_t over_tp(const struct run *run)
{
	int ranks = run->sizes[2], again = run->config.recompute;
	int own = rows_of(run) / ranks * shape.channels;
	int gathers = run->experts ? 3 + again : 6 + 2 * again;
	int scatters = run->experts ? 2 + again : 4 + again;

	return blocks((gathers + scatters) * shape.layers + 5, ranks, own) +
	       all_reduces(scatters * shape.layers + 2, ranks, 1) +
	       all_reduces(2, ranks, rows_of(run)) +
	       all_reduces(1, ranks, 2); /* the loss, in f64 */
}

/* Keys and values, and their gradients. */
static uint64_t over_cp(const struct run *run)
{
	int ranks = run->sizes[1], part = shape.channels / run->sizes[2];
	int vectors = rows_of(run) * part, again = run->config.recompute;

	return blocks((3 + again) * shape.layers, ranks, 2 * vectors);
}

/* The rows that a rank sent to others. */
static uint64_t rows_sent(const struct own *own)
{
	const struct experts *experts = &own->gpt.experts;
	uint64_t rows = 0;

	for (int l = 0; l < shape.layers; l++)
		for (int e = 0; e < experts->count; e++)
			if (e / experts->own != experts->axis.rank)
				rows += (uint64_t)own->gpt.activations->units[l + 1]
						.experts.sent[e];
	return rows;
}

/* Each row there and back, and its gradient. With recompute all layers have one memory. */
static uint64_t over_ep(const struct own *own)
{
	const struct run *run = own->run;
	int ranks = run->sizes[0];
	uint64_t rows = rows_sent(own);

	must(tutti_all_reduce(&rows, &rows, 1, TUTTI_U64, TUTTI_SUM,
			      tutti_mesh_comm(own->mesh, "ep"), NULL));
	return rows * 4 * (uint64_t)shape.channels * ELEMENT +
	       blocks(shape.layers, ranks, run->experts / ranks);
}

static uint64_t sent(const struct own *own, int axis)
{
	tutti_comm *comm = tutti_mesh_comm(own->mesh, names[axis]);
	tutti_stats stats;

	CHECK(tutti_comm_stats(comm, &stats) == TUTTI_OK);
	CHECK(stats.window_bytes == 0 && stats.staged_bytes == 0);
	return stats.sent_bytes;
}

static void compare(const struct own *own, int axis, uint64_t bytes, uint64_t expected)
{
	tutti_comm *comm = tutti_mesh_comm(own->mesh, names[axis]);

	must(tutti_all_reduce(&bytes, &bytes, 1, TUTTI_U64, TUTTI_SUM, comm, NULL));
	if (bytes != expected)
		printf("%d %s of %d: %llu bytes, expected %llu\n", own->run->experts, names[axis],
		       own->run->sizes[axis], (unsigned long long)bytes,
		       (unsigned long long)expected);
	CHECK(bytes == expected);
}

static void finish(struct own *own)
{
	gpt_finish(&own->gpt);
	tutti_trainer_destroy(own->trainer);
	tutti_mesh_destroy(own->mesh);
}

static void count(tutti_comm *comm, void *arg)
{
	struct own own = {.run = arg};
	const struct run *run = arg;
	uint64_t bytes[AXES];
	double loss;

	start(&own, comm);
	for (int i = 0; i < AXES; i++)
		bytes[i] = sent(&own, i);
	pass(&own, 0, &loss);
	for (int i = 0; i < AXES; i++)
		bytes[i] = sent(&own, i) - bytes[i];
	if (run->experts)
		compare(&own, 0, bytes[0], over_ep(&own));
	compare(&own, 1, bytes[1], over_cp(run));
	compare(&own, 2, bytes[2], over_tp(run));
	must(tutti_step(own.trainer, &(tutti_optimizer){.kind = TUTTI_SGD, .lr = 0.1f}, 1, NULL));
	finish(&own);
}

static void train(tutti_comm *comm, void *arg)
{
	struct own own = {.run = arg};

	start(&own, comm);
	for (int step = 0; step < STEPS; step++) {
		double loss, items = pass(&own, step, &loss), mean;
		must(tutti_step(own.trainer,
				&(tutti_optimizer){.kind = TUTTI_ADAMW,
						   .lr = 0.01f,
						   .beta1 = 0.9f,
						   .beta2 = 0.95f,
						   .eps = 1e-8f},
				1, NULL));
		must(tutti_means(own.trainer, &loss, &items, &mean, 1));
		if (tutti_rank(comm) == 0)
			own.run->losses[step] = mean;
	}
	finish(&own);
}

static const struct run runs[] = {
	{{1, 1, 2}, BATCH, 0, {0}, NULL}, {{1, 1, 4}, BATCH, 0, {.recompute = 1}, NULL},
	{{1, 2, 1}, BATCH, 0, {0}, NULL}, {{1, 4, 1}, BATCH, 0, {.recompute = 1}, NULL},
	{{1, 2, 2}, BATCH, 0, {0}, NULL}, {{1, 4, 2}, BATCH, 0, {0}, NULL},
	{{2, 1, 1}, BATCH, 4, {0}, NULL}, {{4, 1, 1}, BATCH, 8, {0}, NULL},
	{{4, 1, 1}, 3, 8, {0}, NULL}, /* a rank without a sequence */
	{{2, 2, 2}, BATCH, 4, {0}, NULL}, {{1, 1, 2}, BATCH, 4, {.recompute = 1}, NULL},
};
enum { RUNS = sizeof runs / sizeof *runs };

static int ranks_of(const struct run *run)
{
	return run->sizes[0] * run->sizes[1] * run->sizes[2];
}

static void test_bytes(void **state)
{
	for (int i = 0; i < RUNS; i++)
		assert_int_equal(
			ranks_as_threads(ranks_of(&runs[i]), count, (void *)(uintptr_t)&runs[i]),
			0);
}

static void test_losses(void **state)
{
	double alone[STEPS], divided[STEPS];

	for (int i = 0; i < RUNS; i++) {
		struct run run = runs[i], one = {{1, 1, 1}, run.batch, run.experts, {0}, alone};
		double worst = 0;

		run.losses = divided;
		assert_int_equal(ranks_as_threads(1, train, &one), 0);
		assert_int_equal(ranks_as_threads(ranks_of(&run), train, &run), 0);
		for (int step = 0; step < STEPS; step++)
			worst = fmax(worst, fabs(alone[step] - divided[step]));
		printf("run %d: losses %g to %g, differ by %g\n", i, alone[0], alone[STEPS - 1],
		       worst);
		assert_true(alone[STEPS - 1] < 0.8 * alone[0]);
		assert_true(worst < 2e-5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes),
					   cmocka_unit_test(test_losses)};

	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_ALGO", "all_reduce=ring,all_gather=ring,broadcast=ring,reduce=ring", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
