/* A pipeline with a trainer: the schedules, with every strategy, must end with the bits of one
 * rank, and so must evaluations before, between and after steps, which change no step; reductions
 * begin with a stage's last backward and not before; a trainer holds the bytes that were estimated;
 * a callback that fails on one rank ends the step or evaluation on ranks with other data, too. */
#include "tests/train/pipeline/toy_pipeline.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/base/base.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { STEPS = 2, MICRO_BATCHES = 4, VALUES = MESH_PARAMS * MESH_ELEMENTS, COUNT = 5 };
enum { EVALUATED = 5, EVALUATIONS = STEPS + 1 }; /* micro-batches; how often */

static const struct {
	const char *axes;
	int ranks, chunks;
	tutti_schedule schedule;
} pipelines[] = {{"pp=1", 1, 1, TUTTI_1F1B},        {"pp=1", 1, 2, TUTTI_INTERLEAVED},
		 {"pp=2", 2, 1, TUTTI_GPIPE},       {"pp=2", 2, 1, TUTTI_1F1B},
		 {"pp=2", 2, 2, TUTTI_INTERLEAVED}, {"pp=2", 2, 1, TUTTI_ZERO_BUBBLE},
		 {"pp=2", 2, 2, TUTTI_ZERO_BUBBLE}, {"pp=4", 4, 1, TUTTI_1F1B},
		 {"pp=4", 4, 1, TUTTI_ZERO_BUBBLE}, {"dp=2,pp=2", 4, 2, TUTTI_INTERLEAVED},
		 {"pp=2,dp=2", 4, 1, TUTTI_1F1B},   {"pp=2,dp=2", 4, 1, TUTTI_ZERO_BUBBLE},
		 {"pp=4,dp=2", 8, 1, TUTTI_1F1B},   {"pp=2,dp=2,tp=2", 8, 2, TUTTI_ZERO_BUBBLE}};
enum { PIPELINES = sizeof pipelines / sizeof *pipelines, SHARDED = 9, IN_LINES = 10, SPLIT = 11 };

struct run {
	int which; /* -1: one rank without a pipeline */
	tutti_strategy strategy;
	int is_any_order; /* of additions; else deterministic, for the bits */
	bool evaluates;
	size_t limit;     /* of memory; 0: none */
	int failing_rank; /* in micro-batch 2: the forward of an evaluation or a step's backward */
	/* Of the last stage, and of rank 0. */
	float losses[EVALUATIONS][EVALUATED][COUNT], values[VALUES];
};

/* A rank's own. */
struct own {
	struct run *run;
	struct toy_pipeline p;
	int batch, rank;
	bool is_evaluation;
	float (*losses)[COUNT]; /* of what runs; where losses are not looked at NULL */
};

/* Where a callback fails hooks may, too. */
static tutti_status bare_hooks(const struct own *own, int stage,
			       tutti_status (*hooks)(tutti_trainer *, int))
{
	for (int u = 0; u < MESH_UNITS; u++)
		if (toy_pipeline_has(&own->p, stage, u))
			TRY(hooks(own->p.toy.trainer, u));
	return TUTTI_OK;
}

/* What a unit makes of its input depends on its values. */
static void forward_unit(struct own *own, int unit, float *x)
{
	static const int params[MESH_UNITS] = {1, 4, 5, 7};

	CHECK(tutti_forward_begin(own->p.toy.trainer, unit) == TUTTI_OK);
	const float *values = tutti_param_data(own->p.toy.trainer, params[unit]);
	CHECK(values != NULL);
	for (int i = 0; values && i < COUNT; i++)
		x[i] = 0.5f * x[i] + values[i];
	CHECK(tutti_forward_end(own->p.toy.trainer, unit) == TUTTI_OK);
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	struct own *own = arg;
	float x[COUNT];

	if (own->is_evaluation && own->rank == own->run->failing_rank && m == 2)
		return tutti_set_error(TUTTI_ERR_SYSTEM, "no more");
	if (own->run->failing_rank >= 0)
		return own->is_evaluation ? TUTTI_OK : bare_hooks(own, stage, unit_forward);
	for (int i = 0; i < COUNT; i++)
		x[i] = in ? ((const float *)in)[i] : (float)(m * COUNT + i);
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

	if (own->run->failing_rank >= 0)
		return bare_hooks(own, stage, unit_backward);
	toy_pipeline_backward(&own->p, stage, own->batch, m);
	return TUTTI_OK;
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct own *own = arg;

	if (in_grad)
		memset(in_grad, 0, COUNT * sizeof(float));
	if (own->rank == own->run->failing_rank && m == 2)
		return tutti_set_error(TUTTI_ERR_SYSTEM, "no more");
	if (pipelines[own->run->which].schedule == TUTTI_ZERO_BUBBLE)
		return TUTTI_OK;
	return weights(arg, stage, m);
}

static tutti_train_config config_of(const struct run *run)
{
	return (tutti_train_config){.strategy = run->strategy,
				    .deterministic = !run->is_any_order,
				    .memory_limit = run->limit,
				    .seed = 7};
}

static void make(struct own *own, tutti_comm *comm, struct run *run)
{
	int which = run->which;
	tutti_train_config config = config_of(run);
	tutti_pipeline_config stages = {.chunks = 1};

	*own = (struct own){.run = run, .rank = tutti_rank(comm)};
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

static void begin(struct own *own, tutti_pass pass)
{
	own->is_evaluation = pass == TUTTI_PASS_EVAL;
	CHECK(tutti_micro_batch(own->p.toy.trainer, pass, mesh_toy_items(&own->p.toy, own->batch),
				NULL) == TUTTI_OK);
}

static void evaluate(struct own *own, float losses[EVALUATED][COUNT])
{
	begin(own, TUTTI_PASS_EVAL);
	own->losses = losses;
	if (own->p.pipeline)
		CHECK(tutti_pipeline_forward(own->p.pipeline, EVALUATED) == TUTTI_OK);
	for (int m = 0; !own->p.pipeline && m < EVALUATED; m++)
		CHECK(forward(own, 0, m, NULL, NULL) == TUTTI_OK);
	own->is_evaluation = false;
	own->losses = NULL;
}

static void run_step(struct own *own)
{
	if (own->p.pipeline) {
		toy_pipeline_step(&own->p, own->batch);
		return;
	}
	mesh_toy_backward(&own->p.toy, own->batch, MICRO_BATCHES);
	CHECK(tutti_step(own->p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
}

static void run_steps(struct own *own)
{
	for (own->batch = 0; own->batch < STEPS; own->batch++)
		run_step(own);
}

/* A step has the losses that an evaluation before it has. */
static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	float losses[EVALUATIONS][EVALUATED][COUNT] = {{{0}}}, values[VALUES];
	struct own own;

	make(&own, comm, run);
	for (own.batch = 0; own.batch < STEPS; own.batch++) {
		if (run->evaluates)
			evaluate(&own, losses[own.batch]);
		else
			own.losses = losses[own.batch];
		run_step(&own);
	}
	own.losses = NULL;
	if (run->evaluates)
		evaluate(&own, losses[STEPS]);
	mesh_toy_read(&own.p.toy, values);
	bool is_last = tutti_mesh_coord(own.p.toy.mesh, "pp") ==
		       (own.p.stages - 1) % tutti_mesh_size(own.p.toy.mesh, "pp");
	if (is_last && own.rank == tutti_size(comm) - 1)
		memcpy(run->losses, losses, sizeof losses);
	if (own.rank == 0)
		memcpy(run->values, values, sizeof values);
	toy_pipeline_destroy(&own.p);
}

static void check_losses(const struct run *run, const struct run *one)
{
	for (int batch = 0; batch < STEPS && !run->evaluates; batch++)
		assert_memory_equal(run->losses[batch], one->losses[batch],
				    MICRO_BATCHES * sizeof *run->losses[batch]);
	if (run->evaluates)
		assert_memory_equal(run->losses, one->losses, sizeof one->losses);
}

static void test_as_one_rank(void **state)
{
	struct run one = {.which = -1, .evaluates = true, .failing_rank = -1};

	assert_int_equal(ranks_as_threads(1, train, &one), 0);
	assert_true(memcmp(one.losses[0], one.losses[1], sizeof one.losses[0]) != 0);
	for (tutti_strategy s = TUTTI_DDP; s <= TUTTI_FSDP; s++)
		for (int i = 0; i < 2 * PIPELINES; i++) {
			struct run run = {.which = i / 2,
					  .strategy = s,
					  .evaluates = i % 2,
					  .failing_rank = -1};
			print_message("%s, schedule %d, %d chunks, strategy %d\n",
				      pipelines[i / 2].axes, (int)pipelines[i / 2].schedule,
				      pipelines[i / 2].chunks, (int)s);
			assert_int_equal(ranks_as_threads(pipelines[i / 2].ranks, train, &run), 0);
			check_losses(&run, &one);
			assert_memory_equal(run.values, one.values, sizeof one.values);
		}
}

/* The first rank of each stage's data: reductions come with the last backward of a stage alone. */
static void count(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_stats before, after;
	struct own own;

	make(&own, comm, run);
	begin(&own, TUTTI_PASS_LAST);
	CHECK(tutti_trainer_stats(own.p.toy.trainer, &before) == TUTTI_OK);
	CHECK(tutti_pipeline_run(own.p.pipeline) == TUTTI_OK);
	CHECK(tutti_trainer_stats(own.p.toy.trainer, &after) == TUTTI_OK);
	/* Each bucket went once, before tutti_step. */
	CHECK(after.collectives > before.collectives);
	uint64_t in_run = after.sent_grad_bytes - before.sent_grad_bytes;
	CHECK(in_run > 0);
	CHECK(tutti_step(own.p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	CHECK(tutti_trainer_stats(own.p.toy.trainer, &before) == TUTTI_OK);
	/* What comes with the step are sums of the tied parameter between stages. */
	size_t tied = (mesh_toy_count(0) + mesh_toy_count(9) + mesh_toy_count(13)) * sizeof(float);
	CHECK(before.sent_grad_bytes - after.sent_grad_bytes ==
	      (tutti_mesh_size(own.p.toy.mesh, "pp") > 1 ? tied : 0));
	toy_pipeline_destroy(&own.p);
}

static void test_reduced_in_the_run(void **state)
{
	struct run run = {.which = IN_LINES, .strategy = TUTTI_DDP, .failing_rank = -1};

	assert_int_equal(ranks_as_threads(4, count, &run), 0);
}

static size_t sum_of(const tutti_train_stats *stats)
{
	return stats->param_bytes + stats->grad_bytes + stats->optimizer_bytes +
	       stats->gathered_peak_bytes;
}

static size_t estimate_of(const struct run *run)
{
	const tutti_train_config config = config_of(run);
	struct mesh_text mesh;
	tutti_train_stats stats = {0};
	int ranks = 1;

	mesh_text_read(&mesh, pipelines[run->which].axes);
	for (int i = 0; i < mesh.count; i++)
		ranks = strcmp(mesh.axes[i].name, "pp") == 0 ? mesh.axes[i].size : ranks;
	tutti_model *model = mesh_toy_register(ranks * pipelines[run->which].chunks);
	CHECK(tutti_memory_estimate_on(model, mesh.axes, mesh.count, &config, &stats) == TUTTI_OK);
	tutti_model_destroy(model);
	return sum_of(&stats);
}

/* The estimate suffices, and the rank with most holds all of it. One byte less is refused before
 * anything is allocated. */
static void limit(tutti_comm *comm, void *arg)
{
	struct run run = *(const struct run *)arg;
	size_t estimate = estimate_of(&run);
	tutti_train_stats stats;
	struct own own;

	run.limit = estimate - 1;
	tutti_train_config config = config_of(&run);
	struct mesh_toy refused = {0};
	CHECK_ERROR(mesh_toy_try_chunks(&refused, comm, pipelines[run.which].axes,
					pipelines[run.which].chunks, &config),
		    TUTTI_ERR_MEMORY, "This model needs");
	mesh_toy_destroy(&refused);
	run.limit = estimate;
	make(&own, comm, &run);
	run_steps(&own);
	CHECK(tutti_trainer_stats(own.p.toy.trainer, &stats) == TUTTI_OK);
	uint64_t most = sum_of(&stats);
	CHECK(tutti_all_reduce(&most, &most, 1, TUTTI_U64, TUTTI_MAX, comm, NULL) == TUTTI_OK);
	CHECK(most == estimate);
	toy_pipeline_destroy(&own.p);
}

/* Those that shard over two ranks of "dp". */
static void test_memory(void **state)
{
	for (int s = TUTTI_DDP; s <= TUTTI_HSDP; s++)
		for (int i = SHARDED; i < PIPELINES; i++) {
			struct run run = {.which = i,
					  .strategy = (tutti_strategy)s,
					  .is_any_order = i % 2,
					  .failing_rank = -1};
			print_message("%s, strategy %d\n", pipelines[i].axes, s);
			assert_int_equal(ranks_as_threads(pipelines[i].ranks, limit, &run), 0);
		}
}

static void fail_once(tutti_comm *comm, void *arg)
{
	const struct run *run = arg;
	struct own own;

	make(&own, comm, arg);
	begin(&own, run->evaluates ? TUTTI_PASS_EVAL : TUTTI_PASS_LAST);
	if (run->evaluates)
		CHECK_ERROR(tutti_pipeline_forward(own.p.pipeline, EVALUATED), TUTTI_ERR_SYSTEM,
			    "On rank 3: The forward of stage 1, micro-batch 2, failed: no more");
	else
		CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_SYSTEM,
			    "On rank 3: The backward of stage 1, micro-batch 2, failed: no more");
	toy_pipeline_destroy(&own.p);
}

static void test_failure(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_FSDP};

	for (int i = 0; i < 4; i++) {
		struct run run = {.which = i % 2 ? SPLIT : IN_LINES,
				  .strategy = strategies[i / 2],
				  .evaluates = i % 2,
				  .failing_rank = 3};
		assert_int_equal(ranks_with_timeout(4, 60000, fail_once, &run), 0);
	}
}

static void wrong_mesh(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {.seed = 1};
	tutti_pipeline *pipeline = NULL;
	struct mesh_toy toy, plain;

	mesh_toy_make(&toy, comm, "pp=2", &config);
	mesh_toy_make(&plain, comm, "", &config);
	CHECK_ERROR(tutti_pipeline_create(&pipeline, toy.mesh,
					  &(tutti_pipeline_config){.schedule = TUTTI_1F1B,
								   .micro_batches = 2,
								   .count = COUNT,
								   .trainer = plain.trainer,
								   .forward = forward,
								   .backward = backward}),
		    TUTTI_ERR_INVALID, "a trainer of another mesh");
	mesh_toy_destroy(&plain);
	mesh_toy_destroy(&toy);
}

/* Outside of a step, or in an evaluation, a step is refused; outside of an evaluation, or in a
 * step, an evaluation. Nothing has happened, and both go on. */
static void too_early(tutti_comm *comm, void *arg)
{
	float losses[EVALUATED][COUNT];
	struct own own;

	make(&own, comm, arg);
	CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_INVALID, "tutti_micro_batch");
	CHECK_ERROR(tutti_pipeline_forward(own.p.pipeline, 3), TUTTI_ERR_INVALID,
		    "TUTTI_PASS_EVAL first");
	begin(&own, TUTTI_PASS_EVAL);
	CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_INVALID, "tutti_micro_batch");
	begin(&own, TUTTI_PASS_LAST);
	CHECK_ERROR(tutti_pipeline_forward(own.p.pipeline, 3), TUTTI_ERR_INVALID,
		    "TUTTI_PASS_EVAL first");
	CHECK(tutti_pipeline_run(own.p.pipeline) == TUTTI_OK);
	CHECK(tutti_step(own.p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	evaluate(&own, losses);
	toy_pipeline_destroy(&own.p);
}

static void test_too_early(void **state)
{
	struct run runs[] = {
		{.which = IN_LINES, .strategy = TUTTI_ZERO1, .failing_rank = -1},
		{.which = SPLIT, .strategy = TUTTI_FSDP, .failing_rank = -1},
	};

	for (int i = 0; i < 2; i++)
		assert_int_equal(ranks_with_timeout(4, 60000, too_early, &runs[i]), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_one_rank), cmocka_unit_test(test_reduced_in_the_run),
		cmocka_unit_test(test_memory),      cmocka_unit_test(test_failure),
		cmocka_unit_test(test_too_early),   RANKS_TEST(wrong_mesh, 2, 2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
