/* slow: 12 s */
/* What would break: what passes between the stages of a pipeline, in every schedule, in steps and
 * in evaluations of another number of micro-batches: an activation or gradient of another
 * micro-batch, buffers that are used again too early, callbacks in another order, and what the
 * statistics say. Ranks are threads. */
#include "tests/train/pipeline/stages.h"

#include "tests/random.h"
#include "tests/train/ranks.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

static uint64_t seed;

static const tutti_axis pp_only[] = {{"pp", 0}};

static void check_stats(const tutti_pipeline *pipeline, const struct pipeline_shape *shape,
			int rank, size_t bytes, int steps)
{
	const struct action_times equal = {1, 1, 1, 0};
	double time = schedule_step_time(shape, &equal);
	tutti_pipeline_stats stats;
	int peak = schedule_peak(shape, rank);

	CHECK(tutti_pipeline_stats_of(pipeline, &stats) == TUTTI_OK);
	CHECK(stats.sent_bytes ==
	      (uint64_t)schedule_messages(shape, rank) * bytes * (uint64_t)steps);
	CHECK(stats.peak_in_flight == peak ||
	      (shape->schedule == TUTTI_INTERLEAVED && shape->micro_batches % shape->ranks &&
	       stats.peak_in_flight < peak));
	CHECK(stats.busy_seconds > 0 && stats.busy_seconds < stats.step_seconds);
	CHECK(stats.bubble > 0 && stats.bubble < 1);
	if (time > 0)
		CHECK(stats.bubble_expected == 1 - schedule_busy_time(shape, &equal) / time);
	CHECK(stats.bubble_expected >= 0 && stats.bubble_expected < 1);
}

/* Only sent_bytes may grow. */
static void check_growth(const tutti_pipeline *pipeline, const struct stages *stages,
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

static void evaluate(tutti_pipeline *pipeline, struct stages *stages, int micro_batches)
{
	tutti_pipeline_stats before;

	stages_evaluate(stages, micro_batches);
	CHECK(tutti_pipeline_stats_of(pipeline, &before) == TUTTI_OK);
	CHECK(tutti_pipeline_forward(pipeline, micro_batches) == TUTTI_OK);
	stages_check_order(stages);
	check_growth(pipeline, stages, &before);
}

/* Two steps, without evaluations or with some of so many micro-batches around them. */
static void run_shape(tutti_mesh *mesh, struct pipeline_shape shape, int evaluated, size_t bytes,
		      uint64_t pauses)
{
	int rank = tutti_mesh_coord(mesh, "pp");
	struct stages stages;
	tutti_pipeline_config config = stages_create(&stages, shape, rank, bytes, pauses);
	tutti_pipeline *pipeline = NULL;

	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	for (int step = 1; pipeline && step <= 2; step++) {
		if (evaluated > 0)
			evaluate(pipeline, &stages, evaluated);
		if (evaluated > 0 && step == 2)
			evaluate(pipeline, &stages, 1);
		stages_evaluate(&stages, 0);
		CHECK(tutti_pipeline_run(pipeline) == TUTTI_OK);
		stages_check_order(&stages);
		if (evaluated == 0)
			check_stats(pipeline, &shape, rank, bytes, step);
	}
	tutti_pipeline_destroy(pipeline);
	stages_destroy(&stages);
}

static bool is_of_interest(int ranks, int count)
{
	return ranks <= whole_or(3, 2, 2) || count <= 1 || count == ranks || count == ranks + 1 ||
	       count == 2 * ranks + 1;
}

static void run_all_shapes(tutti_comm *comm, void *arg)
{
	static const size_t sizes[] = {1, 64, 37, 0, 40000};
	int ranks = tutti_size(comm);
	const int evaluated[] = {ranks + 1, 3 * ranks, 2, ranks};
	uint64_t pauses = seed + (uint64_t)tutti_rank(comm);
	tutti_mesh *mesh = NULL;
	unsigned turn = 0;

	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	for (int count = 1; mesh && count <= 2 * ranks + 1; count++)
		for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE; s++)
			for (int chunks = 1; chunks <= (s < TUTTI_INTERLEAVED ? 1 : 3); chunks++) {
				struct pipeline_shape shape = {(tutti_schedule)s, ranks, count,
							       chunks};
				if (!is_of_interest(ranks, count))
					continue;
				run_shape(mesh, shape, 0, sizes[turn % 5], pauses++);
				if (count == 1 || count == ranks || count == 2 * ranks + 1)
					run_shape(mesh, shape, evaluated[turn % 4], sizes[turn % 5],
						  pauses++);
				turn++;
			}
	tutti_mesh_destroy(mesh);
}

static void test_every_schedule(void **state)
{
	for (int ranks = 1; ranks <= whole_or(8, 5, 4); ranks++)
		assert_int_equal(ranks_as_threads(ranks, run_all_shapes, NULL), 0);
}

/* More micro-batches than receives may be posted, in a step or an evaluation; run on nodes with
 * long messages, too. */
static void run_many(tutti_comm *comm, void *arg)
{
	int ranks = tutti_size(comm);
	uint64_t pauses = seed + (uint64_t)tutti_rank(comm);
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	for (int s = TUTTI_GPIPE; mesh && s <= TUTTI_ZERO_BUBBLE; s++) {
		int chunks = s < TUTTI_INTERLEAVED ? 1 : 2;
		struct pipeline_shape shape = {(tutti_schedule)s, ranks, 70, chunks};
		run_shape(mesh, shape, 0, *(const size_t *)arg, pauses);
		shape.micro_batches = 1;
		run_shape(mesh, shape, 70, *(const size_t *)arg, pauses);
	}
	tutti_mesh_destroy(mesh);
}

static void test_many_micro_batches(void **state)
{
	size_t bytes = 100;

	assert_int_equal(ranks_as_threads(2, run_many, &bytes), 0);
}

static void test_processes_on_nodes(void **state)
{
	const int nodes[] = {0, 0, 1, 1};
	size_t bytes = 30000;

	assert_int_equal(ranks_on_nodes(4, nodes, run_many, &bytes), 0);
}

static tutti_status twice(void *arg, int stage, int m, const void *in, void *out)
{
	for (int i = 0; stage == 0 && i < 5; i++)
		((float *)out)[i] = (float)(m + i);
	for (int i = 0; in && out && i < 5; i++)
		((float *)out)[i] = 2 * ((const float *)in)[i] + (float)m;
	for (int i = 0; !out && i < 5; i++)
		CHECK(((const float *)in)[i] == (float)(2 * (m + i) + m));
	return TUTTI_OK;
}

static tutti_status twice_back(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	float *sum = arg;

	for (int i = 0; in_grad && i < 5; i++)
		((float *)in_grad)[i] = out_grad ? 2 * ((const float *)out_grad)[i] : (float)m;
	for (int i = 0; !in_grad && i < 5; i++)
		*sum += ((const float *)out_grad)[i];
	return TUTTI_OK;
}

/* On a mesh with two pipelines: what one sends does not come to the other, and the caller's own
 * messages meet none of theirs. */
static void run_on_mesh(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"pp", 3}, {"dp", 2}};
	tutti_mesh *mesh = NULL;
	tutti_pipeline *pipeline = NULL;
	float sum = 0;
	tutti_pipeline_config config = {.schedule = TUTTI_1F1B,
					.micro_batches = 4,
					.count = 5,
					.dtype = TUTTI_F32,
					.arg = &sum,
					.forward = twice,
					.backward = twice_back};
	int token = tutti_rank(comm);

	CHECK(tutti_mesh_create(&mesh, comm, axes, 2) == TUTTI_OK);
	CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
	tutti_comm *line = tutti_mesh_comm(mesh, "pp");
	int rank = tutti_rank(line);
	tutti_work *work = NULL;
	tutti_call call = {.work = &work};
	if (rank == 1)
		CHECK(tutti_recv(&token, 1, TUTTI_I32, 0, line, &call) == TUTTI_OK);
	CHECK(tutti_pipeline_run(pipeline) == TUTTI_OK);
	if (rank == 0)
		CHECK(tutti_send(&token, 1, TUTTI_I32, 1, line, NULL) == TUTTI_OK);
	CHECK(tutti_work_wait(&work, 0) == TUTTI_OK);
	CHECK(token == (rank == 1 ? tutti_mesh_coord(mesh, "dp") : tutti_rank(comm)));
	CHECK(sum == (rank == 0 ? 2 * 5 * (0 + 1 + 2 + 3) : 0));
	tutti_pipeline_destroy(pipeline);
	tutti_mesh_destroy(mesh);
}

/* Each type's width, and a count that is not even. */
static void run_dtypes(tutti_comm *comm, void *arg)
{
	static const size_t widths[] = {4, 8, 2, 2, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8};
	struct pipeline_shape shape = {TUTTI_1F1B, 2, 3, 1};
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, pp_only, 1) == TUTTI_OK);
	for (int d = TUTTI_F32; d <= TUTTI_U64; d++) {
		struct stages stages;
		tutti_pipeline_config config =
			stages_create(&stages, shape, tutti_rank(comm), 13 * widths[d], seed);
		tutti_pipeline *pipeline = NULL;
		config.count = 13;
		config.dtype = (tutti_dtype)d;
		CHECK(tutti_pipeline_create(&pipeline, mesh, &config) == TUTTI_OK);
		CHECK(tutti_pipeline_run(pipeline) == TUTTI_OK);
		stages_check_order(&stages);
		check_stats(pipeline, &shape, tutti_rank(comm), 13 * widths[d], 1);
		tutti_pipeline_destroy(pipeline);
		stages_destroy(&stages);
	}
	tutti_mesh_destroy(mesh);
}

/* A mesh without "pp": all stages are here. */
static void run_without_axis(tutti_comm *comm, void *arg)
{
	const tutti_axis axes[] = {{"dp", 0}};
	struct pipeline_shape shape = {TUTTI_ZERO_BUBBLE, 1, 4, 3};
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 1) == TUTTI_OK);
	run_shape(mesh, shape, 0, 100, seed);
	tutti_mesh_destroy(mesh);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_processes_on_nodes), /* before there are threads */
		cmocka_unit_test(test_every_schedule),
		cmocka_unit_test(test_many_micro_batches),
		RANKS_TEST(run_on_mesh, 6, 6),
		RANKS_TEST(run_dtypes, 2, 2),
		RANKS_TEST(run_without_axis, 2, 2),
	};

	seed = random_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
