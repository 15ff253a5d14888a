/* slow: 8 s */
/* What would break: an evaluation through a pipeline: an activation of another micro-batch, a
 * buffer that is used again before its forward has returned, another number of micro-batches than a
 * step has; ranks that wait where a callback fails, a rank dies, or numbers differ; and a step or
 * another evaluation that comes after it. Ranks are threads. */
#include "tests/train/pipeline/stages.h"

#include "tests/random.h"
#include "tests/train/ranks.h"
#include "tests/whole.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static uint64_t seed;

static const tutti_axis pp_only[] = {{"pp", 0}};

/* Only sent_bytes may grow. */
static void check_stats(const tutti_pipeline *pipeline, const struct stages *stages,
			const tutti_pipeline_stats *before)
{
	const struct pipeline_shape *shape = &stages->shape;
	int sends = shape->chunks - (stages->rank == shape->ranks - 1);
	tutti_pipeline_stats after, expected = *before;

	if (shape->ranks > 1)
		expected.sent_bytes +=
			(uint64_t)sends * (uint64_t)stages->evaluated * stages->bytes;
	CHECK(tutti_pipeline_stats_of(pipeline, &after) == TUTTI_OK);
	CHECK(memcmp(&after, &expected, sizeof after) == 0);
}

static void step(tutti_pipeline *pipeline, struct stages *stages)
{
	stages_evaluate(stages, 0);
	CHECK(tutti_pipeline_run(pipeline) == TUTTI_OK);
	stages_check_order(stages);
}

static void evaluate(tutti_pipeline *pipeline, struct stages *stages, int micro_batches)
{
	tutti_pipeline_stats before;

	stages_evaluate(stages, micro_batches);
	CHECK(tutti_pipeline_stats_of(pipeline, &before) == TUTTI_OK);
	CHECK(tutti_pipeline_forward(pipeline, micro_batches) == TUTTI_OK);
	stages_check_order(stages);
	check_stats(pipeline, stages, &before);
}

static void run_shape(tutti_mesh *mesh, struct pipeline_shape shape, int count, size_t bytes,
		      uint64_t pauses)
{
	struct stages stages;
	tutti_pipeline_config config =
		stages_create(&stages, shape, tutti_mesh_coord(mesh, "pp"), bytes, pauses);
	tutti_pipeline *pipeline = NULL;

	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	evaluate(pipeline, &stages, count);
	step(pipeline, &stages);
	evaluate(pipeline, &stages, count);
	evaluate(pipeline, &stages, 1);
	step(pipeline, &stages);
	tutti_pipeline_destroy(pipeline);
	stages_destroy(&stages);
}

static void run_all_shapes(tutti_comm *comm, void *arg)
{
	static const size_t sizes[] = {1, 64, 37, 0, 40000};
	int ranks = tutti_size(comm);
	const int steps[] = {1, ranks, 2 * ranks + 1}, counts[] = {ranks + 1, 3 * ranks, 2, ranks};
	uint64_t pauses = seed + (uint64_t)tutti_rank(comm);
	tutti_mesh *mesh = NULL;
	unsigned turn = 0;

	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	for (int i = 0; mesh && i < 3; i++)
		for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE; s++)
			for (int chunks = 1; chunks <= (s < TUTTI_INTERLEAVED ? 1 : 3); chunks++) {
				struct pipeline_shape shape = {(tutti_schedule)s, ranks, steps[i],
							       chunks};
				run_shape(mesh, shape, counts[turn % 4], sizes[turn % 5], pauses++);
				turn++;
			}
	tutti_mesh_destroy(mesh);
}

static void test_every_schedule(void **state)
{
	for (int ranks = 1; ranks <= whole_or(8, 5, 4); ranks++)
		assert_int_equal(ranks_as_threads(ranks, run_all_shapes, NULL), 0);
}

/* More micro-batches than receives may be posted, and one for a step; long messages. */
static void run_many(tutti_comm *comm, void *arg)
{
	int ranks = tutti_size(comm);
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	for (int s = TUTTI_GPIPE; mesh && s <= TUTTI_ZERO_BUBBLE; s++) {
		int chunks = s < TUTTI_INTERLEAVED ? 1 : 2;
		struct pipeline_shape shape = {(tutti_schedule)s, ranks, 1, chunks};
		run_shape(mesh, shape, 70, 30000, seed + (uint64_t)tutti_rank(comm));
	}
	tutti_mesh_destroy(mesh);
}

static void test_many_on_nodes(void **state)
{
	const int nodes[] = {0, 0, 1, 1};

	assert_int_equal(ranks_on_nodes(4, nodes, run_many, NULL), 0);
}

/* ---- what does not go well ---- */

/* The same on all ranks. */
static struct action draw_place(uint64_t *random, const struct pipeline_shape *shape, int count)
{
	struct pipeline_shape all = *shape;

	all.micro_batches = count;
	int rank = (int)random_below(random, (uint64_t)shape->ranks);
	struct action_list list = schedule_evaluation(&all, rank);
	struct action action = list.at[random_below(random, (uint64_t)list.count)];
	free(list.at);
	return action;
}

static void fail_once(tutti_pipeline *pipeline, struct stages *stages, struct action place,
		      int count)
{
	char expected[256];
	int rank = place.stage % stages->shape.ranks;

	stages_evaluate(stages, count);
	stages->failing = place;
	stages->failing_status = stages->rank == rank ? TUTTI_ERR_SYSTEM : TUTTI_OK;
	stages->failing_message = "the disk is full";
	snprintf(expected, sizeof expected,
		 "On rank %d: The forward of stage %d, micro-batch %d, failed: the disk is full",
		 rank, place.stage, place.micro_batch);
	CHECK_ERROR(tutti_pipeline_forward(pipeline, count), TUTTI_ERR_SYSTEM, expected);
	if (stages->rank == rank)
		CHECK(stages->call_count > 0 &&
		      memcmp(&stages->calls[stages->call_count - 1], &place, sizeof place) == 0);
	stages->failing_status = TUTTI_OK;
	stages->call_count = 0;
}

/* A bad evaluation, then a good one and a step, a few times. */
static void run_failures(tutti_comm *comm, void *arg)
{
	uint64_t random = seed; /* the same draws on all ranks */
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	for (int i = 0; mesh && i < whole_or(12, 4, 4); i++) {
		int s = i % 4,
		    chunks = s >= TUTTI_INTERLEAVED ? 1 + (int)random_below(&random, 3) : 1;
		struct pipeline_shape shape = {(tutti_schedule)s, tutti_size(comm),
					       1 + (int)random_below(&random, 9), chunks};
		struct stages stages;
		tutti_pipeline_config config = stages_create(&stages, shape, tutti_rank(comm),
							     random_below(&random, 30000), random);
		tutti_pipeline *pipeline = NULL;
		CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
		for (int k = 0; k < 2; k++) {
			int count = 1 + (int)random_below(&random, 9);
			fail_once(pipeline, &stages, draw_place(&random, &shape, count), count);
			evaluate(pipeline, &stages, 1 + (int)random_below(&random, 9));
			step(pipeline, &stages);
		}
		tutti_pipeline_destroy(pipeline);
		stages_destroy(&stages);
	}
	tutti_mesh_destroy(mesh);
}

static void die(struct stages *stages, const struct action *action)
{
	const struct action *last = stages->before_arg;

	if (memcmp(action, last, sizeof *action) == 0)
		raise(SIGKILL);
}

static void run_death(tutti_comm *comm, void *arg)
{
	struct pipeline_shape shape = {TUTTI_1F1B, 4, 6, 1};
	struct action last = {ACTION_EVALUATE, 1, 4};
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, tutti_rank(comm), 100, seed);
	tutti_pipeline *pipeline = NULL;
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	evaluate(pipeline, &stages, 8);
	stages.before = tutti_rank(comm) == 1 ? die : NULL;
	stages.before_arg = &last;
	CHECK_ERROR(tutti_pipeline_forward(pipeline, 8), TUTTI_ERR_PEER, "ank 1");
	CHECK(tutti_pipeline_forward(pipeline, 8) != TUTTI_OK);
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
	stages_destroy(&stages);
}

static void test_a_rank_that_dies(void **state)
{
	assert_int_equal(ranks_as_processes(4, run_death, NULL), 1);
}

static void forward_again(struct stages *stages, const struct action *action)
{
	CHECK_ERROR(tutti_pipeline_forward(stages->before_arg, 3), TUTTI_ERR_INVALID,
		    "in a callback");
}

static void run_refusals(tutti_comm *comm, void *arg)
{
	int me = tutti_rank(comm);
	struct pipeline_shape shape = {TUTTI_ZERO_BUBBLE, 3, 2, 1};
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, me, 100, seed);
	tutti_pipeline *pipeline = NULL;
	tutti_mesh *mesh = NULL;

	CHECK_ERROR(tutti_pipeline_forward(NULL, 1), TUTTI_ERR_INVALID, "is NULL");
	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	CHECK_ERROR(tutti_pipeline_forward(pipeline, 0), TUTTI_ERR_INVALID, "not 3, 0 and 1");
	CHECK_ERROR(tutti_pipeline_forward(pipeline, INT_MIN), TUTTI_ERR_INVALID, "not 3, -");
	CHECK_ERROR(tutti_pipeline_forward(pipeline, 1 << 30), TUTTI_ERR_INVALID, "are more than");
	/* On one rank only. */
	CHECK_ERROR(tutti_pipeline_forward(pipeline, me == 2 ? -1 : 4), TUTTI_ERR_INVALID,
		    me == 2 ? "not 3, -1 and 1" : "On rank 2: ");
	CHECK_ERROR(tutti_pipeline_forward(pipeline, me == 1 ? 5 : 4), TUTTI_ERR_MISMATCH,
		    "rank 1 has 5 micro-batches, but rank 0 has 4 micro-batches");
	stages.before = forward_again;
	stages.before_arg = pipeline;
	evaluate(pipeline, &stages, 4);
	step(pipeline, &stages);
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
	stages_destroy(&stages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_on_nodes), /* before there are threads */
		cmocka_unit_test(test_a_rank_that_dies), cmocka_unit_test(test_every_schedule),
		RANKS_TEST(run_failures, 1, 4),          RANKS_TEST(run_refusals, 3, 3),
	};

	seed = random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
