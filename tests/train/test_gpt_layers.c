/* slow: 3 s */
/* no_asan: one thread that computes for long in plain arrays */
/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: a backward that is not the derivative of its forward, a loss that depends on
 * the number of ranks or the strategy, and 16-bit parameters that compute with other numbers. */
#include "tests/train/ranks.h"

#include "examples/gpt/gpt.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { SEQUENCES = 6, MAX_TOKENS = 64 };

static const struct gpt_shape tiny = {
	.vocab = 11, .length = 6, .layers = 2, .heads = 2, .channels = 8};

struct small_gpt {
	struct gpt gpt;
	tutti_trainer *trainer;
	unsigned char tokens[MAX_TOKENS], targets[MAX_TOKENS];
	int chosen[2][MAX_TOKENS]; /* of each layer, the expert that a token has chosen first */
};

static void start_as(struct small_gpt *small, tutti_comm *comm, const tutti_train_config *config,
		     struct gpt_shape shape, struct gpt_config ways)
{
	tutti_model *model;

	must(tutti_model_create(&model));
	gpt_register(&small->gpt, shape, 1, model);
	must(tutti_trainer_create(&small->trainer, model, comm, config));
	tutti_model_destroy(model);
	ways.max_sequences = SEQUENCES;
	ways.dtype = config->param_dtype;
	gpt_start(&small->gpt, small->trainer, NULL, &ways);
}

static void start(struct small_gpt *small, tutti_comm *comm, const tutti_train_config *config)
{
	start_as(small, comm, config, tiny, (struct gpt_config){0});
}

static void finish(struct small_gpt *small)
{
	gpt_finish(&small->gpt);
	tutti_trainer_destroy(small->trainer);
}

/* Sequences [first, last) of a batch: three of four tokens follow from the one before. */
static void load(struct small_gpt *small, int step, int first, int last)
{
	for (int i = first * tiny.length; i < last * tiny.length; i++) {
		int at = i - first * tiny.length;
		uint32_t drawn = tutti_random(1, (uint64_t)step, 0, (uint64_t)i);
		bool is_first = i % tiny.length == 0;
		int token = is_first ? (int)(drawn % 11) : small->targets[at - 1];
		bool follows = (drawn >> 16) % 4 > 0;
		small->tokens[at] = (unsigned char)token;
		small->targets[at] =
			(unsigned char)(follows ? (3 * token + 1) % 11 : (int)(drawn >> 8) % 11);
	}
}

/* Those of the last forward, in which each layer had memory of its own. */
static void keep_choices(struct small_gpt *small)
{
	for (int l = 0; l < tiny.layers; l++)
		for (int r = 0; r < SEQUENCES * tiny.length; r++)
			small->chosen[l][r] = small->gpt.activations->units[l + 1]
						      .experts.chosen[r * EXPERTS_CHOSEN];
}

/* A layer's load-balance loss, by gpt.h: the share of a group's tokens that chose an expert
 * first, which has no slope, times the sum of the group's chances of it. */
static double balance_of(const struct small_gpt *small, int layer)
{
	const struct experts *x = &small->gpt.experts;
	const float *chances = small->gpt.activations->units[layer + 1].experts.chances;
	double sum = 0;

	for (int r = 0; r < SEQUENCES * tiny.length; r++)
		for (int e = 0; e < x->count; e++) {
			int first = r / x->group * x->group, chose = 0;
			for (int i = first; i < first + x->group; i++)
				chose += small->chosen[layer][i] == e;
			sum += (double)chances[r * x->count + e] * chose / x->group;
		}
	return (double)x->balance * x->count * sum;
}

static double loss_of(struct small_gpt *small)
{
	must(tutti_micro_batch(small->trainer, TUTTI_PASS_EVAL, 1, NULL));
	gpt_forward(&small->gpt, small->tokens, SEQUENCES);
	gpt_loss(&small->gpt, small->targets, 0);
	double loss = gpt_loss_sum(&small->gpt);
	for (int l = 0; l < tiny.layers && small->gpt.config.balance > 0; l++)
		loss += balance_of(small, l);
	return loss;
}

/* The slope of the loss along one coordinate, from four points: the error falls with the fourth
 * power of the distance, so the distance can be large against f32's rounding. */
static double slope(struct small_gpt *small, float *x)
{
	const float distance = 0.02f, before = *x;
	double points[4];

	for (int i = 0; i < 4; i++) {
		const float steps[] = {-2, -1, 1, 2};
		*x = before + steps[i] * distance;
		points[i] = loss_of(small);
	}
	*x = before;
	return (points[0] - 8 * points[1] + 8 * points[2] - points[3]) / (12 * (double)distance);
}

/* Both experts compute each token. Where they have no capacity for all, those that chose one first
 * are taken: a few slopes are across the place where a token chooses another one first. */
static const struct way {
	int experts;
	struct gpt_config config;
} ways[] = {{0, {0}},
	    {0, {.recompute = 1}},
	    {2, {.group = 6, .capacity = 2, .balance = 0.5f}},
	    {2, {.group = 3, .capacity = 0.6f, .recompute = 1}}};

/* Every element of every parameter. Values are made large first, so that all paths matter. */
static void gradients(tutti_comm *comm, void *arg)
{
	const struct way *way = arg;
	struct gpt_shape shape = tiny;
	const tutti_train_config config = {.seed = 3};
	static struct small_gpt small;
	static float grads[8192];
	size_t next = 0;
	double worst = 0;
	int jumps = 0;

	shape.experts = way->experts;
	start_as(&small, comm, &config, shape, way->config);
	for (int p = 0; p < small.gpt.params; p++)
		must(tutti_param_init_normal(small.trainer, p,
					     p == small.gpt.units[tiny.layers + 1][NORM1_W] ? 1 : 0,
					     0.4f));
	load(&small, 0, 0, SEQUENCES);
	must(tutti_micro_batch(small.trainer, TUTTI_PASS_LAST, 1, NULL));
	gpt_forward(&small.gpt, small.tokens, SEQUENCES);
	gpt_loss(&small.gpt, small.targets, 1);
	CHECK(gpt_loss_sum(&small.gpt) > 0); /* which begins anew */
	if (way->config.balance > 0)
		keep_choices(&small);
	gpt_backward(&small.gpt);
	must(tutti_grads_finish(small.trainer, NULL));
	CHECK(gpt_param_count(&small.gpt) < 8192);
	for (int p = 0; p < small.gpt.params; p++) {
		memcpy(grads + next, tutti_param_grad(small.trainer, p),
		       small.gpt.counts[p] * sizeof *grads);
		next += small.gpt.counts[p];
	}
	next = 0;
	for (int p = 0; p < small.gpt.params; p++) {
		float *x = tutti_param_data(small.trainer, p);
		for (size_t i = 0; i < small.gpt.counts[p]; i++, next++) {
			double error = fabs(slope(&small, x + i) - (double)grads[next]);
			error /= 1 + fabs((double)grads[next]);
			if (way->config.capacity > 0 && way->config.capacity < 1 && error > 3e-3)
				jumps++;
			else
				worst = fmax(worst, error);
		}
	}
	printf("%zu slopes, largest error %g, %d jumps\n", next, worst, jumps);
	CHECK(worst < 3e-3 && jumps < 20);
	finish(&small);
}

static void test_gradients(void **state)
{
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		assert_int_equal(ranks_as_threads(1, gradients, (void *)(uintptr_t)&ways[i]), 0);
}

enum { STEPS = 200, MAX_RANKS = 8 };

struct curve {
	tutti_train_config config;
	int ranks;
	double losses[STEPS], norms[STEPS];
	uint64_t fingerprints[MAX_RANKS];
};

static void train(tutti_comm *comm, void *arg)
{
	const tutti_optimizer adamw = {.kind = TUTTI_ADAMW,
				       .lr = 0.003f,
				       .beta1 = 0.9f,
				       .beta2 = 0.95f,
				       .eps = 1e-8f,
				       .weight_decay = 0.1f};
	struct curve *curve = arg;
	struct small_gpt small;
	int rank = tutti_rank(comm), size = tutti_size(comm);
	int first = SEQUENCES * rank / size, last = SEQUENCES * (rank + 1) / size;

	start(&small, comm, &curve->config);
	for (int step = 0; step < STEPS; step++) {
		double items = (double)(last - first) * tiny.length, mean;
		tutti_step_info info;
		load(&small, step, first, last);
		must(tutti_micro_batch(small.trainer, TUTTI_PASS_LAST, items, NULL));
		gpt_forward(&small.gpt, small.tokens, last - first);
		gpt_loss(&small.gpt, small.targets, 1);
		double loss = gpt_loss_sum(&small.gpt);
		gpt_backward(&small.gpt);
		must(tutti_step(small.trainer, &adamw, 1, &info));
		must(tutti_means(small.trainer, &loss, &items, &mean, 1));
		CHECK(info.skipped == 0);
		if (rank == 0) {
			curve->losses[step] = mean;
			curve->norms[step] = (double)info.grad_norm;
		}
	}
	must(tutti_check_replicas(small.trainer));
	curve->fingerprints[rank] = gpt_fingerprint(&small.gpt);
	finish(&small);
}

static const struct strategy {
	const char *name;
	tutti_strategy strategy;
	int shard_size;
} strategies[] = {{"ddp", TUTTI_DDP, 0},
		  {"zero1", TUTTI_ZERO1, 0},
		  {"zero2", TUTTI_ZERO2, 0},
		  {"fsdp", TUTTI_FSDP, 0},
		  {"hsdp", TUTTI_HSDP, 2}};

enum { STRATEGIES = sizeof strategies / sizeof *strategies };

static struct curve alone, many; /* of DDP on one rank: all others are compared with it */

static void draw(struct curve *curve, const struct strategy *strategy, int ranks, tutti_dtype dtype)
{
	*curve = (struct curve){.ranks = ranks,
				.config = {.strategy = strategy->strategy,
					   .shard_size = ranks > 1 ? strategy->shard_size : 0,
					   .param_dtype = dtype,
					   .reduce_dtype = dtype,
					   .seed = 3,
					   .max_grad_norm = 1,
					   .check_replicas_every = 50}};
	assert_int_equal(ranks_as_threads(ranks, train, curve), 0);
	for (int r = 1; r < ranks; r++)
		assert_true(curve->fingerprints[r] == curve->fingerprints[0]);
}

/* The difference between many and alone, relative for norms. A NaN is never near. */
static void compare(const char *name)
{
	double loss = 0, norm = 0;

	for (int step = 0; step < STEPS; step++) {
		double by = fabs(many.losses[step] - alone.losses[step]);
		double part = fabs(many.norms[step] - alone.norms[step]) / alone.norms[step];
		if (!(by <= 2e-5 && part <= 1e-5))
			fail_msg("%s, %d ranks, step %d: loss %.9g is not %.9g or norm %.9g not "
				 "%.9g",
				 name, many.ranks, step, many.losses[step], alone.losses[step],
				 many.norms[step], alone.norms[step]);
		loss = fmax(loss, by);
		norm = fmax(norm, part);
	}
	printf("%s, %d ranks: losses differ by %.2g, norms by %.2g of them\n", name, many.ranks,
	       loss, norm);
}

static int draw_alone(void **state)
{
	draw(&alone, &strategies[0], 1, TUTTI_F32);
	printf("loss %g to %g, norm %g to %g\n", alone.losses[0], alone.losses[STEPS - 1],
	       alone.norms[0], alone.norms[STEPS - 1]);
	assert_true(alone.losses[STEPS - 1] < alone.losses[0] - 1);
	return 0;
}

/* Of 6 sequences 4 ranks have uneven shares and 2 of 8 ranks have none. Local SGD has other steps
 * by definition. */
static void test_every_strategy(void **state)
{
	for (int s = 0; s < STRATEGIES; s++)
		for (int n = 1; n <= MAX_RANKS; n *= 2) {
			draw(&many, &strategies[s], n, TUTTI_F32);
			compare(strategies[s].name);
		}
}

/* Numbers of ranks that divide neither bytes nor sequences. */
static void test_odd_ranks(void **state)
{
	for (int n = 3; n <= 7; n += 2) {
		draw(&many, &strategies[0], n, TUTTI_F32);
		compare(strategies[0].name);
	}
}

static void test_bf16_learns(void **state)
{
	for (int s = 0; s < STRATEGIES; s++) {
		draw(&many, &strategies[s], 2, TUTTI_BF16);
		double by = fabs(many.losses[STEPS - 1] - alone.losses[STEPS - 1]);
		printf("bf16, %s: the loss at step %d differs by %.2g\n", strategies[s].name, STEPS,
		       by);
		assert_true(by <= 2e-2);
		/* And it is of 16 bits. */
		assert_true(many.losses[STEPS / 2] != alone.losses[STEPS / 2]);
	}
}

/* What a forward computes from values that 16 bits hold. */
struct scores {
	tutti_dtype dtype; /* of the parameters */
	int least,
		bits; /* of the 16-bit type: its smallest exponent, and the bits behind the point */
	float logits[MAX_TOKENS * 11];
};

/* The i-th value of parameter p. Embeddings, which the scores are products with, get the smallest
 * numbers. */
static float value_of(const struct scores *scores, int p, size_t i)
{
	uint32_t drawn = tutti_random(5, 0, (uint64_t)p, i);
	int exponent = p < 2 ? scores->least + (int)(drawn % 3) : -4 + (int)(drawn % 4);
	int one = 1 << scores->bits, fraction = (int)(drawn >> 8) % one;
	int is_subnormal = p < 2 && drawn >> 30 == 0;
	double magnitude = is_subnormal ? ldexp(fraction, scores->least - scores->bits)
					: ldexp(one + fraction, exponent - scores->bits);

	return (float)(drawn & 128 ? -magnitude : magnitude);
}

static void score(tutti_comm *comm, void *arg)
{
	struct scores *scores = arg;
	const tutti_train_config config = {.param_dtype = scores->dtype};
	struct small_gpt small;

	start(&small, comm, &config);
	CHECK(small.gpt.units[0][TOKEN_W] < 2 && small.gpt.units[0][POSITION_W] < 2);
	for (int p = 0; p < small.gpt.params; p++)
		for (size_t i = 0; i < small.gpt.counts[p]; i++) {
			float value = value_of(scores, p, i);
			must(tutti_param_write(small.trainer, p, i, 1, &value));
		}
	load(&small, 0, 0, SEQUENCES);
	must(tutti_micro_batch(small.trainer, TUTTI_PASS_EVAL, 1, NULL));
	gpt_forward(&small.gpt, small.tokens, SEQUENCES);
	memcpy(scores->logits, gpt_logits(&small.gpt),
	       SEQUENCES * (size_t)tiny.length * 11 * sizeof(float));
	finish(&small);
}

static void test_16_bits(void **state)
{
	struct scores types[] = {{.dtype = TUTTI_F16, .least = -14, .bits = 10},
				 {.dtype = TUTTI_BF16, .least = -20, .bits = 7}};
	static struct scores narrow, wide;

	for (int t = 0; t < 2; t++) {
		narrow = wide = types[t];
		wide.dtype = TUTTI_F32;
		assert_int_equal(ranks_as_threads(1, score, &narrow), 0);
		assert_int_equal(ranks_as_threads(1, score, &wide), 0);
		assert_true(narrow.logits[0] != narrow.logits[1]);
		assert_memory_equal(narrow.logits, wide.logits, sizeof wide.logits);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gradients), cmocka_unit_test(test_every_strategy),
		cmocka_unit_test(test_odd_ranks), cmocka_unit_test(test_bf16_learns),
		cmocka_unit_test(test_16_bits),
	};
	return cmocka_run_group_tests(tests, draw_alone, NULL);
}
