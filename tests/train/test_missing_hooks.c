/* What would break: a hook that one rank skips and others wait for, or that is not named, where
 * gradients are sharded (test_hooks has DDP, test_trainer_rules local SGD). If units are gathered
 * by all ranks (HSDP), a unit that some ranks skip is a MISMATCH; a hook that all ranks skip is
 * named. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/base/base.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};

struct run {
	tutti_train_config config;
	int skipping;         /* the rank that skips unit 1's backward; -1: all */
	atomic_int say_units; /* ranks that name the units that differ */
};

static tutti_status micro_batch(struct toy *toy, bool forgets)
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
	CHECK(micro_batch(&toy, run->skipping < 0 || toy.rank == run->skipping) == TUTTI_OK);
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
	static const tutti_strategy strategies[] = {TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP,
						    TUTTI_HSDP};

	for (int s = 0; s < 4; s++)
		for (int n = 2; n <= 4; n++) {
			struct run run = {.config = {.strategy = strategies[s],
						     .bucket_bytes = 1,
						     .shard_size = n % 2 == 0 ? 2 : 1}};
			/* A rank with another order of units is a MISMATCH. */
			run.skipping = strategies[s] < TUTTI_FSDP ? n - 1 : -1;
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
	tutti_status status = micro_batch(&toy, toy.rank == run->skipping);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_named),
		cmocka_unit_test(test_mismatched),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
