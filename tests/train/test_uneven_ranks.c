/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: gradients that depend on how samples are divided, ranks that wait for one that
 * has run out of data, buffers that differ, and evaluations that count duplicates. The sampler and
 * the trainer together. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { COUNT = 34, BATCH = 8, STEPS = 2 * 5 };

/* A trainer's step over given samples, with all hooks. Leaves the mean gradients. */
static void finish_step(struct toy *toy, const int64_t *samples, int64_t count,
			tutti_step_info *info)
{
	tutti_trainer *t = toy->trainer;

	CHECK(units_forward(t, TOY_UNITS) == TUTTI_OK);
	for (int u = TOY_UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
		for (int64_t i = 0; i < count; i++)
			toy_backward(toy, u, (int)samples[i], (int)samples[i] + 1);
		CHECK(tutti_backward_end(t, u) == TUTTI_OK);
	}
	CHECK(tutti_grads_finish(t, info) == TUTTI_OK);
}

static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP,
					    TUTTI_HSDP};
enum { STRATEGIES = sizeof strategies / sizeof *strategies };

/* HSDP has groups of two if that divides the ranks. statistic is a buffer, or NULL. */
static void start(struct toy *toy, tutti_comm *comm, tutti_strategy strategy, double *statistic)
{
	const tutti_train_config config = {.strategy = strategy,
					   .shard_size = tutti_size(comm) % 2 == 0 ? 2 : 1};

	toy_register(toy, comm, 0);
	if (statistic)
		CHECK(tutti_model_buffer(toy->model, "statistic", TUTTI_F64, 1, statistic) == 0);
	toy_train(toy, comm, &config);
}

/* The position from which a run trains, and rank 0's results. Every rank compares its gradients
 * with those of the expected run, from the same position on. */
struct run {
	const struct run *expected;
	tutti_strategy strategy;
	int64_t position;
	int steps;
	float grads[STEPS][TOY_PARAMS][TOY_MAX];
};

static void keep_grads(struct toy *toy, const struct run *expected, int64_t step, struct run *run)
{
	float(*grads)[TOY_MAX] = run->grads[run->steps++];
	tutti_shard mine;

	for (int p = 0; p < TOY_PARAMS; p++) {
		CHECK(tutti_param_shard(toy->trainer, p, &mine) == TUTTI_OK);
		size_t bytes = mine.count * sizeof(float);
		CHECK(run->strategy != TUTTI_DDP ||
		      memcmp(tutti_param_grad(toy->trainer, p), mine.grad, bytes) == 0);
		CHECK(expected || mine.count == toy_count(p));
		if (mine.count)
			memcpy(grads[p] + mine.first, mine.grad, bytes);
		CHECK(!expected || memcmp(grads[p] + mine.first,
					  expected->grads[step][p] + mine.first, bytes) == 0);
	}
}

/* From the run's position to the end of the second epoch. An epoch's last step has 2 samples for 8
 * places: of three ranks the last has none, of eight six have none. After the end all ranks have
 * none, and stop together. */
static void train_to_the_end(tutti_comm *comm, void *arg)
{
	struct run *shared = arg, *run = calloc(1, sizeof *run);
	const struct run *expected = shared->expected;
	run->strategy = shared->strategy;
	tutti_sampler sampler = {.count = COUNT,
				 .batch = BATCH,
				 .seed = 3,
				 .shuffle = 1,
				 .position = shared->position,
				 .rank = tutti_rank(comm),
				 .size = tutti_size(comm)};
	int64_t indices[BATCH];
	tutti_sampler_share share;
	tutti_step_info info;
	struct toy toy;
	int all_done = 0;
	double statistic;

	start(&toy, comm, run->strategy, &statistic);
	for (;;) {
		int is_over = sampler.position >= 2 * COUNT;
		double kept = 100 * run->steps; /* rank 0's */
		share.items = 0;
		statistic = kept + toy.rank;
		if (!is_over)
			CHECK(tutti_sampler_next(&sampler, indices, BATCH, &share) == TUTTI_OK);
		CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, (double)share.items,
					&all_done) == TUTTI_OK);
		CHECK(all_done == is_over);
		CHECK(statistic == kept + (all_done ? toy.rank : 0));
		if (all_done || is_over || run->steps == STEPS)
			break;
		CHECK(toy.size != 3 || toy.rank != 2 || !share.is_last || share.items == 0);
		finish_step(&toy, indices, share.items, &info);
		CHECK(info.items == (share.is_last ? COUNT % BATCH : BATCH));
		keep_grads(&toy, expected, share.epoch * STEPS / 2 + share.position % COUNT / BATCH,
			   run);
	}
	toy_destroy(&toy);
	if (tutti_rank(comm) == 0)
		*shared = *run;
	free(run);
}

/* The gradients of every step have the bits of one rank, also if another number of ranks continues
 * in the middle of an epoch. */
static void test_training_is_the_same(void **state)
{
	struct run *one = calloc(1, sizeof *one), *other = calloc(1, sizeof *other);

	assert_true(one && other);
	assert_int_equal(ranks_as_threads(1, train_to_the_end, one), 0);
	assert_int_equal(one->steps, STEPS);
	for (int s = 0; s < STRATEGIES; s++)
		for (int n = 2; n <= (s == 0 ? 8 : 4); n++)
			for (int skipped = 0; skipped < STEPS / 2; skipped += s == 0 ? 2 : 4) {
				memset(other, 0, sizeof *other);
				other->expected = one;
				other->strategy = strategies[s];
				other->position = skipped * BATCH;
				assert_int_equal(ranks_as_threads(n, train_to_the_end, other), 0);
				assert_int_equal(other->steps, STEPS - skipped);
			}
	free(one);
	free(other);
}

/* This rank's gradient is the mean over items[r] samples, from number first on, of each of three
 * ranks. */
static void check_mean(struct toy *toy, int param, int first, const int64_t *items, double total)
{
	tutti_shard mine;

	CHECK(tutti_param_shard(toy->trainer, param, &mine) == TUTTI_OK);
	for (size_t i = 0; i < mine.count; i++) {
		double sum = 0;
		for (int r = 0; r < 3; r++)
			sum += toy_sum(param, mine.first + i, r, first + (int)items[r]) -
			       toy_sum(param, mine.first + i, r, first);
		CHECK(fabs(((const float *)mine.grad)[i] - sum / total) <=
		      1e-6 * fabs(sum / total));
	}
}

struct ends {
	tutti_strategy strategy;
	int at[3];
};

/* Ranks with data of their own, 1, 9 and 4 samples, two a step: a rank that has run out continues
 * with 0 items, and all stop at the same step. */
static void own_data(tutti_comm *comm, void *arg)
{
	static const int counts[] = {1, 9, 4};
	tutti_sampler samplers[3];
	tutti_sampler_share share;
	tutti_step_info info;
	struct toy toy;
	int steps = 0, all_done = 0;
	struct ends *ends = arg;

	for (int r = 0; r < 3; r++)
		samplers[r] = (tutti_sampler){.count = counts[r], .batch = 2, .size = 1};
	start(&toy, comm, ends->strategy, NULL);
	for (;; steps++) {
		int64_t indices[3][2], items[3] = {0}, total = 0;
		for (int r = 0; r < 3; r++) {
			if (samplers[r].position < counts[r])
				CHECK(tutti_sampler_next(&samplers[r], indices[r], 2, &share) ==
					      TUTTI_OK &&
				      (items[r] = share.items) > 0);
			total += items[r];
		}
		int64_t mine = items[toy.rank];
		CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, (double)mine, &all_done) ==
		      TUTTI_OK);
		CHECK(all_done == (total == 0));
		if (all_done || steps > 100)
			break;
		for (int64_t i = 0; i < mine; i++)
			indices[toy.rank][i] += toy.rank * 1000;
		finish_step(&toy, indices[toy.rank], mine, &info);
		CHECK(info.items == (double)total);
		for (int p = 0; p < TOY_PARAMS; p++)
			check_mean(&toy, p, 2 * steps, items, (double)total);
	}
	ends->at[toy.rank] = steps;
	toy_destroy(&toy);
}

static void test_own_data_runs_out(void **state)
{
	for (int s = 0; s < STRATEGIES; s++) {
		struct ends ends = {.strategy = strategies[s]};
		assert_int_equal(ranks_as_threads(3, own_data, &ends), 0);
		for (int r = 0; r < 3; r++)
			assert_int_equal(ends.at[r], 5);
	}
}

static double score(int64_t sample)
{
	return (double)(sample * sample % 101);
}

/* Every rank scores as many samples at every step. The mean counts each sample once; the naive mean
 * does not. */
static void evaluate(tutti_comm *comm, void *arg)
{
	tutti_sampler sampler = {.count = COUNT,
				 .batch = BATCH,
				 .pad = 1,
				 .rank = tutti_rank(comm),
				 .size = tutti_size(comm)};
	double sums[2] = {0}, items[2] = {0}, means[2];
	int64_t indices[BATCH];
	tutti_sampler_share share;
	struct toy toy;

	start(&toy, comm, TUTTI_DDP, NULL);
	do {
		CHECK(tutti_sampler_next(&sampler, indices, BATCH, &share) == TUTTI_OK);
		CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_EVAL, (double)share.items, NULL) ==
		      TUTTI_OK);
		for (int64_t i = 0; i < share.count; i++)
			for (int naive = i < share.items ? 0 : 1; naive < 2; naive++) {
				sums[naive] += score(indices[i]);
				items[naive]++;
			}
	} while (!share.is_last);
	CHECK(tutti_means(toy.trainer, sums, items, means, 2) == TUTTI_OK);
	memcpy(arg, means, tutti_rank(comm) == 0 ? sizeof means : 0);
	toy_destroy(&toy);
}

static void test_padded_evaluation(void **state)
{
	double plain = 0, means[2];

	for (int64_t sample = 0; sample < COUNT; sample++)
		plain += score(sample);
	plain /= COUNT;
	for (int n = 1; n <= 8; n++) {
		assert_int_equal(ranks_as_threads(n, evaluate, means), 0);
		assert_true(means[0] == plain);
		assert_true(means[1] != plain);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_training_is_the_same),
		cmocka_unit_test(test_own_data_runs_out),
		cmocka_unit_test(test_padded_evaluation),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
