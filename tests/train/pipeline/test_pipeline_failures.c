/* slow: 9 s */
/* What would break: a callback of a step or an evaluation that fails, and ranks that wait for its
 * messages until their deadline, or a pipeline that is of no use for what comes next; a rank that
 * dies or does not come; arguments that differ among ranks or cannot be. */
#include "tests/train/pipeline/stages.h"

#include "tests/random.h"
#include "tests/train/ranks.h"
#include "tests/whole.h"

#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static uint64_t seed;

/* The same on all ranks: one callback of one rank of the mesh. */
struct place {
	int rank; /* in the mesh */
	struct action action;
	tutti_status status;
	const char *message;
};

/* In a step, or in an evaluation of so many micro-batches. */
static struct place draw_place(uint64_t *random, const tutti_mesh *mesh,
			       const struct pipeline_shape *shape, int evaluated)
{
	static const tutti_status statuses[] = {TUTTI_ERR_SYSTEM, TUTTI_ERR_INVALID,
						TUTTI_ERR_DEVICE, TUTTI_ERR_PEER};
	struct pipeline_shape all = *shape;
	int pp = (int)random_below(random, (uint64_t)shape->ranks);
	int dp = (int)random_below(random, (uint64_t)tutti_mesh_size(mesh, "dp"));
	const int coords[] = {dp, pp};

	all.micro_batches = evaluated;
	struct action_list list =
		evaluated ? schedule_evaluation(&all, pp) : schedule_list(shape, pp);
	struct place place = {tutti_mesh_rank(mesh, coords),
			      list.at[random_below(random, (uint64_t)list.count)],
			      statuses[random_below(random, 4)],
			      random_below(random, 2) ? "the disk is full" : NULL};

	free(list.at);
	return place;
}

static void check_message(const struct place *place)
{
	const char *name = place->action.kind == ACTION_BACKWARD_WEIGHTS ? "backward_weights"
			   : place->action.kind == ACTION_BACKWARD ||
					   place->action.kind == ACTION_BACKWARD_INPUTS
				   ? "backward"
				   : "forward";
	char expected[512], what[128] = "the disk is full";

	if (!place->message)
		snprintf(what, sizeof what, "It returned '%s'.",
			 tutti_status_string(place->status));
	snprintf(expected, sizeof expected,
		 "On rank %d: The %s of stage %d, micro-batch %d, failed: %s", place->rank, name,
		 place->action.stage, place->action.micro_batch, what);
	if (strcmp(tutti_comm_error(NULL), expected) != 0) {
		fprintf(stderr, "'%s', not '%s'\n", tutti_comm_error(NULL), expected);
		CHECK(!"the message is another one");
	}
}

static tutti_status run_or_evaluate(tutti_pipeline *pipeline, struct stages *stages, int evaluated)
{
	stages_evaluate(stages, evaluated);
	return evaluated ? tutti_pipeline_forward(pipeline, evaluated)
			 : tutti_pipeline_run(pipeline);
}

static void fail_once(tutti_pipeline *pipeline, struct stages *stages, const struct place *place,
		      int evaluated, bool is_here)
{
	stages->failing = place->action;
	stages->failing_status = is_here ? place->status : TUTTI_OK;
	stages->failing_message = place->message;
	CHECK(run_or_evaluate(pipeline, stages, evaluated) == place->status);
	check_message(place);
	/* Nothing is called after the one that failed. */
	if (is_here)
		CHECK(stages->call_count > 0 && memcmp(&stages->calls[stages->call_count - 1],
						       &place->action, sizeof place->action) == 0);
	stages->failing_status = TUTTI_OK;
	stages->call_count = 0;
}

/* Bad steps and evaluations, each followed by a good one, a few times. */
static void fail_sometimes(tutti_mesh *mesh, struct pipeline_shape shape, uint64_t *random, int me)
{
	enum { FAILS = 1, EVALUATES = 2 };
	static const int turns[] = {FAILS, FAILS, 0, FAILS | EVALUATES, EVALUATES,
				    0,     FAILS, 0, FAILS | EVALUATES, EVALUATES,
				    0};
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, tutti_mesh_coord(mesh, "pp"),
						     random_below(random, 30000), *random);
	tutti_pipeline *pipeline = NULL;

	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	for (size_t t = 0; pipeline && t < sizeof turns / sizeof *turns; t++) {
		int evaluated = turns[t] & EVALUATES ? 1 + (int)random_below(random, 9) : 0;
		struct place place = draw_place(random, mesh, &shape, evaluated);
		if (turns[t] & FAILS) {
			fail_once(pipeline, &stages, &place, evaluated, me == place.rank);
			continue;
		}
		CHECK(run_or_evaluate(pipeline, &stages, evaluated) == TUTTI_OK);
		stages_check_order(&stages);
	}
	tutti_pipeline_destroy(pipeline);
	stages_destroy(&stages);
}

static void run_failures(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"dp", *(const int *)arg}, {"pp", 0}};
	uint64_t random = seed; /* the same draws on all ranks */
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 2) == TUTTI_OK);
	for (int i = 0; mesh && i < whole_or(12, 4, 4); i++) {
		int s = i % 4,
		    chunks = s >= TUTTI_INTERLEAVED ? 1 + (int)random_below(&random, 3) : 1;
		struct pipeline_shape shape = {(tutti_schedule)s, tutti_mesh_size(mesh, "pp"),
					       1 + (int)random_below(&random, 9), chunks};
		fail_sometimes(mesh, shape, &random, tutti_rank(comm));
	}
	tutti_mesh_destroy(mesh);
}

static void test_a_callback_that_fails(void **state)
{
	int one = 1, two = 2;

	for (int ranks = 1; ranks <= 4; ranks++)
		assert_int_equal(ranks_as_threads(ranks, run_failures, &one), 0);
	assert_int_equal(ranks_as_threads(6, run_failures, &two), 0);
}

/* Two callbacks of different ranks fail: all ranks tell of the same one. */
static void run_two_failures(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"pp", 0}};
	struct pipeline_shape shape = {TUTTI_1F1B, 3, 6, 1};
	int me = tutti_rank(comm), line = 0, lines[3];
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, me, 100, seed);
	tutti_pipeline *pipeline = NULL;
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 1) == TUTTI_OK);
	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	stages.failing = (struct action){ACTION_FORWARD, me, me == 2 ? 0 : 2};
	stages.failing_status = me == 1 ? TUTTI_OK : TUTTI_ERR_SYSTEM;
	CHECK(tutti_pipeline_run(pipeline) == TUTTI_ERR_SYSTEM);
	CHECK(sscanf(tutti_comm_error(NULL), "On rank %d: The forward", &line) == 1);
	CHECK(line != 1);
	CHECK(tutti_all_gather(&line, lines, 1, TUTTI_I32, comm, NULL) == TUTTI_OK);
	CHECK(lines[0] == lines[1] && lines[1] == lines[2]);
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
	stages_destroy(&stages);
}

static void die(struct stages *stages, const struct action *action)
{
	const struct action *last = stages->before_arg;

	if (memcmp(action, last, sizeof *action) == 0)
		raise(SIGKILL);
}

struct death {
	int dp, evaluated; /* in an evaluation of so many micro-batches; 0: in a step */
	struct action last;
};

/* Rank 1 of 4, of two pipelines of two ranks, or of one of four. */
static void run_death(tutti_comm *comm, void *arg)
{
	const struct death *death = arg;
	int me = tutti_rank(comm), ranks = 4 / death->dp;
	const tutti_axis axes[] = {{"dp", death->dp}, {"pp", 0}};
	struct pipeline_shape shape = {TUTTI_1F1B, ranks, 6, 1};
	struct action last = death->last;
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, me % ranks, 100, seed);
	tutti_pipeline *pipeline = NULL;
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 2) == TUTTI_OK);
	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	CHECK(run_or_evaluate(pipeline, &stages, death->evaluated) == TUTTI_OK);
	stages.before = me == 1 ? die : NULL;
	stages.before_arg = &last;
	CHECK_ERROR(run_or_evaluate(pipeline, &stages, death->evaluated), TUTTI_ERR_PEER, "ank 1");
	CHECK(run_or_evaluate(pipeline, &stages, death->evaluated) != TUTTI_OK);
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
	stages_destroy(&stages);
}

static void test_a_rank_that_dies(void **state)
{
	struct death deaths[] = {{1, 0, {ACTION_BACKWARD, 1, 1}},
				 {2, 0, {ACTION_BACKWARD, 1, 1}},
				 {1, 8, {ACTION_EVALUATE, 1, 4}}};

	for (int i = 0; i < 3; i++)
		assert_int_equal(ranks_as_processes(4, run_death, &deaths[i]), 1);
}

static atomic_int returned;

static void wait_for_other(struct stages *stages, const struct action *action)
{
	while (!atomic_load(&returned))
		sched_yield();
}

/* Rank 1 is in a callback until rank 0 has given up. */
static void run_late(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"pp", 0}};
	int me = tutti_rank(comm);
	struct pipeline_shape shape = {TUTTI_GPIPE, 2, 2, 1};
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, me, 100, seed);
	tutti_pipeline *pipeline = NULL;
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 1) == TUTTI_OK);
	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	stages.before = me == 1 ? wait_for_other : NULL;
	tutti_status status = tutti_pipeline_run(pipeline);
	if (me == 0)
		CHECK_ERROR(status, TUTTI_ERR_TIMEOUT,
			    "A pipeline's gradient of micro-batch 0 did not arrive from rank 1 "
			    "within 1500 ms: is that rank still in the backward of stage 1, or in "
			    "an earlier callback?");
	else
		CHECK(status != TUTTI_OK);
	atomic_store(&returned, 1);
	CHECK(tutti_pipeline_run(pipeline) != TUTTI_OK);
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
	stages_destroy(&stages);
}

static void test_a_rank_that_is_late(void **state)
{
	assert_int_equal(ranks_with_timeout(2, 1500, run_late, NULL), 0);
}

static void run_again(struct stages *stages, const struct action *action)
{
	CHECK_ERROR(tutti_pipeline_run(stages->before_arg), TUTTI_ERR_INVALID, "in a callback");
}

static void refuse(tutti_mesh *mesh, const tutti_pipeline_config *config, tutti_status status,
		   const char *text)
{
	tutti_pipeline *pipeline = NULL;

	CHECK_ERROR(tutti_pipeline_create(&pipeline, mesh, config), status, text);
	CHECK(pipeline == NULL);
}

static void run_refusals(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"pp", 0}};
	int me = tutti_rank(comm);
	struct pipeline_shape shape = {TUTTI_ZERO_BUBBLE, 2, 2, 1};
	struct stages stages;
	const tutti_pipeline_config good = stages_create(&stages, shape, me, 100, seed);
	tutti_pipeline_config config = good;
	tutti_pipeline *pipeline = NULL;
	tutti_pipeline_stats stats;
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 1) == TUTTI_OK);
	CHECK_ERROR(tutti_pipeline_create(NULL, mesh, &good), TUTTI_ERR_INVALID,
		    "pipeline is NULL");
	refuse(NULL, &good, TUTTI_ERR_INVALID, "mesh is NULL");
	refuse(mesh, NULL, TUTTI_ERR_INVALID, "config is NULL");
	config.backward_weights = me == 1 ? NULL : good.backward_weights;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "has no backward_weights");
	config = good, config.forward = NULL;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "has no forward");
	config = good, config.backward = NULL;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "has no backward");
	config = good, config.reserved[7] = 1;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "zero-initialise");
	config = good, config.micro_batches = 0;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "not 2, 0 and 1");
	config = good, config.chunks = -1;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "not 2, 2 and -1");
	config = good, config.dtype = (tutti_dtype)99;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "dtype 99");
	config = good, config.count = SIZE_MAX / 2;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "too many");
	config = good, config.schedule = TUTTI_GPIPE, config.chunks = 2;
	refuse(mesh, &config, TUTTI_ERR_INVALID, "gpipe has one chunk");
	config = good, config.micro_batches += me;
	refuse(mesh, &config, TUTTI_ERR_MISMATCH, "rank 1 has zero_bubble with 3 micro-batches");
	config = good, config.count += (size_t)me;
	refuse(mesh, &config, TUTTI_ERR_MISMATCH, "101 elements");

	CHECK_ERROR(tutti_pipeline_run(NULL), TUTTI_ERR_INVALID, "is NULL");
	CHECK_ERROR(tutti_pipeline_stats_of(NULL, &stats), TUTTI_ERR_INVALID, "is NULL");
	CHECK(tutti_pipeline_create(&pipeline, mesh, &good) == TUTTI_OK);
	CHECK_ERROR(tutti_pipeline_stats_of(pipeline, NULL), TUTTI_ERR_INVALID, "stats is NULL");
	stages.before = run_again;
	stages.before_arg = pipeline;
	CHECK(tutti_pipeline_run(pipeline) == TUTTI_OK);
	stages_check_order(&stages);
	tutti_pipeline_destroy(pipeline);
	tutti_pipeline_destroy(NULL);
	tutti_mesh_destroy(mesh);
	stages_destroy(&stages);
}

static void forward_again(struct stages *stages, const struct action *action)
{
	CHECK_ERROR(tutti_pipeline_forward(stages->before_arg, 3), TUTTI_ERR_INVALID,
		    "in a callback");
}

static void run_evaluation_refusals(tutti_comm *comm, void *arg)
{
	int me = tutti_rank(comm);
	struct pipeline_shape shape = {TUTTI_ZERO_BUBBLE, 3, 2, 1};
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, me, 100, seed);
	tutti_pipeline *pipeline = NULL;
	tutti_mesh *mesh = NULL;

	CHECK_ERROR(tutti_pipeline_forward(NULL, 1), TUTTI_ERR_INVALID, "is NULL");
	CHECK(tutti_mesh_create(&mesh, comm, &(tutti_axis){"pp", 0}, 1) == TUTTI_OK);
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
	CHECK(run_or_evaluate(pipeline, &stages, 4) == TUTTI_OK);
	stages_check_order(&stages);
	CHECK(run_or_evaluate(pipeline, &stages, 0) == TUTTI_OK);
	stages_check_order(&stages);
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
	stages_destroy(&stages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_rank_that_dies), /* before there are threads */
		cmocka_unit_test(test_a_callback_that_fails), RANKS_TEST(run_two_failures, 3, 3),
		cmocka_unit_test(test_a_rank_that_is_late),   RANKS_TEST(run_refusals, 2, 2),
		RANKS_TEST(run_evaluation_refusals, 3, 3),
	};

	seed = random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
