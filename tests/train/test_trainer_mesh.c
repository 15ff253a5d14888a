/* A trainer on a mesh must end with the bits of one rank: with every strategy and mesh, also when
 * parameters are split, partial or tied, when a step is skipped, and when forwards follow
 * backwards. */
#include "tests/train/mesh_toy.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"
#include "tests/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 3, MICRO_BATCHES = 2, VALUES = MESH_PARAMS * MESH_ELEMENTS };

static const struct {
	const char *axes;
	int ranks;
} meshes[] = {{"tp=1", 1},      {"tp=2", 2},           {"pp=2", 2},           {"ep=2", 2},
	      {"cp=2", 2},      {"tp=3", 3},           {"pp=3", 3},           {"dp=2,tp=2", 4},
	      {"pp=2,tp=2", 4}, {"dp=2,pp=2", 4},      {"tp=2,dp=2", 4},      {"dp=2,ep=2", 4},
	      {"pp=4", 4},      {"tp=5", 5},           {"dp=3,tp=2", 6},      {"dp=2,pp=2,tp=2", 8},
	      {"dp=2,tp=4", 8}, {"dp=2,cp=2,tp=2", 8}, {"pp=2,dp=2,ep=2", 8}, {"own=2,dp=2", 4},
	      {"dp=2,pp=4", 8}};

struct run {
	const char *axes;
	tutti_strategy strategy;
	int deterministic, is_held, shadow;
	float values[VALUES], norm;
};

static tutti_train_config config_of(const struct run *run)
{
	return (tutti_train_config){.strategy = run->strategy,
				    .deterministic = run->deterministic,
				    .max_grad_norm = 0.5f,
				    .shard_size = run->strategy == TUTTI_HSDP ? 1 : 0,
				    .seed = 7,
				    .shadow = run->shadow,
				    .check_replicas_every = 1};
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_config config = config_of(run);
	tutti_step_info info = {0};
	struct mesh_toy toy;
	float values[VALUES];

	mesh_toy_make(&toy, comm, run->axes, &config);
	for (int step = 0; step < STEPS; step++) {
		if (run->is_held)
			mesh_toy_hold(&toy, step, MICRO_BATCHES);
		else
			mesh_toy_backward(&toy, step, MICRO_BATCHES);
		CHECK(tutti_step(toy.trainer, &toy_adamw, 1, &info) == TUTTI_OK);
		CHECK(info.items == 24 && !info.skipped);
	}
	mesh_toy_read(&toy, values);
	if (tutti_rank(comm) == 0) {
		memcpy(run->values, values, sizeof values);
		run->norm = info.grad_norm;
	}
	mesh_toy_destroy(&toy);
}

/* One rank, without a mesh. */
static const struct run *reference(void)
{
	static struct run run = {.axes = "", .strategy = TUTTI_DDP, .deterministic = 1};

	if (run.norm == 0)
		assert_int_equal(ranks_as_threads(1, train, &run), 0);
	return &run;
}

static void compare(const struct run *run)
{
	const struct run *one = reference();

	for (int i = 0; i < VALUES; i++)
		if (memcmp(&run->values[i], &one->values[i], sizeof(float)) != 0)
			fail_msg("%s, strategy %d: element %d of parameter %d is %a, not %a",
				 run->axes, (int)run->strategy, i % MESH_ELEMENTS,
				 i / MESH_ELEMENTS, (double)run->values[i], (double)one->values[i]);
	assert_true(run->norm == one->norm);
}

static void run_all(tutti_strategy strategy, int is_held)
{
	for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
		struct run run = {.axes = meshes[m].axes,
				  .strategy = strategy,
				  .deterministic = 1,
				  .is_held = is_held};
		print_message("%s, strategy %d\n", run.axes, (int)strategy);
		assert_int_equal(ranks_as_threads(meshes[m].ranks, train, &run), 0);
		compare(&run);
	}
}

static void test_each_strategy(void **state)
{
	for (tutti_strategy s = TUTTI_DDP; s <= TUTTI_HSDP; s++)
		run_all(s, 0);
}

static void test_held(void **state)
{
	run_all(TUTTI_DDP, 1);
	run_all(TUTTI_FSDP, 1);
}

static void run_forward(const struct mesh_toy *toy)
{
	int stages = tutti_mesh_size(toy->mesh, "pp");

	for (int u = 0; u < MESH_UNITS; u++) {
		if (u * stages / MESH_UNITS != tutti_mesh_coord(toy->mesh, "pp"))
			continue;
		CHECK(unit_forward(toy->trainer, u) == TUTTI_OK);
	}
}

/* A copy of a replicated gradient that is not a number, on a rank that does not count it. */
static void differing_nan(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {
		.strategy = TUTTI_DDP, .deterministic = *(int *)arg, .seed = 7};
	tutti_step_info info;
	struct mesh_toy toy;

	mesh_toy_make(&toy, comm, "tp=2", &config);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 3, NULL) == TUTTI_OK);
	run_forward(&toy);
	CHECK(tutti_grads_hold(toy.trainer, 1) == TUTTI_OK);
	CHECK_ERROR(tutti_grad_ready(toy.trainer, 4), TUTTI_ERR_INVALID, "are held");
	CHECK(tutti_grads_hold(toy.trainer, 0) == TUTTI_OK);
	for (int u = MESH_UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(toy.trainer, u) == TUTTI_OK);
		if (u == 1 && tutti_rank(comm) == 1)
			((float *)tutti_param_grad(toy.trainer, 4))[2] = NAN;
		CHECK(tutti_backward_end(toy.trainer, u) == TUTTI_OK);
	}
	CHECK(tutti_step(toy.trainer, &toy_adamw, 1, &info) == TUTTI_OK && info.skipped);
	CHECK(tutti_skipped_param(toy.trainer) == 4);
	mesh_toy_destroy(&toy);
}

static void test_differing_nan(void **state)
{
	for (int deterministic = 0; deterministic < 2; deterministic++)
		assert_int_equal(ranks_as_threads(2, differing_nan, &deterministic), 0);
}

/* An infinity on one rank: all ranks of the mesh skip the step, and name the parameter. */
static void skip_step(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_ZERO1, .seed = 7};
	struct mesh_toy toy;
	tutti_step_info info;

	mesh_toy_make(&toy, comm, "dp=2,pp=2,tp=2", &config);
	mesh_toy_backward(&toy, 0, 1);
	CHECK(tutti_step(toy.trainer, &toy_adamw, 1, &info) == TUTTI_OK && !info.skipped);
	CHECK(tutti_skipped_param(toy.trainer) == -1);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 3, NULL) == TUTTI_OK);
	run_forward(&toy);
	for (int u = MESH_UNITS - 1; u >= 0; u--) {
		if (u * 2 / MESH_UNITS != tutti_mesh_coord(toy.mesh, "pp"))
			continue;
		CHECK(tutti_backward_begin(toy.trainer, u) == TUTTI_OK);
		if (u == 3 && tutti_rank(comm) == 7)
			((float *)tutti_param_grad(toy.trainer, 8))[1] = INFINITY;
		CHECK(tutti_backward_end(toy.trainer, u) == TUTTI_OK);
	}
	CHECK(tutti_step(toy.trainer, &toy_adamw, 1, &info) == TUTTI_OK && info.skipped);
	CHECK(tutti_skipped_param(toy.trainer) == 8);
	CHECK_MESSAGE("param.8");
	mesh_toy_destroy(&toy);
}

/* A hook that is missing on one rank ends the step on all, also where no data are shared. */
static void miss(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_DDP, .seed = 7};
	struct mesh_toy toy;

	mesh_toy_make(&toy, comm, "dp=2,pp=2,tp=2", &config);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 3, NULL) == TUTTI_OK);
	run_forward(&toy);
	for (int u = MESH_UNITS - 1; u >= 0; u--) {
		if (u * 2 / MESH_UNITS != tutti_mesh_coord(toy.mesh, "pp") ||
		    (u == 1 && tutti_rank(comm) == 5))
			continue;
		CHECK(unit_backward(toy.trainer, u) == TUTTI_OK);
	}
	CHECK_ERROR(tutti_step(toy.trainer, &toy_adamw, 1, NULL), TUTTI_ERR_INVALID,
		    "Rank 5 did not finish the gradient of parameter 'param.2' of unit 'unit.1'");
	CHECK(mesh_toy_step(&toy, 1, 1, NULL) == TUTTI_OK);
	mesh_toy_destroy(&toy);
}

static void other_items(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_DDP};
	struct mesh_toy toy;

	mesh_toy_make(&toy, comm, "tp=2", &config);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 3 + tutti_rank(comm), NULL) ==
	      TUTTI_OK);
	run_forward(&toy);
	CHECK(units_backward(toy.trainer, MESH_UNITS) == TUTTI_OK);
	CHECK_ERROR(
		tutti_step(toy.trainer, &toy_adamw, 1, NULL), TUTTI_ERR_MISMATCH,
		"Rank 1, with those that it reduces with, had 4 items in this step, and rank 0 3");
	mesh_toy_destroy(&toy);
}

/* One replica of a replicated tensor differs: the check names its rank in the job. */
static void differ(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_DDP, .seed = 7};
	struct mesh_toy toy;

	mesh_toy_make(&toy, comm, "dp=1,tp=3", &config);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	if (tutti_rank(comm) == 2)
		((float *)tutti_param_data(toy.trainer, 4))[3] += 1;
	CHECK_ERROR(tutti_check_replicas(toy.trainer), TUTTI_ERR_MISMATCH,
		    "rank 2 has other values of parameter 'param.4'");
	mesh_toy_destroy(&toy);
}

/* The rank that holds most holds what was estimated. */
static void hold(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	tutti_train_config config = config_of(run);
	tutti_train_stats stats, estimated;
	tutti_model *model;
	struct mesh_toy toy;
	struct mesh_text read;

	mesh_toy_make(&toy, comm, run->axes, &config);
	CHECK(mesh_toy_step(&toy, 0, 1, NULL) == TUTTI_OK);
	CHECK(tutti_trainer_stats(toy.trainer, &stats) == TUTTI_OK);
	uint64_t most = stats.param_bytes + stats.grad_bytes + stats.optimizer_bytes;
	CHECK(tutti_all_reduce(&most, &most, 1, TUTTI_U64, TUTTI_MAX, comm, NULL) == TUTTI_OK);
	mesh_text_read(&read, run->axes);
	model = mesh_toy_register(tutti_mesh_size(toy.mesh, "pp"));
	CHECK(tutti_memory_estimate_on(model, read.axes, read.count, &config, &estimated) ==
	      TUTTI_OK);
	CHECK(most == estimated.param_bytes + estimated.grad_bytes + estimated.optimizer_bytes);
	read.axes[0].size = 0;
	CHECK_ERROR(tutti_memory_estimate_on(model, read.axes, read.count, &config, &estimated),
		    TUTTI_ERR_INVALID, "no open size");
	tutti_model_destroy(model);
	mesh_toy_destroy(&toy);
}

static void test_estimate(void **state)
{
	for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++)
		for (int s = TUTTI_DDP; s <= TUTTI_ZERO2; s++) {
			struct run run = {.axes = meshes[m].axes,
					  .strategy = (tutti_strategy)s,
					  .shadow = m % 2};
			print_message("%s, strategy %d\n", run.axes, s);
			assert_int_equal(ranks_as_threads(meshes[m].ranks, hold, &run), 0);
		}
}

/* HSDP by nodes: those of one "tp" coordinate are divided otherwise than those of the other. */
static void by_nodes(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_HSDP};
	struct mesh_toy toy;

	CHECK_ERROR(mesh_toy_try(&toy, comm, "dp=2,tp=2", &config), TUTTI_ERR_INVALID,
		    "set shard_size");
	mesh_toy_destroy(&toy);
}

static void test_nodes(void **state)
{
	const int nodes[] = {0, 0, 0, 1};

	assert_int_equal(ranks_on_nodes(4, nodes, by_nodes, NULL), 0);
}

static void misuse(tutti_comm *comm, void *arg)
{
	tutti_train_config config = {.strategy = TUTTI_DDP},
			   local = {.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 1};
	struct mesh_toy toy;
	int64_t first, count;

	CHECK_ERROR(mesh_toy_try(&toy, comm, "pp=2", &local), TUTTI_ERR_UNSUPPORTED, "LOCAL_SGD");
	mesh_toy_destroy(&toy);
	mesh_toy_make(&toy, comm, "pp=2", &config);
	int other = tutti_rank(comm) == 0 ? 2 : 1;
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_forward_begin(toy.trainer, other), TUTTI_ERR_INVALID, "of stage");
	CHECK(tutti_param_data(toy.trainer, tutti_rank(comm) == 0 ? 6 : 2) == NULL);
	CHECK_MESSAGE("is not on this rank");
	CHECK(tutti_param_piece(toy.trainer, tutti_rank(comm) == 0 ? 6 : 2, &first, &count) ==
	      TUTTI_OK);
	CHECK(count == 0);
	mesh_toy_destroy(&toy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nodes), /* forks */
		cmocka_unit_test(test_each_strategy),
		cmocka_unit_test(test_held),
		RANKS_TEST(skip_step, 8, 8),
		RANKS_TEST(miss, 8, 8),
		RANKS_TEST(other_items, 2, 2),
		RANKS_TEST(differ, 3, 3),
		cmocka_unit_test(test_differing_nan),
		cmocka_unit_test(test_estimate),
		RANKS_TEST(misuse, 2, 2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
