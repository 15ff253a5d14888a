/* What would break: a hook that comes too early or never, buckets that start in different orders on
 * different ranks, hooks that wait, and needless communication; a hook that one rank skips and
 * others wait for, or that is not named (test_trainer_rules has local SGD). If units are gathered
 * by all ranks (HSDP), a unit that some ranks skip is a MISMATCH; a hook that all ranks skip is
 * named. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/base/base.h"

#include <errno.h>
#include <semaphore.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};
/* Every unit is a bucket of its own. */
static const tutti_train_config small_buckets = {.bucket_bytes = 1};

static void forward(struct toy *toy)
{
	CHECK(units_forward(toy->trainer, TOY_UNITS) == TUTTI_OK);
}

static void backward(struct toy *toy, int unit, int first, int last)
{
	CHECK(tutti_backward_begin(toy->trainer, unit) == TUTTI_OK);
	toy_backward(toy, unit, first, last);
	CHECK(tutti_backward_end(toy->trainer, unit) == TUTTI_OK);
}

static void check_means(struct toy *toy, int batch, int samples)
{
	for (int p = 0; p < TOY_PARAMS; p++) {
		const float *grad = tutti_param_grad(toy->trainer, p);
		for (size_t i = 0; i < toy_count(p); i++) {
			float mean = (float)(toy_sum(p, i, batch, samples) / samples);
			CHECK(grad[i] - mean < 1e-5f && mean - grad[i] < 1e-5f);
		}
	}
}

/* Units finish in a different order on each rank; the ranks' buckets still match. */
static void any_order(tutti_comm *comm, void *arg)
{
	struct toy toy;
	int size = tutti_size(comm), rank = tutti_rank(comm);
	tutti_train_stats before, after;

	toy_make(&toy, comm, &small_buckets);
	CHECK(tutti_trainer_stats(toy.trainer, &before) == TUTTI_OK);
	for (int step = 0; step < 20; step++) {
		int order[TOY_UNITS] = {0, 1, 2, 3};
		for (int i = TOY_UNITS - 1; i > 0; i--) {
			uint32_t draw = tutti_random(*(uint64_t *)arg, (uint64_t)step,
						     (uint64_t)rank, (uint64_t)i);
			int j = (int)(draw % (uint32_t)(i + 1)), swap = order[i];
			order[i] = order[j];
			order[j] = swap;
		}
		CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 2, NULL) == TUTTI_OK);
		forward(&toy);
		for (int i = 0; i < TOY_UNITS; i++)
			backward(&toy, order[i], step * 1000 + 2 * rank,
				 step * 1000 + 2 * rank + 2);
		CHECK(tutti_grads_finish(toy.trainer, NULL) == TUTTI_OK);
		check_means(&toy, step, 2 * size);
	}
	CHECK(tutti_trainer_stats(toy.trainer, &after) == TUTTI_OK);
	CHECK(after.collectives - before.collectives == 20 * (TOY_UNITS + 1));
	toy_destroy(&toy);
}

static void test_any_order(void **state)
{
	uint64_t seed = (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)seed);
	for (int n = 1; n <= 4; n++)
		assert_int_equal(ranks_as_threads(n, any_order, &seed), 0);
	assert_int_equal(ranks_as_processes(3, any_order, &seed), 0);
}

static void wait_for(sem_t *sem)
{
	struct timespec deadline;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 20;
	while (sem_timedwait(sem, &deadline) != 0)
		if (errno != EINTR) {
			check_failed(__FILE__, __LINE__, "rank 0's hooks returned");
			return;
		}
}

/* Rank 0 runs all its hooks before the others have started any: a hook that waits would never
 * return, and rank 1 would never begin. */
static void hooks_return(tutti_comm *comm, void *arg)
{
	sem_t *hooks_done = arg;
	struct toy toy;
	int rank = tutti_rank(comm);

	toy_make(&toy, comm, &small_buckets);
	if (rank > 0)
		wait_for(hooks_done);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	forward(&toy);
	uint64_t sequence = collectives(toy.trainer);
	for (int u = TOY_UNITS - 1; u >= 0; u--) {
		backward(&toy, u, rank, rank + 1);
		if (u > 0) /* the last bucket has the tied parameter of unit 0 */
			CHECK(collectives(toy.trainer) == sequence + (uint64_t)(TOY_UNITS - u));
	}
	CHECK(collectives(toy.trainer) == sequence + TOY_UNITS);
	for (int other = 1; other < tutti_size(comm) && rank == 0; other++)
		sem_post(hooks_done);
	CHECK(tutti_grads_finish(toy.trainer, NULL) == TUTTI_OK);
	check_means(&toy, 0, tutti_size(comm));
	toy_destroy(&toy);
}

static void test_hooks_return(void **state)
{
	sem_t hooks_done;
	sem_init(&hooks_done, 0, 0);
	for (int n = 2; n <= 4; n++)
		assert_int_equal(ranks_as_threads(n, hooks_return, &hooks_done), 0);
	sem_destroy(&hooks_done);
}

/* Two uses of a unit, and recomputation: gradients are final with the last use, not before. */
static void uses_count(tutti_comm *comm, void *arg)
{
	struct toy toy;
	tutti_trainer *t;

	toy_make(&toy, comm, &small_buckets);
	t = toy.trainer;
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	forward(&toy);
	CHECK(unit_forward(t, 3) == TUTTI_OK);
	uint64_t sequence = collectives(toy.trainer);
	backward(&toy, 3, 0, 1);
	CHECK(collectives(toy.trainer) == sequence);
	CHECK(tutti_forward_begin(t, 3) == TUTTI_OK); /* recomputation */
	CHECK(tutti_forward_end(t, 3) == TUTTI_OK);
	backward(&toy, 3, 0, 0);
	CHECK(collectives(toy.trainer) == sequence + 1);
	CHECK_ERROR(tutti_backward_begin(t, 3), TUTTI_ERR_INVALID, "'unit.3' ran forward 2 times");
	for (int u = 2; u >= 0; u--)
		backward(&toy, u, 0, 1);
	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	check_means(&toy, 0, 1);
	toy_destroy(&toy);
}

/* The tied parameter waits for both units, in either order, but only for those that ran. */
static void tied(tutti_comm *comm, void *arg)
{
	struct toy toy;

	toy_make(&toy, comm, NULL);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	forward(&toy);
	uint64_t sequence = collectives(toy.trainer);
	for (int u = 0; u < TOY_UNITS; u++) {
		CHECK(collectives(toy.trainer) == sequence); /* one bucket, not complete */
		backward(&toy, u, 0, 1);
	}
	CHECK(collectives(toy.trainer) == sequence + 1);
	CHECK_ERROR(tutti_grad_ready(toy.trainer, 0), TUTTI_ERR_INVALID,
		    "'param.0' is already final");
	CHECK(tutti_grads_finish(toy.trainer, NULL) == TUTTI_OK);
	check_means(&toy, 0, 1);

	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(unit_forward(toy.trainer, 3) == TUTTI_OK);
	backward(&toy, 3, 0, 1);
	for (int p = 1; p < 5; p++)
		CHECK(tutti_grad_ready(toy.trainer, p) == TUTTI_OK);
	CHECK(tutti_grads_finish(toy.trainer, NULL) == TUTTI_OK);
	toy_destroy(&toy);
}

/* ---- a unit that some rank skips ---- */

struct run {
	tutti_train_config config;
	int skipping;         /* the rank that skips unit 1's backward; -1: all */
	atomic_int say_units; /* ranks that name the units that differ */
};

static tutti_status pass(struct toy *toy, bool forgets)
{
	tutti_trainer *t = toy->trainer;

	TRY(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL));
	TRY(units_forward(t, TOY_UNITS));
	for (int u = TOY_UNITS - 1; u >= 0; u--) {
		if (u == 1 && forgets)
			continue;
		TRY(tutti_backward_begin(t, u));
		toy_backward(toy, u, toy->rank, toy->rank + 1);
		TRY(tutti_backward_end(t, u));
	}
	return TUTTI_OK;
}

/* Every rank names the parameter and the rank, no rank updates, and the next step is good. */
static void named(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	float before[TOY_PARAMS][TOY_MAX] = {{0}}, after[TOY_PARAMS][TOY_MAX] = {{0}};
	struct toy toy;
	char message[96];

	toy_make(&toy, comm, &run->config);
	toy_read(toy.trainer, before);
	snprintf(message, sizeof message,
		 "Rank %d did not finish the gradient of parameter 'param.2' of unit 'unit.1'",
		 run->skipping < 0 ? 0 : run->skipping);
	CHECK(pass(&toy, run->skipping < 0 || toy.rank == run->skipping) == TUTTI_OK);
	CHECK_ERROR(tutti_step(toy.trainer, &sgd, 1, NULL), TUTTI_ERR_INVALID, message);
	toy_read(toy.trainer, after);
	CHECK(memcmp(before, after, sizeof before) == 0);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 4, 8);
	CHECK(tutti_step(toy.trainer, &sgd, 1, NULL) == TUTTI_OK);
	toy_read(toy.trainer, after);
	for (int p = 0; p < TOY_PARAMS; p++)
		for (size_t i = 0; i < toy_count(p); i++)
			CHECK(after[p][i] ==
			      before[p][i] - 0.5f * (float)(toy_sum(p, i, 4, 8) / 8));
	toy_destroy(&toy);
}

static void test_named(void **state)
{
	for (tutti_strategy s = TUTTI_DDP; s <= TUTTI_HSDP; s++)
		for (int n = s == TUTTI_DDP ? 1 : 2; n <= 4; n++) {
			struct run run = {.config = {.strategy = s,
						     .bucket_bytes = 1,
						     .shard_size = n % 2 == 0 ? 2 : 1}};
			/* A rank with another order of units is a MISMATCH. */
			run.skipping = s < TUTTI_FSDP ? n - 1 : -1;
			assert_int_equal(ranks_as_threads(n, named, &run), 0);
		}
}

/* Rank 3 of two shard groups: ranks of its group, or of both, name the units that differ, and no
 * rank is left waiting. */
static void mismatched(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct toy toy;

	toy_make(&toy, comm, &run->config);
	tutti_status status = pass(&toy, toy.rank == run->skipping);
	if (status == TUTTI_OK)
		status = tutti_step(toy.trainer, &sgd, 1, NULL);
	CHECK(status != TUTTI_OK && status != TUTTI_ERR_TIMEOUT);
	if (status == TUTTI_ERR_MISMATCH) {
		CHECK(toy.rank >= 2);
		CHECK_MESSAGE("ank 2 is at the backward of unit 'unit.1'");
		CHECK_MESSAGE("ank 3 is at the backward of unit 'unit.0'");
		atomic_fetch_add(&run->say_units, 1);
	}
	toy_destroy(&toy);
}

static void test_mismatched(void **state)
{
	struct run run = {.config = {.strategy = TUTTI_HSDP, .shard_size = 2}, .skipping = 3};

	assert_int_equal(ranks_with_timeout(4, 10000, mismatched, &run), 0);
	assert_true(atomic_load(&run.say_units) > 0);
}

/* A parameter that may be unused may be used on some ranks only. */
static void may_be_unused(tutti_comm *comm, void *arg)
{
	const int64_t four = 4;
	struct toy toy;
	int rank = tutti_rank(comm), size = tutti_size(comm);

	toy_register(&toy, comm, 0);
	int unit = tutti_model_unit(toy.model, "expert");
	int expert =
		tutti_model_param(toy.model, unit, "expert.w", 1, &four, TUTTI_PARAM_MAY_BE_UNUSED);
	CHECK(expert == TOY_PARAMS);
	toy_train(&toy, comm, &small_buckets);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	forward(&toy);
	if (rank == size - 1) {
		CHECK(unit_forward(toy.trainer, unit) == TUTTI_OK);
		CHECK(tutti_backward_begin(toy.trainer, unit) == TUTTI_OK);
		((float *)tutti_param_grad(toy.trainer, expert))[2] += 12;
		CHECK(tutti_backward_end(toy.trainer, unit) == TUTTI_OK);
	}
	for (int u = TOY_UNITS - 1; u >= 0; u--)
		backward(&toy, u, rank, rank + 1);
	CHECK(tutti_grads_finish(toy.trainer, NULL) == TUTTI_OK);
	check_means(&toy, 0, size);
	CHECK(((float *)tutti_param_grad(toy.trainer, expert))[2] == (float)12 * (1 / (float)size));
	CHECK(((float *)tutti_param_grad(toy.trainer, expert))[1] == 0);
	toy_destroy(&toy);
}

/* ACCUMULATE and EVAL send nothing. */
static void silent(tutti_comm *comm, void *arg)
{
	struct toy toy;
	tutti_stats comm_before, comm_after;
	tutti_train_stats before, after;
	int size = tutti_size(comm);

	toy_make(&toy, comm, &small_buckets);
	CHECK(tutti_comm_stats(comm, &comm_before) == TUTTI_OK);
	CHECK(tutti_trainer_stats(toy.trainer, &before) == TUTTI_OK);
	uint64_t sequence = collectives(toy.trainer);
	toy_micro_batch(&toy, TUTTI_PASS_EVAL, 0, 8);
	for (int m = 0; m < 3; m++)
		toy_micro_batch(&toy, TUTTI_PASS_ACCUMULATE, m, 8);
	CHECK_ERROR(tutti_backward_begin(toy.trainer, 0), TUTTI_ERR_INVALID,
		    "and backward as often");
	CHECK(tutti_comm_stats(comm, &comm_after) == TUTTI_OK);
	CHECK(tutti_trainer_stats(toy.trainer, &after) == TUTTI_OK);
	CHECK(memcmp(&before, &after, sizeof before) == 0);
	CHECK(memcmp(&comm_before, &comm_after, sizeof comm_before) == 0);
	CHECK(collectives(toy.trainer) == sequence);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 3, 8);
	CHECK(tutti_step(toy.trainer, &sgd, 1, NULL) == TUTTI_OK);
	CHECK(tutti_trainer_stats(toy.trainer, &after) == TUTTI_OK);
	uint64_t sent = after.sent_grad_bytes, all = (uint64_t)after.grad_bytes;
	CHECK(sent <= 2 * (uint64_t)(size - 1) * all / (uint64_t)size &&
	      sent + TOY_UNITS >= 2 * (uint64_t)(size - 1) * all / (uint64_t)size);
	CHECK(after.exposed_seconds >= before.exposed_seconds);
	toy_micro_batch(&toy, TUTTI_PASS_EVAL, 0, 8);
	CHECK_ERROR(tutti_backward_begin(toy.trainer, 0), TUTTI_ERR_INVALID,
		    "has no backward in a micro-batch of TUTTI_PASS_EVAL");
	CHECK_ERROR(tutti_grad_ready(toy.trainer, 0), TUTTI_ERR_INVALID, "no micro-batch");
	toy_destroy(&toy);
}

/* Hooks in a wrong order have a message. */
static void order_rules(tutti_comm *comm, void *arg)
{
	struct toy toy;
	tutti_trainer *t;
	int all_done;

	toy_make(&toy, comm, NULL);
	t = toy.trainer;
	CHECK_ERROR(tutti_forward_begin(t, 0), TUTTI_ERR_INVALID, "no micro-batch has begun");
	CHECK_ERROR(tutti_grads_finish(t, NULL), TUTTI_ERR_INVALID, "has not begun");
	CHECK_ERROR(tutti_micro_batch(t, (tutti_pass)8, 1, NULL), TUTTI_ERR_INVALID, "no pass 8");
	CHECK_ERROR(tutti_micro_batch(NULL, TUTTI_PASS_LAST, 1, NULL), TUTTI_ERR_INVALID, "NULL");
	CHECK(tutti_micro_batch(t, TUTTI_PASS_ACCUMULATE, 1, NULL) == TUTTI_OK);
	CHECK(tutti_grad_scale(t) == 1);
	CHECK_ERROR(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, &all_done), TUTTI_ERR_INVALID,
		    "all_done");
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_forward_begin(t, 4), TUTTI_ERR_INVALID, "no unit 4 among 4");
	CHECK_ERROR(tutti_forward_end(t, 0), TUTTI_ERR_INVALID, "'unit.0' is not in forward");
	CHECK_ERROR(tutti_backward_begin(t, 1), TUTTI_ERR_INVALID,
		    "unit 'unit.1' has not run forward in this micro-batch: call "
		    "tutti_forward_begin and "
		    "tutti_forward_end for it first.");
	CHECK(tutti_forward_begin(t, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_forward_begin(t, 1), TUTTI_ERR_INVALID, "'unit.0' is still in forward");
	CHECK_ERROR(tutti_forward_end(t, 1), TUTTI_ERR_INVALID, "'unit.1' is not in forward");
	CHECK_ERROR(tutti_backward_end(t, 0), TUTTI_ERR_INVALID, "'unit.0' is not in backward");
	CHECK_ERROR(tutti_step(t, &sgd, 1, NULL), TUTTI_ERR_INVALID, "'unit.0' is still in");
	CHECK(tutti_forward_end(t, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_micro_batch(t, TUTTI_PASS_EVAL, 1, NULL), TUTTI_ERR_INVALID,
		    "last micro-batch has begun");
	toy_destroy(&toy);
}

/* Uneven data: rank 0 has a batch more than the others; all stop together. Buffers are rank 0's. */
static void all_done(tutti_comm *comm, void *arg)
{
	struct toy toy;
	int rank = tutti_rank(comm), done = 0, steps = 0, mine = rank == 0 ? 3 : 2;
	double statistic[3] = {0};

	toy_register(&toy, comm, 0);
	CHECK(tutti_model_buffer(toy.model, "statistic", TUTTI_F64, 3, statistic) == 0);
	toy_train(&toy, comm, NULL);
	for (;; steps++, mine--) {
		statistic[2] = 100 * steps + rank;
		CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, mine > 0, &done) == TUTTI_OK);
		if (done)
			break;
		CHECK(statistic[2] == 100 * steps);
		for (int p = 0; p < TOY_PARAMS; p++)
			CHECK(tutti_grad_ready(toy.trainer, p) == TUTTI_OK);
		CHECK(tutti_step(toy.trainer, &sgd, 1, NULL) == TUTTI_OK);
	}
	CHECK(steps == 3 && statistic[2] == 300 + rank);
	CHECK_ERROR(tutti_step(toy.trainer, &sgd, 1, NULL), TUTTI_ERR_INVALID, "has not begun");
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_EVAL, 0, &done) == TUTTI_OK && done);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_EVAL, rank == 0, &done) == TUTTI_OK &&
	      !done);
	toy_destroy(&toy);
}

/* A trainer that is destroyed in the middle of a step leaves no reduction behind that writes into
 * its memory. */
static void early_end(tutti_comm *comm, void *arg)
{
	struct toy toy;

	toy_make(&toy, comm, &small_buckets);
	toy_micro_batch(&toy, TUTTI_PASS_LAST, 0, 8);
	pthread_barrier_wait(arg); /* the first to leave ends the others' step */
	toy_destroy(&toy);
}

static void test_early_end(void **state)
{
	pthread_barrier_t all_have_started;

	pthread_barrier_init(&all_have_started, NULL, 2);
	assert_int_equal(ranks_as_threads(2, early_end, &all_have_started), 0);
	pthread_barrier_destroy(&all_have_started);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_order), cmocka_unit_test(test_hooks_return),
		RANKS_TEST(uses_count, 1, 2),     RANKS_TEST(tied, 1, 3),
		cmocka_unit_test(test_named),     cmocka_unit_test(test_mismatched),
		RANKS_TEST(may_be_unused, 1, 4),  RANKS_TEST(silent, 1, 4),
		RANKS_TEST(order_rules, 1, 2),    RANKS_TEST(all_done, 1, 4),
		cmocka_unit_test(test_early_end),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
