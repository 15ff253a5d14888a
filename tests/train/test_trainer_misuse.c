/* What would break: calls in the middle of what they would destroy, or after it, norms beyond f32,
 * and hooks whose cost grows with what is in flight. */
#include "tests/limit.h"
#include "tests/train/ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/unit.h"

static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP};
enum { STRATEGIES = sizeof strategies / sizeof *strategies, UNITS = 200 };

static const tutti_optimizer adamw = {
	.kind = TUTTI_ADAMW, .lr = 0.5f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};

/* Units of one parameter each, all of which begin as 1. */
static tutti_trainer *make(tutti_comm *comm, const tutti_train_config *config, int units)
{
	const int64_t five = 5;
	tutti_model *model;
	tutti_trainer *t = NULL;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < units; u++) {
		snprintf(name, sizeof name, "u%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_param(model, u, name, 1, &five, 0) == u);
	}
	CHECK(tutti_trainer_create(&t, model, comm, config) == TUTTI_OK);
	for (int u = 0; u < units; u++)
		CHECK(tutti_param_init_constant(t, u, 1) == TUTTI_OK);
	tutti_model_destroy(model);
	return t;
}

static void backward(tutti_trainer *t, int unit, float slope)
{
	CHECK(tutti_backward_begin(t, unit) == TUTTI_OK);
	float *grad = tutti_param_grad(t, unit);
	for (int i = 0; i < 5; i++)
		grad[i] += slope;
	CHECK(tutti_backward_end(t, unit) == TUTTI_OK);
}

static void in_the_middle(tutti_comm *comm, void *arg)
{
	tutti_trainer *t = make(comm, arg, 1), *other = make(comm, arg, 1);
	int64_t steps;

	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(tutti_forward_begin(t, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_params_updated(t), TUTTI_ERR_INVALID, "unit 'u0' is still in");
	const float *values = tutti_param_data(t, 0);
	CHECK(values && values[4] == 1);
	CHECK(tutti_forward_end(t, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_trainer_continue(t, other, &steps), TUTTI_ERR_INVALID,
		    "a step has begun");
	backward(t, 0, 1);
	CHECK(tutti_step(t, &adamw, 1, NULL) == TUTTI_OK);
	tutti_trainer_destroy(t);
	tutti_trainer_destroy(other);
}

static void test_in_the_middle(void **state)
{
	for (int s = 0; s < STRATEGIES; s++) {
		tutti_train_config config = {.strategy = strategies[s]};
		assert_int_equal(ranks_as_threads(2, in_the_middle, &config), 0);
	}
}

/* As after tutti_recover: the trainer's communicator is gone, and rank 0's last gradients are on
 * their way to a rank that will not send its own. */
static void without_its_comm(tutti_comm *comm, void *arg)
{
	tutti_comm *own;

	CHECK(tutti_comm_dup(comm, &own) == TUTTI_OK);
	tutti_trainer *t = make(own, arg, 2);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, 2) == TUTTI_OK);
	backward(t, 1, 1);
	CHECK(tutti_backward_begin(t, 0) == TUTTI_OK);
	if (tutti_rank(comm) == 0)
		CHECK(tutti_backward_end(t, 0) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	tutti_comm_destroy(own);
	tutti_trainer_destroy(t);
}

static void test_without_its_comm(void **state)
{
	for (int s = 0; s < STRATEGIES; s++) {
		tutti_train_config config = {.strategy = strategies[s], .bucket_bytes = 1};
		assert_int_equal(ranks_as_threads(2, without_its_comm, &config), 0);
	}
}

struct extreme {
	tutti_train_config config;
	float slope;
	double items;
};

/* Every gradient is finite, but a division by their norm, or by the items, is not. */
static void too_large(tutti_comm *comm, void *arg)
{
	const struct extreme *extreme = arg;
	tutti_trainer *t = make(comm, &extreme->config, 2);
	tutti_step_info info;
	float values[5];

	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, extreme->items, NULL) == TUTTI_OK);
	CHECK(units_forward(t, 2) == TUTTI_OK);
	for (int u = 1; u >= 0; u--)
		backward(t, u, tutti_rank(comm) == 0 ? extreme->slope : 0);
	CHECK(tutti_step(t, &adamw, 1, &info) == TUTTI_OK);
	CHECK(info.skipped == 1 && !isinf(info.grad_norm) == !extreme->slope);
	CHECK_MESSAGE("is not a finite f32");
	for (int u = 0; u < 2; u++) {
		CHECK(tutti_param_read(t, u, 0, 5, values) == TUTTI_OK);
		CHECK(values[0] == 1 && values[4] == 1);
	}
	tutti_trainer_destroy(t);
}

static void test_too_large(void **state)
{
	for (int s = 0; s < STRATEGIES; s++) {
		const tutti_train_config config = {.strategy = strategies[s], .max_grad_norm = 1};
		struct extreme large = {config, 3e38f, 1}, small = {config, 0, 1e-40};
		for (int n = 1; n <= 2; n++) {
			assert_int_equal(ranks_as_threads(n, too_large, &large), 0);
			assert_int_equal(ranks_as_threads(n, too_large, &small), 0);
		}
	}
}

static _Thread_local int tests;
tutti_status __real_tutti_work_test(tutti_work *work, int *is_done);
tutti_status __wrap_tutti_work_test(tutti_work *work, int *is_done);

tutti_status __wrap_tutti_work_test(tutti_work *work, int *is_done)
{
	tests++;
	return __real_tutti_work_test(work, is_done);
}

struct many {
	tutti_train_config config;
	pthread_barrier_t is_ahead; /* rank 0 has been in all of its hooks */
};

/* A hook checks only some of what is in flight. */
static void many_buckets(tutti_comm *comm, void *arg)
{
	struct many *many = arg;
	tutti_trainer *t = make(comm, &many->config, UNITS);

	tests = 0;
	if (tutti_rank(comm) == 1)
		pthread_barrier_wait(&many->is_ahead);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, UNITS) == TUTTI_OK);
	for (int u = UNITS - 1; u >= 0; u--)
		backward(t, u, 1);
	if (tutti_rank(comm) == 0)
		pthread_barrier_wait(&many->is_ahead);
	CHECK(tutti_step(t, &adamw, 1, NULL) == TUTTI_OK);
	CHECK(tests <= 5 * UNITS);
	tutti_trainer_destroy(t);
}

static void test_many_buckets(void **state)
{
	for (int s = 0; s < 2; s++) { /* its hooks do not wait */
		struct many many = {.config = {.strategy = strategies[s], .bucket_bytes = 1}};
		pthread_barrier_init(&many.is_ahead, NULL, 2);
		assert_int_equal(ranks_as_threads(2, many_buckets, &many), 0);
		pthread_barrier_destroy(&many.is_ahead);
	}
}

int main(void)
{
	const struct CMUnitTest tests_of_misuse[] = {
		cmocka_unit_test(test_in_the_middle),
		cmocka_unit_test(test_without_its_comm),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_many_buckets),
	};
	test_limit(120);
	return cmocka_run_group_tests(tests_of_misuse, NULL, NULL);
}
