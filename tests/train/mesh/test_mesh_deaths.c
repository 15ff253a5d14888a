/* slow: 12 s */
/* What would break: ranks of a mesh that hear of a death without the number of the rank that died,
 * or not at all.
 *
 * The ranks are processes. One is killed (SIGKILL) at a random call: in a sum over "tp", in a
 * pipeline's run, in a step's reductions, reports or norm, or while it saves. All others get an
 * error whose message has that rank's number in the job, whatever communicator it comes from. Ranks
 * that have an error destroy what they have; or, where they share memory, just exit: a connection
 * that is reset may lose what was said last. */
#include "tests/random.h"
#include "tests/train/mesh_toy.h"
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"
#include "tests/whole.h"
#include "train/base/base.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { MOST_RANKS = 8, STEPS = 1000, MICRO_BATCHES = 4, COUNT = 64 };

/* The same on all ranks. */
struct scene {
	const char *axes;
	tutti_strategy strategy;
	int ranks, victim, dies_at;
	bool ends_after; /* the call is made first */
	bool exits;      /* ranks with an error end without a word */
};

static int calls; /* until this rank dies; 0: it does not */
static bool ends_after;

static void count(bool is_after)
{
	if (calls > 0 && is_after == ends_after && --calls == 0)
		raise(SIGKILL);
}

#define WRAP(name, parameters, arguments)                                                          \
	tutti_status __real_tutti_##name parameters;                                               \
	tutti_status __wrap_tutti_##name parameters;                                               \
	tutti_status __wrap_tutti_##name parameters                                                \
	{                                                                                          \
		count(false);                                                                      \
		tutti_status status = __real_tutti_##name arguments;                               \
		count(true);                                                                       \
		return status;                                                                     \
	}
WRAP(all_reduce,
     (const void *send, void *recv, size_t n, tutti_dtype dtype, tutti_op op, tutti_comm *comm,
      const tutti_call *call),
     (send, recv, n, dtype, op, comm, call))
WRAP(all_gather,
     (const void *send, void *recv, size_t n, tutti_dtype dtype, tutti_comm *comm,
      const tutti_call *call),
     (send, recv, n, dtype, comm, call))
WRAP(work_wait, (tutti_work * *work, int timeout_ms), (work, timeout_ms))

static tutti_status pass(void *arg, int stage, int micro_batch, const void *in, void *out)
{
	if (out)
		memset(out, 0, COUNT);
	count(false);
	return TUTTI_OK;
}

static tutti_status step(struct mesh_toy *toy, tutti_pipeline *pipeline, int number)
{
	tutti_comm *tp = tutti_mesh_comm(toy->mesh, "tp");
	float sum[COUNT] = {0};

	for (int i = 0; tp && i < 3; i++)
		TRY(tutti_all_reduce(sum, sum, COUNT, TUTTI_F32, TUTTI_SUM, tp, NULL));
	TRY(tutti_pipeline_run(pipeline));
	TRY(mesh_toy_try_backward(toy, number, 2));
	TRY(tutti_step(toy->trainer, &toy_adamw, 1, NULL));
	if (number % 3 == 0)
		TRY(tutti_save(toy->trainer, saved_dir, number + 1));
	return TUTTI_OK;
}

/* "rank 5 of 8", or "Rank 5 (process" where the communicator numbers ranks as the job does. */
static bool names(const char *message, const struct scene *scene)
{
	char of[32], alone[32];

	snprintf(of, sizeof of, "ank %d of %d", scene->victim, scene->ranks);
	snprintf(alone, sizeof alone, "ank %d (process", scene->victim);
	return strstr(message, of) || strstr(message, alone);
}

static void live(tutti_comm *comm, void *arg)
{
	const struct scene *scene = arg;
	tutti_train_config config = {.strategy = scene->strategy, .max_grad_norm = 1, .seed = 7};
	tutti_pipeline_config plan = {.schedule = TUTTI_1F1B,
				      .micro_batches = MICRO_BATCHES,
				      .count = COUNT,
				      .dtype = TUTTI_U8,
				      .forward = pass,
				      .backward = pass};
	tutti_pipeline *pipeline = NULL;
	tutti_status status = TUTTI_OK;
	struct mesh_toy toy;

	mesh_toy_make(&toy, comm, scene->axes, &config);
	CHECK(tutti_pipeline_create(&pipeline, toy.mesh, &plan) == TUTTI_OK);
	ends_after = scene->ends_after;
	calls = tutti_rank(comm) == scene->victim ? scene->dies_at : 0;
	for (int number = 0; status == TUTTI_OK && number < STEPS; number++)
		status = step(&toy, pipeline, number);
	bool is_named = names(tutti_comm_error(NULL), scene);
	if (!is_named)
		fprintf(stderr, "rank %d: '%s' does not name rank %d\n", tutti_rank(comm),
			tutti_comm_error(NULL), scene->victim);
	if (scene->exits)
		_exit(!is_named);
	CHECK(is_named);
	tutti_pipeline_destroy(pipeline);
	mesh_toy_destroy(&toy);
}

static uint64_t seed;

/* Where the ranks are: all on one machine, or half of them on another. */
static const int nodes[][MOST_RANKS] = {{0}, {0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 2, 3, 4, 5, 6, 7}};

static void test_deaths(void **state)
{
	static const struct {
		const char *axes;
		int ranks;
	} meshes[] = {{"dp=2,pp=2,tp=2", 8}, {"dp=1,pp=4", 4},      {"dp=2,tp=2", 4},
		      {"dp=2,ep=2", 4},      {"pp=2,dp=2,ep=2", 8}, {"dp=2,cp=2,tp=2", 8}};
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_FSDP};
	int rounds = long_or(200, 36, 12, 6);

	for (int i = 0; i < rounds; i++) {
		struct scene scene = {.axes = meshes[i % 6].axes,
				      .ranks = meshes[i % 6].ranks,
				      .strategy = strategies[random_below(&seed, 3)],
				      .ends_after = random_below(&seed, 2),
				      .exits = random_below(&seed, 2)};
		const int *where = nodes[i / 6 % 3];
		scene.exits = scene.exits && where == nodes[0];
		scene.victim = (int)random_below(&seed, (uint64_t)scene.ranks);
		scene.dies_at = 1 + (int)random_below(&seed, 120);
		int failed = ranks_on_nodes(scene.ranks, where, live, &scene);
		if (failed != 1)
			fail_msg("%s, strategy %d, nodes %d: rank %d died at call %d, and others "
				 "%s: %d failed",
				 scene.axes, (int)scene.strategy, i / 6 % 3, scene.victim,
				 scene.dies_at, scene.exits ? "exit" : "destroy", failed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_deaths, saved_setup, saved_teardown)};

	seed = random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
