/* slow: 6 s */
/* What would break: training that goes on after a rank has died at a bad moment: a step that is
 * lost, or done on some ranks only, a shadow that is not what its owner had, or parts that come
 * from the wrong rank.
 *
 * The ranks are threads. One of them dies at its n-th call that communicates, for each n in a step:
 * it aborts its communicators, and makes no further call. Or another rank's calls end there, so
 * that it is behind the others when that one dies. The others go on with a new rank in its place,
 * or without one. Gradients are small integers, so the result has the bits of one rank that trains
 * without interruption. */
#include "tests/train/ranks.h"
#include "tests/train/last_call.h"
#include "tests/train/toy.h"
#include "tests/whole.h"
#include "train/state/trainer_state.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { MOST_RANKS = 5, SAMPLES = 8, SKIPPED = 1, STEPS = 5 };

/* ---- death -------------------------------------------------------------------------------- */

static _Thread_local const struct toy *own_toy;
static _Thread_local tutti_comm *own_comm;

static void abort_own(void)
{
	tutti_comm_abort(own_comm);
	trainer_abort(own_toy->trainer);
}

/* ---- one rank ----------------------------------------------------------------------------- */

struct scene {
	tutti_train_config config, after; /* after: of the new trainers */
	int ranks, victim, dies_in, dies_at;
	/* -1, or a rank that lives, whose calls end with its call number dies_at of that step. So
	 * the others may finish a step that it cannot, and the victim dies after that. */
	int behind;
	bool is_replaced;
	pthread_barrier_t barrier;
	tutti_comm *next[MOST_RANKS]; /* after the death */
	int64_t finished[MOST_RANKS]; /* by then, or -1 */
	int calls[MOST_RANKS];        /* in that step, without a death */
	float values[TOY_PARAMS][TOY_MAX];
};

/* Steps from first on, to the end or an error. */
static tutti_status train(struct toy *toy, const struct scene *scene, int first)
{
	toy->infinite_batch = SKIPPED;
	for (int number = first; number < STEPS; number++) {
		own.is_counting = scene && number == scene->dies_in;
		TRY(toy_step(toy, number, SAMPLES));
	}
	return TUTTI_OK;
}

static void calm(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;

	toy_make(&toy, comm, &scene->config);
	CHECK(train(&toy, NULL, 0) == TUTTI_OK);
	toy_read(toy.trainer, scene->values);
	toy_destroy(&toy);
}

static tutti_comm *next_of(const struct scene *scene, int rank)
{
	if (scene->is_replaced)
		return scene->next[rank];
	return scene->next[rank < scene->victim ? rank : rank - 1];
}

static int64_t most(const struct scene *scene)
{
	int64_t steps = -1;

	for (int r = 0; r < scene->ranks; r++)
		steps = scene->finished[r] > steps ? scene->finished[r] : steps;
	return steps;
}

/* A rank that has caught up has the numbers of its last update: if the one that it has them from
 * dies before all have caught up, the others need them once more. */
static void check_numbers(const tutti_trainer *before, int64_t steps)
{
	int groups = steps > 0 && steps - 1 != SKIPPED;

	if (before && (int64_t)before->steps == steps)
		CHECK(before->last.group_count == groups);
}

static void go_on(struct scene *scene, struct toy *before, int rank)
{
	tutti_comm *comm = next_of(scene, rank);
	struct toy toy;
	int64_t steps = -7;

	toy_make(&toy, comm, &scene->after);
	tutti_status status = tutti_trainer_continue(toy.trainer, before->trainer, &steps);
	if (status == TUTTI_ERR_UNSUPPORTED && scene->dies_in == 0) {
		CHECK_MESSAGE("start again"); /* the first shadow was not there yet */
		steps = 0;
	} else {
		CHECK(status == TUTTI_OK);
	}
	CHECK(steps == most(scene));
	check_numbers(before->trainer, steps);
	toy_destroy(before); /* nothing of it is used any more */
	CHECK(train(&toy, NULL, (int)steps) == TUTTI_OK);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_keep(&toy, scene->values);
	toy_destroy(&toy);
}

static void rank_main(tutti_comm *all, void *arg)
{
	struct scene *scene = arg;
	int rank = tutti_rank(all);
	tutti_comm *comm = NULL;
	struct toy toy;

	CHECK(tutti_comm_dup(all, &comm) == TUTTI_OK);
	memset(&own, 0, sizeof own);
	own_comm = comm;
	own_toy = &toy;
	own.ends_after = rank == scene->behind;
	if (rank == (scene->behind < 0 ? scene->victim : scene->behind))
		own.ends_at = scene->dies_at;
	toy_make(&toy, comm, &scene->config);
	CHECK((train(&toy, scene, 0) == TUTTI_OK) == (scene->dies_at == 0));
	own.is_counting = false;
	scene->finished[rank] = rank == scene->victim ? -1 : (int64_t)toy.trainer->steps;
	if (scene->dies_at == 0)
		scene->calls[rank] = own.calls;
	own.is_over = false;
	if (rank == scene->victim && scene->dies_at > 0) {
		toy_destroy(&toy);
		toy = (struct toy){0};
	}
	pthread_barrier_wait(&scene->barrier);
	tutti_comm_destroy(comm); /* as tutti_recover does */
	if (scene->dies_at > 0 && (rank != scene->victim || scene->is_replaced))
		go_on(scene, &toy, rank);
	else
		toy_destroy(&toy);
}

/* ---- all scenes --------------------------------------------------------------------------- */

static float expected[TOY_PARAMS][TOY_MAX];

static void run(struct scene *scene)
{
	int left = scene->is_replaced ? scene->ranks : scene->ranks - 1;

	pthread_barrier_init(&scene->barrier, NULL, (unsigned)scene->ranks);
	assert_int_equal(tutti_init_all(scene->next, left, NULL), TUTTI_OK);
	int failed = ranks_as_threads(scene->ranks, rank_main, scene);
	for (int r = 0; r < left; r++)
		tutti_comm_destroy(scene->next[r]);
	pthread_barrier_destroy(&scene->barrier);
	if (failed || (scene->dies_at > 0 && memcmp(scene->values, expected, sizeof expected) != 0))
		fail_msg("strategy %d, %d ranks: rank %d died at call %d of step %d, rank %d was "
			 "behind, and it was %s: %s",
			 (int)scene->config.strategy, scene->ranks, scene->victim, scene->dies_at,
			 scene->dies_in, scene->behind,
			 scene->is_replaced ? "replaced" : "not replaced",
			 failed ? "see above" : "other values");
}

static tutti_train_config config_of(tutti_strategy strategy)
{
	return (tutti_train_config){.strategy = strategy,
				    .seed = 7,
				    .loss_scale = -1,
				    .deterministic = 1,
				    .max_grad_norm = 2,
				    .bucket_bytes = 128,
				    .shadow = 1};
}

/* With a new rank in its place, or without. */
static void replaced_or_not(struct scene *scene, bool is_replaced)
{
	scene->is_replaced = is_replaced;
	scene->after = scene->config;
	if (scene->config.strategy == TUTTI_HSDP && !is_replaced)
		scene->after.strategy = TUTTI_FSDP; /* its groups do not fit any more */
	run(scene);
}

/* Each rank dies at one in stride of its calls in a step, or with sanitizers more rarely; and it
 * dies when another one's calls have come to an end, at the last ones of a step. */
static void each_call(tutti_train_config config, int ranks, int dies_in, int stride)
{
	const int last_ones = long_or(4, 2, 2, 1);

	stride *= long_or(1, 5, 7, 9);
	for (int victim = 0; victim < ranks; victim++) {
		struct scene scene = {.config = config,
				      .after = config,
				      .ranks = ranks,
				      .victim = victim,
				      .behind = -1,
				      .dies_in = dies_in,
				      .is_replaced = true};
		run(&scene);
		int calls = scene.calls[victim];
		assert_true(calls > 5);
		for (int n = 1 + victim * stride / ranks, i = victim; n <= calls;
		     n += stride, i++) {
			scene.dies_at = n;
			replaced_or_not(&scene, i % 2);
		}
		scene.behind = (victim + 1) % ranks;
		calls = scene.calls[scene.behind];
		for (int n = calls; n > calls - last_ones; n--) {
			scene.dies_at = n;
			replaced_or_not(&scene, n % 2);
		}
	}
}

static void expect(tutti_train_config config)
{
	struct scene scene = {.config = config};

	scene.config.strategy = TUTTI_DDP;
	scene.config.shard_size = 0;
	assert_int_equal(ranks_as_threads(1, calm, &scene), 0);
	memcpy(expected, scene.values, sizeof expected);
}

static void sweep(tutti_strategy strategy)
{
	tutti_train_config config = config_of(strategy);

	expect(config);
	each_call(config, 3, 2, 7);
	if (whole_or(0, 0, 1))
		return; /* more ranks would do the same in more threads */
	each_call(config, 2, 2, 3);
	each_call(config, 3, SKIPPED, 17);
	each_call(config, 4, 2, 17);
	each_call(config, 5, 0, 23);
}

static void test_each_strategy(void **state)
{
	for (tutti_strategy s = TUTTI_DDP; s <= TUTTI_FSDP; s++)
		sweep(s);
}

/* The other shard group has each part, without a shadow. */
static void test_hsdp(void **state)
{
	tutti_train_config config = config_of(TUTTI_HSDP);

	config.shard_size = 2;
	config.shadow = 0;
	expect(config);
	each_call(config, 4, 2, 7);
}

/* A single group, as on one machine without shard_size, has no other copy than shadows. */
static void test_hsdp_of_one_group(void **state)
{
	tutti_train_config config = config_of(TUTTI_HSDP);

	config.shard_size = 3;
	expect(config);
	each_call(config, 3, 2, 7);
}

/* A shadow rounds as its owner does. */
static void test_of_16_bits(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP};

	for (int s = 0; s < 3; s++) {
		tutti_train_config config = config_of(strategies[s]);
		config.param_dtype = TUTTI_BF16;
		config.stochastic_rounding = 1;
		expect(config);
		each_call(config, 3, 2, 5);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_strategy),
		cmocka_unit_test(test_hsdp),
		cmocka_unit_test(test_hsdp_of_one_group),
		cmocka_unit_test(test_of_16_bits),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
