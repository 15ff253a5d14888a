/* What would break: replicas of a model in which no parameter has elements (a dimension is 0),
 * whose copies have no bytes: parameters and gradients at NULL, which the program takes for an
 * error. */
#include "tests/train/ranks.h"

#include <stdbool.h>

#include "tests/unit.h"

enum { STEPS = 2, ITEMS = 8 };

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};

static tutti_status see_param(tutti_replica *replica)
{
	for (size_t i = 0; i < replica->items; i++)
		replica->outputs[i] = 1;
	return tutti_replica_param(replica, 0) ? TUTTI_OK : TUTTI_ERR_INVALID;
}

static tutti_status set_loss(tutti_replica *replica)
{
	replica->loss = (double)replica->items;
	for (size_t i = 0; i < replica->items; i++)
		replica->output_grads[i] = 1;
	return TUTTI_OK;
}

static tutti_status see_grad(tutti_replica *replica)
{
	return tutti_replica_grad(replica, 0) ? tutti_replica_grad_ready(replica, 0)
					      : TUTTI_ERR_INVALID;
}

/* params: 1 or 2. */
static tutti_model *make_model(int params)
{
	const int64_t shapes[2][3] = {{0, 16, 1}, {4, 0, 2}};
	tutti_model *model;

	assert_int_equal(tutti_model_create(&model), TUTTI_OK);
	assert_int_equal(tutti_model_unit(model, "unit"), 0);
	for (int p = 0; p < params; p++)
		assert_int_equal(tutti_model_param(model, 0, p ? "b" : "a", 3, shapes[p], 0), p);
	return model;
}

static void run_replicas(bool is_mirrored, int n, int params)
{
	const tutti_data_parallel_batch batch = {.items = ITEMS};
	tutti_comm *comms[4];
	tutti_data_parallel *dp;
	tutti_data_parallel_info info;
	tutti_data_parallel_config config = {.model = make_model(params),
					     .forward = see_param,
					     .loss = set_loss,
					     .backward = see_grad,
					     .output_count = 1};

	assert_int_equal(tutti_init_all(comms, n, NULL), TUTTI_OK);
	assert_int_equal(is_mirrored ? tutti_mirrored_create(&dp, comms, n, &config)
				     : tutti_data_parallel_create(&dp, comms, n, &config),
			 TUTTI_OK);
	tutti_model_destroy(config.model);
	for (int i = 0; i < STEPS; i++)
		assert_int_equal(tutti_data_parallel_step(dp, &batch, &sgd, 1, &info), TUTTI_OK);
	assert_true(info.loss == 1 && info.step.items == ITEMS && info.step.grad_norm == 0);
	tutti_data_parallel_destroy(dp);
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[r]);
}

static void test_replicas(void **state)
{
	for (int n = 1; n <= 4; n++)
		for (int params = 1; params <= 2; params++) {
			run_replicas(false, n, params);
			run_replicas(true, n, params);
		}
}

/* A function of the program that leaves a step open. */
static tutti_status begin_step(tutti_trainer *trainer, int replica, void *arg)
{
	return tutti_micro_batch(trainer, TUTTI_PASS_LAST, 1, NULL);
}

static void test_a_step_that_stays_open(void **state)
{
	tutti_data_parallel_config config = {.model = make_model(1),
					     .forward = see_param,
					     .loss = set_loss,
					     .backward = see_grad,
					     .output_count = 1};
	tutti_data_parallel *dp;
	tutti_comm *comm;

	assert_int_equal(tutti_init_all(&comm, 1, NULL), TUTTI_OK);
	assert_int_equal(tutti_data_parallel_create(&dp, &comm, 1, &config), TUTTI_OK);
	tutti_model_destroy(config.model);
	CHECK_ERROR(tutti_data_parallel_run(dp, begin_step, NULL), TUTTI_ERR_INVALID,
		    "tutti_data_parallel_run: the function has begun a step of replica 0's "
		    "trainer and not ended it: steps are those of tutti_data_parallel_step.");
	assert_int_equal(checks_failed(), 0);
	tutti_data_parallel_destroy(dp);
	tutti_comm_destroy(comm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_replicas),
		cmocka_unit_test(test_a_step_that_stays_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
