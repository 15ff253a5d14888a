/* What would break: a program that reads a parameter where it is not, and is not told why; ranks
 * that write different values and train apart; a failure that does not say which unit or parameter
 * was on its way. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"
#include "train/state/trainer_state.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { RANKS = 3, PARAM = 3, COUNT = 20 };

static pthread_barrier_t aborted;

static void not_there(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = TUTTI_FSDP};
	const int64_t shape[] = {8};
	struct toy toy;

	toy_register(&toy, comm, 0);
	int frozen = tutti_model_param(toy.model, 0, "frozen", 1, shape, TUTTI_PARAM_FROZEN);
	toy_train(&toy, comm, &config);
	CHECK(!tutti_param_data(toy.trainer, PARAM));
	CHECK_MESSAGE("tutti_param_data: parameter 'param.3' is not gathered");
	CHECK(!tutti_param_grad(toy.trainer, PARAM));
	CHECK_MESSAGE("tutti_param_grad: parameter 'param.3' has no gradient now");
	CHECK(!tutti_param_grad(toy.trainer, frozen));
	CHECK_MESSAGE("parameter 'frozen' is frozen and has no gradient");
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(tutti_forward_begin(toy.trainer, 0) == TUTTI_OK);
	CHECK(tutti_param_data(toy.trainer, 0) != NULL);
	CHECK(!tutti_param_data(toy.trainer, PARAM)); /* of unit 1 */
	CHECK_MESSAGE("parameter 'param.3' is not gathered");
	toy_destroy(&toy);
}

/* One rank, in turn, passes another value, another range, or another parameter. */
static void differ(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = *(const tutti_strategy *)arg};
	float values[COUNT] = {0}, first[TOY_MAX], then[TOY_MAX];
	struct toy toy;

	toy_make(&toy, comm, &config);
	CHECK(tutti_param_read(toy.trainer, PARAM, 0, TOY_MAX, first) == TUTTI_OK);
	for (int other = 1; other < RANKS; other++) {
		int is_other = toy.rank == other;
		char says[64];
		snprintf(says, sizeof says, "rank %d passes other values", other);
		values[COUNT - 1] = is_other ? 1 : 0;
		CHECK_ERROR(tutti_param_write(toy.trainer, PARAM, 0, COUNT, values),
			    TUTTI_ERR_MISMATCH, says);
		values[COUNT - 1] = 0;
		CHECK_ERROR(tutti_param_write(toy.trainer, PARAM, is_other ? 1 : 0, COUNT, values),
			    TUTTI_ERR_MISMATCH, says);
		CHECK_ERROR(tutti_param_write(toy.trainer, is_other ? 0 : PARAM, 0, COUNT, values),
			    TUTTI_ERR_MISMATCH, says);
		CHECK_ERROR(tutti_param_write(toy.trainer, is_other ? 99 : PARAM, 0, COUNT, values),
			    TUTTI_ERR_INVALID, is_other ? "99" : "On rank");
	}
	CHECK(tutti_param_read(toy.trainer, PARAM, 0, TOY_MAX, then) == TUTTI_OK);
	CHECK(memcmp(first, then, sizeof then) == 0);
	CHECK(tutti_param_write(toy.trainer, PARAM, 0, COUNT, values) == TUTTI_OK);
	CHECK(tutti_param_read(toy.trainer, PARAM, 0, COUNT, then) == TUTTI_OK);
	CHECK(memcmp(values, then, sizeof values) == 0);
	toy_destroy(&toy);
}

static tutti_status run_step(struct toy *toy)
{
	TRY(units_micro_batch(toy->trainer, TUTTI_PASS_LAST, 1, TOY_UNITS));
	return tutti_step(toy->trainer, &toy_adamw, 1, NULL);
}

/* Rank 0 gives up before its first unit. Which bucket or unit the others are at when they learn of
 * it is a question of time. */
static void named(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = *(const tutti_strategy *)arg,
					   .bucket_bytes = 128};
	struct toy toy;

	toy_make(&toy, comm, &config);
	if (toy.rank == 0)
		trainer_abort(toy.trainer);
	pthread_barrier_wait(&aborted);
	if (toy.rank > 0)
		CHECK_ERROR(run_step(&toy), TUTTI_ERR_ABORTED,
			    config.strategy == TUTTI_FSDP
				    ? "Gathering unit 'unit."
				    : "Reducing gradients of parameters 'param.");
	toy_destroy(&toy);
}

static void test_differ(void **state)
{
	for (tutti_strategy s = TUTTI_DDP; s <= TUTTI_FSDP; s++)
		assert_int_equal(ranks_as_threads(RANKS, differ, &s), 0);
}

static void test_named(void **state)
{
	tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO2, TUTTI_FSDP};

	for (int s = 0; s < 3; s++) {
		pthread_barrier_init(&aborted, NULL, RANKS);
		assert_int_equal(ranks_as_threads(RANKS, named, &strategies[s]), 0);
		pthread_barrier_destroy(&aborted);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RANKS_TEST(not_there, 2, 2),
		cmocka_unit_test(test_differ),
		cmocka_unit_test(test_named),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
