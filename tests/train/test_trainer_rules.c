/* What would break: local SGD whose ranks pair different steps, or save and average what differs;
 * and rules without a check: uneven steps with deterministic = 2, a folder's name that is gone,
 * values that are freed; calls in the middle of what they would destroy, or after it, norms beyond
 * f32, and hooks whose cost grows with what is in flight. */
#include "tests/limit.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/state/trainer_state.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};
static const tutti_optimizer decaying = {
	.kind = TUTTI_SGD, .lr = 0.5f, .momentum = 0.5f, .weight_decay = 0.1f};

enum { ELEMENTS = 6 };

/* Units of one parameter each, of which all elements are value. */
static tutti_trainer *make_units(tutti_comm *comm, const tutti_train_config *config, int units,
				 float value)
{
	const int64_t six = ELEMENTS;
	tutti_model *model;
	tutti_trainer *t = NULL;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < units; u++) {
		snprintf(name, sizeof name, "u%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_param(model, u, name, 1, &six, 0) == u);
	}
	CHECK(tutti_trainer_create(&t, model, comm, config) == TUTTI_OK);
	for (int u = 0; u < units && value != 0; u++)
		CHECK(tutti_param_init_constant(t, u, value) == TUTTI_OK);
	tutti_model_destroy(model);
	return t;
}

static tutti_trainer *make(tutti_comm *comm, const tutti_train_config *config)
{
	return make_units(comm, config, 1, 0);
}

static void backward(tutti_trainer *t, int unit, float slope)
{
	CHECK(tutti_backward_begin(t, unit) == TUTTI_OK);
	float *grad = tutti_param_grad(t, unit);
	for (int i = 0; i < ELEMENTS; i++)
		grad[i] += slope;
	CHECK(tutti_backward_end(t, unit) == TUTTI_OK);
}

static void micro_batch(tutti_trainer *t, tutti_pass pass, double items, double slope,
			bool has_hook)
{
	CHECK(tutti_micro_batch(t, pass, items, NULL) == TUTTI_OK);
	CHECK(unit_forward(t, 0) == TUTTI_OK);
	if (has_hook)
		backward(t, 0, (float)(slope * items));
}

static float value(tutti_trainer *t)
{
	float read = NAN;

	CHECK(tutti_param_read(t, 0, 5, 1, &read) == TUTTI_OK);
	return read;
}

/* An update of the caller's own with local SGD: ranks average after it, but only when they are
 * told. */
static void own_update(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {
		.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 2, .check_replicas_every = 1};
	tutti_trainer *t = make(comm, &config);
	int rank = tutti_rank(comm), size = tutti_size(comm);
	tutti_shard shard;

	for (int step = 0; step < 4; step++) {
		micro_batch(t, TUTTI_PASS_LAST, 2, rank + 1, true);
		CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
		CHECK_ERROR(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL), TUTTI_ERR_INVALID,
			    "tutti_params_updated");
		if (size > 1) {
			CHECK_ERROR(tutti_save(t, "/nowhere/at/all", 1), TUTTI_ERR_INVALID,
				    "ranks average every");
			CHECK_ERROR(tutti_check_replicas(t), TUTTI_ERR_INVALID,
				    "ranks average every");
		}
		CHECK(tutti_param_shard(t, 0, &shard) == TUTTI_OK && shard.count == 6);
		for (size_t i = 0; i < shard.count; i++)
			shard.values[i] -= ((float *)shard.grad)[i];
		CHECK(tutti_params_updated(t) == TUTTI_OK);
	}
	CHECK(tutti_check_replicas(t) == TUTTI_OK);
	CHECK(value(t) == -4 * (float)(size + 1) / 2);
	tutti_trainer_destroy(t);
}

/* Rank 1 skips a hook: it gets the error at once, the others at the next average; then all
 * continue. */
static void missed_hook(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 3};
	tutti_trainer *t = make(comm, &config);
	int rank = tutti_rank(comm);

	for (int step = 0; step < 6; step++) {
		bool forgets = rank == 1 && step == 1;
		micro_batch(t, TUTTI_PASS_LAST, 1, 1, !forgets);
		tutti_status status = tutti_step(t, &sgd, 1, NULL);
		if (step == 2)
			CHECK_ERROR(
				status, TUTTI_ERR_INVALID,
				"Rank 1 did not finish the gradient of parameter 'u0' of unit "
				"'u0' in a step since the last average, so ranks do not average");
		if (step == 2) { /* each has values of its own */
			CHECK_ERROR(tutti_save(t, "/nowhere/at/all", 3), TUTTI_ERR_INVALID,
				    "ranks average every");
			CHECK_ERROR(tutti_check_replicas(t), TUTTI_ERR_INVALID,
				    "ranks average every");
		} else if (forgets)
			CHECK_ERROR(status, TUTTI_ERR_INVALID, "so it does not update");
		else
			CHECK(status == TUTTI_OK);
	}
	CHECK(tutti_check_replicas(t) == TUTTI_OK);
	tutti_trainer_destroy(t);
}

/* Without items nothing changes, neither by decay nor by momentum. */
static void no_items(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 100};
	tutti_trainer *t = make(comm, &config);

	CHECK(tutti_param_init_constant(t, 0, 1) == TUTTI_OK);
	micro_batch(t, TUTTI_PASS_LAST, 1, 1, true);
	CHECK(tutti_step(t, &decaying, 1, NULL) == TUTTI_OK);
	float before = value(t);
	micro_batch(t, TUTTI_PASS_LAST, tutti_rank(comm) == 0, 1, true);
	CHECK(tutti_step(t, &decaying, 1, NULL) == TUTTI_OK);
	CHECK((value(t) == before) == (tutti_rank(comm) != 0));
	tutti_trainer_destroy(t);
}

struct step_of {
	int batches[2]; /* micro-batches of each rank */
	double items[2];
	double last_items; /* of the last one, where that is another number; 0: it is not */
	tutti_status status;
};

static void uneven(tutti_comm *comm, void *arg)
{
	const struct step_of *step = arg;
	const tutti_train_config config = {.strategy = TUTTI_ZERO1, .deterministic = 2};
	tutti_trainer *t = make(comm, &config);
	int rank = tutti_rank(comm), last = step->batches[rank] - 1;

	for (int m = 0; m <= last; m++)
		micro_batch(t, m < last ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST,
			    m == last && step->last_items > 0 ? step->last_items
							      : step->items[rank],
			    1, true);
	tutti_status status = tutti_step(t, &sgd, 1, NULL);
	CHECK(status == step->status);
	if (status != TUTTI_OK)
		CHECK_MESSAGE("deterministic = 2 needs as many micro-batches on every rank");
	CHECK((value(t) == 0) == (status != TUTTI_OK));
	tutti_trainer_destroy(t);
}

static void test_uneven(void **state)
{
	static struct step_of steps[] = {
		{{1, 1}, {1, 1}, 0, TUTTI_OK},          {{4, 4}, {64, 64}, 0, TUTTI_OK},
		{{1, 1}, {1, 2}, 0, TUTTI_ERR_INVALID}, {{1, 2}, {2, 1}, 0, TUTTI_ERR_INVALID},
		{{3, 3}, {1, 1}, 0, TUTTI_ERR_INVALID}, {{2, 2}, {2, 2}, 1, TUTTI_ERR_INVALID},
		{{1, 1}, {0, 2}, 0, TUTTI_ERR_INVALID},
	};

	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
		assert_int_equal(ranks_as_threads(2, uneven, &steps[i]), 0);
}

struct finished {
	tutti_strategy strategy;
	float grads[6];
};

/* Means that 16 bits cannot hold have f32's precision with every strategy. */
static void finish_in_16_bits(tutti_comm *comm, void *arg)
{
	struct finished *finished = arg;
	const tutti_train_config config = {.strategy = finished->strategy,
					   .param_dtype = TUTTI_BF16,
					   .reduce_dtype = TUTTI_BF16,
					   .deterministic = 1};
	tutti_trainer *t = make(comm, &config);
	tutti_shard shard;

	micro_batch(t, TUTTI_PASS_LAST, 3, 1.25 + tutti_rank(comm), true);
	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	CHECK(tutti_param_shard(t, 0, &shard) == TUTTI_OK);
	CHECK(shard.count == 0 || shard.grad_dtype == TUTTI_F32);
	bool is_mine = finished->strategy != TUTTI_DDP || tutti_rank(comm) == 0;
	for (size_t i = 0; i < shard.count && is_mine; i++)
		finished->grads[shard.first + i] = ((float *)shard.grad)[i];
	tutti_trainer_destroy(t);
}

static void test_16_bits(void **state)
{
	for (int n = 2; n <= 3; n++) {
		struct finished ddp = {.strategy = TUTTI_DDP};
		assert_int_equal(ranks_as_threads(n, finish_in_16_bits, &ddp), 0);
		for (tutti_strategy s = TUTTI_ZERO1; s <= TUTTI_FSDP; s++) {
			struct finished other = {.strategy = s};
			assert_int_equal(ranks_as_threads(n, finish_in_16_bits, &other), 0);
			assert_memory_equal(other.grads, ddp.grads, sizeof ddp.grads);
		}
	}
}

static void folder_is_copied(tutti_comm *comm, void *arg)
{
	char *name = strdup("/tmp");
	tutti_trainer *t = make(comm, &(tutti_train_config){.offload_dir = name});

	memset(name, '?', strlen(name));
	free(name);
	micro_batch(t, TUTTI_PASS_LAST, 1, 1, true);
	CHECK(tutti_step(t, &decaying, 1, NULL) == TUTTI_OK);
	tutti_trainer_destroy(t);
}

/* In debug builds what FSDP has freed is NaN. */
static void poisoned(tutti_comm *comm, void *arg)
{
	tutti_trainer *t = make(comm, &(tutti_train_config){.strategy = TUTTI_FSDP});

	CHECK(tutti_param_init_constant(t, 0, 1) == TUTTI_OK);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(tutti_forward_begin(t, 0) == TUTTI_OK);
	const float *kept = tutti_param_data(t, 0);
	CHECK(kept && kept[0] == 1 && kept[5] == 1);
	CHECK(tutti_forward_end(t, 0) == TUTTI_OK);
	CHECK(unit_backward(t, 0) == TUTTI_OK);
	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	CHECK(isnan(kept[0]) && isnan(kept[5]));
	tutti_trainer_destroy(t);
}

static void test_poisoned(void **state)
{
#ifdef TUTTI_POISON
	assert_int_equal(ranks_as_threads(2, poisoned, NULL), 0);
#else
	(void)poisoned;
	skip_because("release builds do not poison what is given back");
#endif
}

static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP};
enum { STRATEGIES = sizeof strategies / sizeof *strategies, UNITS = 200 };

static void in_the_middle(tutti_comm *comm, void *arg)
{
	tutti_trainer *t = make_units(comm, arg, 1, 1), *other = make_units(comm, arg, 1, 1);
	int64_t steps;

	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(tutti_forward_begin(t, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_params_updated(t), TUTTI_ERR_INVALID, "unit 'u0' is still in");
	const float *values = tutti_param_data(t, 0);
	CHECK(values && values[5] == 1);
	CHECK(tutti_forward_end(t, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_trainer_continue(t, other, &steps), TUTTI_ERR_INVALID,
		    "a step has begun");
	backward(t, 0, 1);
	CHECK(tutti_step(t, &toy_adamw, 1, NULL) == TUTTI_OK);
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
	tutti_trainer *t = make_units(own, arg, 2, 1);
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
	tutti_trainer *t = make_units(comm, &extreme->config, 2, 1);
	tutti_step_info info;
	float values[ELEMENTS];

	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, extreme->items, NULL) == TUTTI_OK);
	CHECK(units_forward(t, 2) == TUTTI_OK);
	for (int u = 1; u >= 0; u--)
		backward(t, u, tutti_rank(comm) == 0 ? extreme->slope : 0);
	CHECK(tutti_step(t, &toy_adamw, 1, &info) == TUTTI_OK);
	CHECK(info.skipped == 1 && !isinf(info.grad_norm) == !extreme->slope);
	CHECK_MESSAGE("is not a finite f32");
	for (int u = 0; u < 2; u++) {
		CHECK(tutti_param_read(t, u, 0, ELEMENTS, values) == TUTTI_OK);
		CHECK(values[0] == 1 && values[5] == 1);
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
	tutti_trainer *t = make_units(comm, &many->config, UNITS, 1);

	tests = 0;
	if (tutti_rank(comm) == 1)
		pthread_barrier_wait(&many->is_ahead);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, UNITS) == TUTTI_OK);
	for (int u = UNITS - 1; u >= 0; u--)
		backward(t, u, 1);
	if (tutti_rank(comm) == 0)
		pthread_barrier_wait(&many->is_ahead);
	CHECK(tutti_step(t, &toy_adamw, 1, NULL) == TUTTI_OK);
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
	const struct CMUnitTest rules[] = {
		RANKS_TEST(own_update, 1, 4),
		RANKS_TEST(missed_hook, 2, 3),
		RANKS_TEST(no_items, 2, 2),
		cmocka_unit_test(test_uneven),
		cmocka_unit_test(test_16_bits),
		RANKS_TEST(folder_is_copied, 2, 2),
		cmocka_unit_test(test_poisoned),
		cmocka_unit_test(test_in_the_middle),
		cmocka_unit_test(test_without_its_comm),
		cmocka_unit_test(test_too_large),
		cmocka_unit_test(test_many_buckets),
	};
	test_limit(120);
	return cmocka_run_group_tests(rules, NULL, NULL);
}
