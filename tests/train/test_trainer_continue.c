/* What would break: ranks that continue after others have died, or with new ones, from another
 * step, other optimizer state or another loss scale, or with values that differ between them.
 *
 * No rank dies here: each rank's earlier trainer had a communicator of its own and the same
 * samples, and stopped at a given step. Gradients are small integers, so the result must have the
 * bits of one rank that trains without interruption. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "tests/unit.h"

enum { RANKS = 4, SAMPLES = 8, SKIPPED = 1, STEPS = 6, NO_TRAINER = -1 };

struct scene {
	tutti_train_config config;
	int ranks, finished[RANKS]; /* steps of each rank's earlier trainer, or NO_TRAINER */
	int most;
	float values[TOY_PARAMS][TOY_MAX]; /* at the end, rank 0's */
};

/* Steps [first, last). One of them has an infinity, so that the loss scale and the count of updates
 * differ from what the count of steps suggests. */
static void train(struct toy *toy, int first, int last)
{
	tutti_trainer *t = toy->trainer;

	for (int number = first; number < last; number++) {
		int from = number * 1000 + SAMPLES * toy->rank / toy->size;
		int to = number * 1000 + SAMPLES * (toy->rank + 1) / toy->size;
		tutti_step_info info;
		CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, to - from, NULL) == TUTTI_OK);
		for (int u = 0; u < TOY_UNITS; u++) {
			CHECK(tutti_forward_begin(t, u) == TUTTI_OK);
			CHECK(tutti_forward_end(t, u) == TUTTI_OK);
		}
		for (int u = TOY_UNITS - 1; u >= 0; u--) {
			CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
			toy_backward(toy, u, from, to);
			if (u == 1 && number == SKIPPED)
				((float *)tutti_param_grad(t, 3))[9] = INFINITY;
			CHECK(tutti_backward_end(t, u) == TUTTI_OK);
		}
		CHECK(tutti_step(t, &toy_adamw, 1, &info) == TUTTI_OK);
		CHECK(info.skipped == (number == SKIPPED));
		CHECK(info.loss_scale == (number <= SKIPPED ? 65536 : 32768));
	}
}

static void read_values(tutti_trainer *t, float values[TOY_PARAMS][TOY_MAX])
{
	memset(values, 0, sizeof(float[TOY_PARAMS][TOY_MAX]));
	for (int p = 0; p < TOY_PARAMS; p++)
		CHECK(tutti_param_read(t, p, 0, toy_count(p), values[p]) == TUTTI_OK);
}

static void undisturbed(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;

	toy_register(&toy, comm, 0);
	toy_train(&toy, comm, &scene->config);
	train(&toy, 0, STEPS);
	read_values(toy.trainer, scene->values);
	toy_destroy(&toy);
}

/* A trainer with first values of its own, which must be replaced. */
static void start_again(struct toy *toy, tutti_comm *comm, const tutti_train_config *config)
{
	toy_register(toy, comm, 0);
	toy_train(toy, comm, config);
	for (int p = 0; p < TOY_PARAMS; p++)
		CHECK(tutti_param_init_constant(toy->trainer, p, (float)toy->rank) == TUTTI_OK);
}

/* Forward sees the values of the rank that had finished most steps. */
static void check_seen(const struct scene *scene, const struct toy *before, const struct toy *after,
		       tutti_comm *comm)
{
	size_t width = scene->config.param_dtype == TUTTI_F32 ? sizeof(float) : sizeof(uint16_t);
	int root = 0;

	while (scene->finished[root] != scene->most)
		root++;
	for (int p = 0; p < TOY_PARAMS; p++) {
		size_t bytes = toy_count(p) * width;
		char seen[TOY_MAX * sizeof(float)] = {0};
		if (after->rank == root)
			memcpy(seen, tutti_param_data(before->trainer, p), bytes);
		CHECK(tutti_broadcast(seen, seen, bytes, TUTTI_U8, root, comm, NULL) == TUTTI_OK);
		CHECK(memcmp(seen, tutti_param_data(after->trainer, p), bytes) == 0);
	}
}

/* A trainer that has continued can be continued from. */
static void once_more(tutti_comm *comm, const struct scene *scene, const struct toy *before)
{
	struct toy toy;
	int64_t steps = -7;

	start_again(&toy, comm, &scene->config);
	CHECK(tutti_trainer_continue(toy.trainer, before->trainer, &steps) == TUTTI_OK);
	CHECK(steps == STEPS);
	toy_destroy(&toy);
}

static void go_on(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	float values[TOY_PARAMS][TOY_MAX];
	int rank = tutti_rank(comm), finished = scene->finished[rank];
	tutti_comm *own, *copy;
	struct toy before = {0}, after;
	int64_t steps = -7;

	CHECK(tutti_comm_split(comm, rank, 0, NULL, &own) == TUTTI_OK);
	if (finished != NO_TRAINER) {
		toy_register(&before, own, 0);
		toy_train(&before, own, &scene->config);
		train(&before, 0, finished);
	}
	CHECK(tutti_comm_dup(comm, &copy) == TUTTI_OK);
	start_again(&after, copy, &scene->config);
	CHECK(tutti_trainer_continue(after.trainer, before.trainer, &steps) == TUTTI_OK);
	CHECK(steps == scene->most);
	check_seen(scene, &before, &after, comm);
	toy_destroy(&before); /* nothing of it is used any more */
	tutti_comm_destroy(own);
	CHECK(tutti_check_replicas(after.trainer) == TUTTI_OK);
	CHECK(tutti_grad_scale(after.trainer) == (scene->most > SKIPPED ? 32768 : 65536));
	train(&after, scene->most, STEPS);
	CHECK(tutti_check_replicas(after.trainer) == TUTTI_OK);
	read_values(after.trainer, values);
	if (rank == 0)
		memcpy(scene->values, values, sizeof values);
	once_more(comm, scene, &after);
	toy_destroy(&after);
	tutti_comm_destroy(copy);
}

static const struct scene scenes[] = {
	{.ranks = 2, .finished = {3, 4}, .most = 4},
	{.ranks = 3, .finished = {3, 4, 3}, .most = 4},
	{.ranks = 3, .finished = {NO_TRAINER, 3, 3}, .most = 3},
	{.ranks = 4, .finished = {2, 2, NO_TRAINER, 1}, .most = 2},
	{.ranks = 2, .finished = {STEPS, STEPS - 1}, .most = STEPS},
	{.ranks = 1, .finished = {5}, .most = 5},
	{.ranks = 2, .finished = {1, NO_TRAINER}, .most = 1},
};

static void goes_on(tutti_train_config config)
{
	static struct scene calm;

	config.seed = 7;
	config.loss_scale = -1;
	config.deterministic = 1;
	config.max_grad_norm = 2;
	calm = (struct scene){.config = config};
	assert_int_equal(ranks_as_threads(1, undisturbed, &calm), 0);
	for (size_t s = 0; s < sizeof scenes / sizeof *scenes; s++) {
		struct scene scene = scenes[s];
		scene.config = config;
		assert_int_equal(ranks_as_threads(scene.ranks, go_on, &scene), 0);
		if (memcmp(scene.values, calm.values, sizeof calm.values) != 0)
			fail_msg("scene %zu: other values than without any of this", s);
	}
}

static void test_f32(void **state)
{
	(void)state;
	goes_on((tutti_train_config){.param_dtype = TUTTI_F32});
}

/* Rounding is keyed by the count of updates; the rounded values are copied with the master copy. */
static void test_of_16_bits(void **state)
{
	(void)state;
	goes_on((tutti_train_config){.param_dtype = TUTTI_BF16, .stochastic_rounding = 1});
	goes_on((tutti_train_config){.param_dtype = TUTTI_F16});
}

static void from_nothing(tutti_comm *comm, void *arg)
{
	(void)arg;
	float first[TOY_PARAMS][TOY_MAX], then[TOY_PARAMS][TOY_MAX];
	struct toy toy;
	int64_t steps = -7;

	toy_register(&toy, comm, 0);
	toy_train(&toy, comm, NULL);
	read_values(toy.trainer, first);
	CHECK(tutti_trainer_continue(toy.trainer, NULL, &steps) == TUTTI_OK);
	CHECK(steps == 0);
	read_values(toy.trainer, then);
	CHECK(memcmp(first, then, sizeof then) == 0);
	CHECK_ERROR(tutti_trainer_continue(toy.trainer, toy.trainer, &steps), TUTTI_ERR_INVALID,
		    "an earlier trainer that is not the new one");
	CHECK_ERROR(tutti_trainer_continue(NULL, NULL, &steps), TUTTI_ERR_INVALID,
		    "tutti_trainer_continue");
	toy_destroy(&toy);
}

/* Rank 1's earlier trainer has another type, then sharded state. All ranks fail, and nothing
 * changes. */
static void refused(tutti_comm *comm, void *arg)
{
	(void)arg;
	const tutti_train_config split = {.strategy = TUTTI_ZERO1};
	const tutti_train_config narrow = {.param_dtype =
						   tutti_rank(comm) == 1 ? TUTTI_BF16 : TUTTI_F32};
	float first[TOY_PARAMS][TOY_MAX], then[TOY_PARAMS][TOY_MAX];
	struct toy other, parts, toy;
	int64_t steps = -7;
	tutti_comm *own;

	CHECK(tutti_comm_split(comm, tutti_rank(comm), 0, NULL, &own) == TUTTI_OK);
	toy_register(&other, own, 0);
	toy_train(&other, own, &narrow);
	toy_register(&parts, comm, 0);
	toy_train(&parts, comm, &split);
	toy_register(&toy, comm, 0);
	toy_train(&toy, comm, NULL);
	read_values(toy.trainer, first);
	CHECK_ERROR(tutti_trainer_continue(toy.trainer, other.trainer, &steps), TUTTI_ERR_INVALID,
		    tutti_rank(comm) == 1 ? "different models" : "On rank 1: ");
	CHECK_ERROR(tutti_trainer_continue(toy.trainer, parts.trainer, &steps),
		    TUTTI_ERR_UNSUPPORTED, "load a checkpoint");
	CHECK_ERROR(tutti_trainer_continue(parts.trainer, toy.trainer, &steps),
		    TUTTI_ERR_UNSUPPORTED, "load a checkpoint");
	CHECK(steps == -7);
	read_values(toy.trainer, then);
	CHECK(memcmp(first, then, sizeof then) == 0);
	toy_destroy(&toy);
	toy_destroy(&parts);
	toy_destroy(&other);
	tutti_comm_destroy(own);
}

static void test_from_nothing(void **state)
{
	(void)state;
	for (int n = 1; n <= 3; n++)
		assert_int_equal(ranks_as_threads(n, from_nothing, NULL), 0);
}

static void test_refused(void **state)
{
	(void)state;
	assert_int_equal(ranks_as_threads(2, refused, NULL), 0);
	assert_int_equal(ranks_as_threads(3, refused, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_f32),
		cmocka_unit_test(test_of_16_bits),
		cmocka_unit_test(test_from_nothing),
		cmocka_unit_test(test_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
