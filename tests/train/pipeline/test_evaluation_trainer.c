/* What would break: an evaluation through a pipeline with a trainer: other values than those of one
 * rank, with any strategy, before, between and after steps; a step that is another one because of
 * it; ranks with other data that wait where a callback fails. */
#include "tests/train/pipeline/toy_pipeline.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { STEPS = 2, MICRO_BATCHES = 4, EVALUATED = 5, COUNT = 5, EVALUATIONS = STEPS + 1 };
enum { VALUES = MESH_PARAMS * MESH_ELEMENTS };

static const struct {
	const char *axes;
	int ranks, chunks;
	tutti_schedule schedule;
} pipelines[] = {{"pp=1", 1, 2, TUTTI_INTERLEAVED},      {"pp=2", 2, 1, TUTTI_GPIPE},
		 {"pp=2", 2, 2, TUTTI_ZERO_BUBBLE},      {"pp=4", 4, 1, TUTTI_1F1B},
		 {"dp=2,pp=2", 4, 2, TUTTI_INTERLEAVED}, {"pp=2,dp=2", 4, 1, TUTTI_ZERO_BUBBLE},
		 {"pp=4,dp=2", 8, 1, TUTTI_1F1B}};
enum { PIPELINES = sizeof pipelines / sizeof *pipelines };

struct run {
	int which; /* -1: one rank without a pipeline */
	tutti_strategy strategy;
	int failing_rank; /* in an evaluation; -1: none */
	float losses[EVALUATIONS][EVALUATED][COUNT], values[VALUES];
};

/* A rank's own. */
struct own {
	struct run *run;
	struct toy_pipeline p;
	int batch, rank;
	float (*losses)[COUNT]; /* of the evaluation that runs; NULL: a step runs */
};

/* What a unit makes of its input depends on its values. */
static void forward_unit(struct own *own, int unit, float *x)
{
	static const int params[MESH_UNITS] = {1, 4, 6, 7};

	CHECK(tutti_forward_begin(own->p.toy.trainer, unit) == TUTTI_OK);
	const float *values = tutti_param_data(own->p.toy.trainer, params[unit]);
	CHECK(values != NULL);
	for (int i = 0; values && i < COUNT; i++)
		x[i] = 0.5f * x[i] + values[i];
	CHECK(tutti_forward_end(own->p.toy.trainer, unit) == TUTTI_OK);
}

static void first_input(float *x, int m)
{
	for (int i = 0; i < COUNT; i++)
		x[i] = (float)(m * COUNT + i);
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	struct own *own = arg;
	float x[COUNT];

	if (own->losses && own->rank == own->run->failing_rank && m == 2)
		return tutti_set_error(TUTTI_ERR_SYSTEM, "no more");
	if (own->run->failing_rank >= 0)
		return TUTTI_OK; /* where a callback fails hooks may, too */
	if (in)
		memcpy(x, in, sizeof x);
	else
		first_input(x, m);
	for (int u = 0; u < MESH_UNITS; u++)
		if (toy_pipeline_has(&own->p, stage, u))
			forward_unit(own, u, x);
	if (out)
		memcpy(out, x, sizeof x);
	else if (own->losses)
		memcpy(own->losses[m], x, sizeof x);
	return TUTTI_OK;
}

static tutti_status weights(void *arg, int stage, int m)
{
	struct own *own = arg;

	toy_pipeline_backward(&own->p, stage, own->batch, m);
	return TUTTI_OK;
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct own *own = arg;

	if (in_grad)
		memset(in_grad, 0, COUNT * sizeof(float));
	if (pipelines[own->run->which].schedule == TUTTI_ZERO_BUBBLE)
		return TUTTI_OK;
	return weights(arg, stage, m);
}

static void make(struct own *own, tutti_comm *comm, struct run *run)
{
	int which = run->which;
	const tutti_train_config config = {
		.strategy = run->strategy, .deterministic = 1, .seed = 7};

	*own = (struct own){.run = run, .rank = tutti_rank(comm)};
	tutti_pipeline_config stages = {.chunks = 1};
	if (which >= 0)
		stages = (tutti_pipeline_config){.schedule = pipelines[which].schedule,
						 .micro_batches = MICRO_BATCHES,
						 .chunks = pipelines[which].chunks,
						 .count = COUNT,
						 .arg = own,
						 .forward = forward,
						 .backward = backward,
						 .backward_weights = weights};
	toy_pipeline_create(&own->p, comm, which < 0 ? "" : pipelines[which].axes, &config,
			    &stages);
}

/* On the last stage losses are there. */
static void evaluate(struct own *own, float losses[EVALUATED][COUNT])
{
	CHECK(tutti_micro_batch(own->p.toy.trainer, TUTTI_PASS_EVAL, 1, NULL) == TUTTI_OK);
	own->losses = losses;
	if (own->p.pipeline)
		CHECK(tutti_pipeline_forward(own->p.pipeline, EVALUATED) == TUTTI_OK);
	for (int m = 0; !own->p.pipeline && m < EVALUATED; m++)
		CHECK(forward(own, 0, m, NULL, NULL) == TUTTI_OK);
	own->losses = NULL;
}

static void train(struct own *own)
{
	if (own->p.pipeline) {
		toy_pipeline_step(&own->p, own->batch);
		return;
	}
	mesh_toy_backward(&own->p.toy, own->batch, MICRO_BATCHES);
	CHECK(tutti_step(own->p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
}

static void train_and_evaluate(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	float losses[EVALUATIONS][EVALUATED][COUNT] = {{{0}}}, values[VALUES];
	int size = tutti_size(comm), is_last;
	struct own own;

	make(&own, comm, run);
	for (own.batch = 0; own.batch < STEPS; own.batch++) {
		evaluate(&own, losses[own.batch]);
		train(&own);
	}
	evaluate(&own, losses[STEPS]);
	mesh_toy_read(&own.p.toy, values);
	is_last = tutti_mesh_coord(own.p.toy.mesh, "pp") ==
		  (own.p.stages - 1) % tutti_mesh_size(own.p.toy.mesh, "pp");
	if (is_last && tutti_rank(comm) == size - 1)
		memcpy(run->losses, losses, sizeof losses);
	if (tutti_rank(comm) == 0)
		memcpy(run->values, values, sizeof values);
	toy_pipeline_destroy(&own.p);
}

static void test_as_one_rank(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2,
						    TUTTI_FSDP};
	struct run one = {.which = -1, .failing_rank = -1};

	assert_int_equal(ranks_as_threads(1, train_and_evaluate, &one), 0);
	assert_true(memcmp(one.losses[0], one.losses[1], sizeof one.losses[0]) != 0);
	for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
		for (int i = 0; i < PIPELINES; i++) {
			struct run run = {
				.which = i, .strategy = strategies[s], .failing_rank = -1};
			print_message("%s, schedule %d, strategy %d\n", pipelines[i].axes,
				      (int)pipelines[i].schedule, (int)run.strategy);
			assert_int_equal(
				ranks_as_threads(pipelines[i].ranks, train_and_evaluate, &run), 0);
			assert_memory_equal(run.losses, one.losses, sizeof one.losses);
			assert_memory_equal(run.values, one.values, sizeof one.values);
		}
}

/* Outside of an evaluation, and in a step, which goes on. */
static void too_early(tutti_comm *comm, void *arg)
{
	float losses[EVALUATED][COUNT];
	struct own own;

	make(&own, comm, arg);
	CHECK_ERROR(tutti_pipeline_forward(own.p.pipeline, 3), TUTTI_ERR_INVALID,
		    "TUTTI_PASS_EVAL first");
	CHECK(tutti_micro_batch(own.p.toy.trainer, TUTTI_PASS_LAST, mesh_toy_items(&own.p.toy, 0),
				NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_pipeline_forward(own.p.pipeline, 3), TUTTI_ERR_INVALID,
		    "TUTTI_PASS_EVAL first");
	CHECK(tutti_pipeline_run(own.p.pipeline) == TUTTI_OK);
	CHECK(tutti_step(own.p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	evaluate(&own, losses);
	toy_pipeline_destroy(&own.p);
}

static void test_too_early(void **state)
{
	struct run run = {.which = 5, .strategy = TUTTI_FSDP, .failing_rank = -1};

	assert_int_equal(ranks_with_timeout(4, 60000, too_early, &run), 0);
}

static void fail_once(tutti_comm *comm, void *arg)
{
	float losses[EVALUATED][COUNT];
	struct own own;

	make(&own, comm, arg);
	CHECK(tutti_micro_batch(own.p.toy.trainer, TUTTI_PASS_EVAL, 1, NULL) == TUTTI_OK);
	own.losses = losses;
	CHECK_ERROR(tutti_pipeline_forward(own.p.pipeline, EVALUATED), TUTTI_ERR_SYSTEM,
		    "On rank 3: The forward of stage 1, micro-batch 2, failed: no more");
	toy_pipeline_destroy(&own.p);
}

static void test_failure(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_FSDP};

	for (size_t s = 0; s < 2; s++) {
		struct run run = {.which = 5, .strategy = strategies[s], .failing_rank = 3};
		assert_int_equal(ranks_with_timeout(4, 60000, fail_once, &run), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_one_rank),
		cmocka_unit_test(test_too_early),
		cmocka_unit_test(test_failure),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
