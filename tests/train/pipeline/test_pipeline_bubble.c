/* slow: 15 s */
/* What would break: a pipeline whose ranks wait for each other where the schedule does not, so that
 * the bubble is larger than docs/parallel.md says. Compute is emulated without clocks: each rank
 * counts turns, its count travels with what it sends, and who needs a message goes on from the
 * larger of the two. A callback returns when all those have begun that begin before it ends in the
 * schedule. Ranks are threads. */
#include "train/pipeline/schedule/schedule.h"
#include "train/pipeline/schedule/virtual_step.h"

#include "tests/train/ranks.h"
#include "tests/whole.h"

#include <tutti/parallel.h>

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/unit.h"

/* A long message leaves its rank only when its receive is posted. */
enum { RANKS_MAX = 8, SECONDS_MAX = 20, LONG = 2100 };

struct world {
	struct pipeline_shape shape;
	struct action_times times;
	struct action_list lists[RANKS_MAX];
	struct virtual_span *spans[RANKS_MAX]; /* by the schedule */
	double schedule_time;
	size_t count;   /* of a message: its turn, and what makes it longer */
	bool is_shared; /* ranks share this memory: callbacks wait for each other */
	atomic_int begun[RANKS_MAX];
	int steps;
};

/* The tests have failed: nobody waits any more. */
static atomic_bool gave_up;

/* A rank's own. */
struct counter {
	struct world *world;
	int rank, done;
	double turn, busy;
};

/* ---- the formulas of docs/parallel.md, with times of a stage ---- */

/* Idle turns of each rank in a step; negative: the page has no formula. */
static double idle_turns(const struct pipeline_shape *s, const struct action_times *t)
{
	double ranks = s->ranks, count = s->micro_batches,
	       all = t->forward + t->inputs + t->weights;
	bool is_even = s->micro_batches % s->ranks == 0 || s->chunks == 1;

	if (s->schedule == TUTTI_ZERO_BUBBLE) {
		double gap = fmax(t->forward, t->forward + t->inputs - t->weights);
		double few = count < ranks ? (ranks - count) * fmin(t->inputs, t->weights) : 0;
		return is_even ? (ranks - 1) * gap + few : -1;
	}
	if (s->chunks > 1 && count < ranks)
		return (s->chunks * ranks + count - 1 - s->chunks * count) * all;
	return is_even ? (ranks - 1) * all : -1;
}

static int least(int a, int b)
{
	return a < b ? a : b;
}

/* Of a stage and a micro-batch. */
static int held_at_most(const struct pipeline_shape *s, int rank)
{
	int behind = s->ranks - 1 - rank, all = s->chunks * s->micro_batches;

	if (s->schedule == TUTTI_GPIPE)
		return s->micro_batches;
	if (s->schedule == TUTTI_ZERO_BUBBLE)
		return least(s->ranks, s->micro_batches) * s->chunks;
	if (s->schedule == TUTTI_1F1B || s->chunks == 1)
		return least(behind + 1, s->micro_batches);
	return least(2 * behind + (s->chunks - 1) * s->ranks + 1, all);
}

/* ---- callbacks ---- */

static double seconds_now_of_test(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int begins_before(const struct world *world, int rank, double turn)
{
	int count = 0;

	while (count < world->lists[rank].count && world->spans[rank][count].start < turn)
		count++;
	return count;
}

/* Where ranks wait for more than the schedule's messages this never ends: hence the deadline. */
static void wait_for_others(struct world *world, int rank, double turn)
{
	double deadline = seconds_now_of_test() + SECONDS_MAX;

	for (int r = 0; r < world->shape.ranks; r++) {
		int needed = begins_before(world, r, turn);
		while (atomic_load(&world->begun[r]) < needed && !atomic_load(&gave_up)) {
			sched_yield();
			if (seconds_now_of_test() < deadline)
				continue;
			atomic_store(&gave_up, true);
			fprintf(stderr,
				"%s of %d ranks, %d micro-batches, %d chunks: rank %d has begun %d "
				"actions, not %d, by turn %g of rank %d\n",
				schedule_name(world->shape.schedule), world->shape.ranks,
				world->shape.micro_batches, world->shape.chunks, r,
				atomic_load(&world->begun[r]), needed, turn, rank);
			CHECK(!"a rank waits for more than its message");
		}
	}
}

static tutti_status act(struct counter *me, enum action_kind kind, const void *in, void *out)
{
	struct world *world = me->world;
	const struct action_times *t = &world->times;
	double there = in ? *(const double *)in : 0, cost = t->forward;

	if (kind != ACTION_FORWARD)
		cost = kind == ACTION_BACKWARD_WEIGHTS  ? t->weights
		       : kind == ACTION_BACKWARD_INPUTS ? t->inputs
							: t->inputs + t->weights;
	CHECK(world->lists[me->rank].at[me->done].kind == kind);
	me->turn = fmax(me->turn, there);
	CHECK(me->turn == world->spans[me->rank][me->done].start);
	me->done++;
	me->turn += cost;
	me->busy += cost;
	atomic_store(&world->begun[me->rank], me->done);
	if (world->is_shared)
		wait_for_others(world, me->rank, me->turn);
	if (out)
		*(double *)out = me->turn;
	return TUTTI_OK;
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	return act(arg, ACTION_FORWARD, in, out);
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct counter *me = arg;
	bool splits = me->world->shape.schedule == TUTTI_ZERO_BUBBLE;

	return act(me, splits ? ACTION_BACKWARD_INPUTS : ACTION_BACKWARD, out_grad, in_grad);
}

static tutti_status backward_weights(void *arg, int stage, int m)
{
	return act(arg, ACTION_BACKWARD_WEIGHTS, NULL, NULL);
}

/* ---- a step ---- */

static void check_step(const struct counter *me, const tutti_pipeline *pipeline, tutti_comm *comm)
{
	struct world *world = me->world;
	const struct pipeline_shape *shape = &world->shape;
	double end = me->turn, formula = idle_turns(shape, &world->times);
	int peak = held_at_most(shape, me->rank);
	tutti_pipeline_stats stats;

	CHECK(tutti_all_reduce(&end, &end, 1, TUTTI_F64, TUTTI_MAX, comm, NULL) == TUTTI_OK);
	double idle = end - me->busy;
	/* Exactly, not within 5 %: turns are whole numbers. */
	CHECK(formula < 0 || idle == formula);
	CHECK(end == world->schedule_time);
	CHECK(tutti_pipeline_stats_of(pipeline, &stats) == TUTTI_OK);
	CHECK(stats.peak_in_flight == peak ||
	      (shape->schedule == TUTTI_INTERLEAVED && shape->micro_batches % shape->ranks &&
	       stats.peak_in_flight < peak));
	if (world->times.forward == world->times.inputs &&
	    world->times.inputs == world->times.weights)
		CHECK(fabs(stats.bubble_expected - idle / end) < 1e-12);
}

static void run_steps(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"pp", 0}};
	struct world *world = arg;
	struct counter me = {.world = world, .rank = tutti_rank(comm)};
	tutti_pipeline_config config = {.schedule = world->shape.schedule,
					.micro_batches = world->shape.micro_batches,
					.chunks = world->shape.chunks,
					.count = world->count,
					.dtype = TUTTI_F64,
					.arg = &me,
					.forward = forward,
					.backward = backward,
					.backward_weights = backward_weights};
	tutti_pipeline *pipeline = NULL;
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 1) == TUTTI_OK);
	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	for (int step = 0; pipeline && step < world->steps; step++) {
		me.done = 0;
		me.turn = me.busy = 0;
		atomic_store(&world->begun[me.rank], 0);
		CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
		CHECK(tutti_pipeline_run(pipeline) == TUTTI_OK);
		CHECK(me.done == world->lists[me.rank].count);
		check_step(&me, pipeline, comm);
	}
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
}

/* What the schedule has: when each action begins if messages take no time. */
static void world_make(struct world *world, struct pipeline_shape shape, struct action_times times)
{
	struct virtual_rank ranks[RANKS_MAX];

	*world = (struct world){.shape = shape, .times = times, .count = LONG, .steps = 1};
	for (int r = 0; r < shape.ranks; r++) {
		world->lists[r] = schedule_list(&shape, r);
		assert_non_null(world->lists[r].at);
		world->spans[r] = calloc((size_t)world->lists[r].count, sizeof *world->spans[r]);
		assert_non_null(world->spans[r]);
	}
	struct virtual_step step =
		virtual_step_run(&shape, world->lists, NULL, &times, 1, ranks, world->spans);
	assert_true(step.has_memory && step.ends);
	world->schedule_time = step.time;
}

static void world_drop(struct world *world)
{
	for (int r = 0; r < world->shape.ranks; r++) {
		free(world->lists[r].at);
		free(world->spans[r]);
	}
}

static void run_shape(struct pipeline_shape shape, struct action_times times)
{
	struct world world;

	world_make(&world, shape, times);
	world.is_shared = true;
	world.steps = shape.ranks < 5 ? 2 : 1;
	int failed = ranks_as_threads(shape.ranks, run_steps, &world);
	if (failed)
		print_message("%s of %d ranks, %d micro-batches, %d chunks, times %g %g %g\n",
			      schedule_name(shape.schedule), shape.ranks, shape.micro_batches,
			      shape.chunks, times.forward, times.inputs, times.weights);
	assert_int_equal(failed, 0);
	world_drop(&world);
}

static const struct action_times some_times[] = {{1, 1, 1, 0}, {2, 3, 1, 0}, {3, 2, 4, 0}};
enum { TIMES = sizeof some_times / sizeof *some_times };

static void test_idle_turns(void **state)
{
	int turn = 0;

	for (int ranks = 1; ranks <= whole_or(8, 5, 4); ranks++) {
		const int counts[] = {1, ranks - 1, ranks, ranks + 1, 2 * ranks + 1, 3 * ranks};
		for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
			for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE; s++)
				for (int v = 1; v <= (s < TUTTI_INTERLEAVED ? 1 : 3); v++)
					if (counts[i] > 0 &&
					    (ranks <= long_or(8, 3, 3, 3) || i % 3 == 2))
						run_shape((struct pipeline_shape){(tutti_schedule)s,
										  ranks, counts[i],
										  v},
							  some_times[turn++ % TIMES]);
	}
}

/* All times of the page, and the schedules that it compares, at one number of ranks. */
static void test_all_times(void **state)
{
	for (int t = 0; t < TIMES; t++)
		for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE; s++)
			for (int v = 1; v <= (s < TUTTI_INTERLEAVED ? 1 : 2); v++)
				run_shape((struct pipeline_shape){(tutti_schedule)s, 4, 8, v},
					  some_times[t]);
}

/* Ranks that share no memory count alone. */
static void test_processes_on_nodes(void **state)
{
	const int nodes[] = {0, 0, 1, 1};

	for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE; s++) {
		struct world world;
		world_make(&world,
			   (struct pipeline_shape){(tutti_schedule)s, 4, 9,
						   s < TUTTI_INTERLEAVED ? 1 : 2},
			   some_times[2]);
		assert_int_equal(ranks_on_nodes(4, nodes, run_steps, &world), 0);
		world_drop(&world);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_on_nodes), /* before there are threads */
		cmocka_unit_test(test_idle_turns),
		cmocka_unit_test(test_all_times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
