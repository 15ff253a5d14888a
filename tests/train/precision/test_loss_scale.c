/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: a dynamic loss scale that never grows again, grows too soon, or at different
 * steps on different ranks: it doubles after 2000 steps without an infinity, counted from the last
 * one that had any. */
#include "tests/train/design.h"
#include "tests/train/ranks.h"

#include <math.h>

#include "tests/unit.h"

enum { GOOD_STEPS = 2000 };

/* A parameter of one element, whose hook is called without units. */
static tutti_trainer *make(tutti_comm *comm, tutti_strategy strategy)
{
	const struct design design = design_equal(1, 1, 0);
	const tutti_train_config config = {
		.strategy = strategy, .param_dtype = TUTTI_F16, .loss_scale = -1};
	tutti_model *model = design_build(&design);
	tutti_trainer *t = NULL;

	CHECK(tutti_trainer_create(&t, model, comm, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	return t;
}

static void steps(tutti_trainer *t, int count, float grad, int is_skipped)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD};

	for (int i = 0; i < count; i++) {
		tutti_step_info info = {0};
		CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
		*(float *)tutti_param_grad(t, 0) += grad;
		CHECK(tutti_grad_ready(t, 0) == TUTTI_OK);
		CHECK(tutti_step(t, &sgd, 1, &info) == TUTTI_OK);
		CHECK(info.skipped == is_skipped);
	}
}

static void grow(tutti_comm *comm, void *arg)
{
	tutti_trainer *t = make(comm, *(const tutti_strategy *)arg);
	int is_last = tutti_rank(comm) == tutti_size(comm) - 1;

	CHECK(tutti_grad_scale(t) == 65536);
	steps(t, GOOD_STEPS - 1, 1, 0);
	CHECK(tutti_grad_scale(t) == 65536);
	steps(t, 1, 1, 0);
	CHECK(tutti_grad_scale(t) == 131072);
	steps(t, GOOD_STEPS / 2, 1, 0);
	steps(t, 1, is_last ? INFINITY : 1, 1);
	CHECK(tutti_grad_scale(t) == 65536);
	if (tutti_size(comm) == 1) { /* with more it is the same code, and takes long */
		steps(t, GOOD_STEPS - 1, 1, 0);
		CHECK(tutti_grad_scale(t) == 65536);
		steps(t, 1, 1, 0);
		CHECK(tutti_grad_scale(t) == 131072);
	}
	tutti_trainer_destroy(t);
}

static void test_grows(void **state)
{
	tutti_strategy ddp = TUTTI_DDP, zero1 = TUTTI_ZERO1;

	assert_int_equal(ranks_as_threads(1, grow, &ddp), 0);
	assert_int_equal(ranks_as_threads(2, grow, &zero1), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_grows)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
