/* A pipeline with a trainer: the schedules, with every strategy, must end with the bits of one
 * rank; reductions begin with a stage's last backward and not before; a trainer holds the bytes
 * that were estimated; a callback that fails on one rank ends the step on ranks with other data,
 * too. */
#include "tests/train/pipeline/toy_pipeline.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { STEPS = 2, MICRO_BATCHES = 4, VALUES = MESH_PARAMS * MESH_ELEMENTS, COUNT = 5 };

static const struct {
	const char *axes;
	int ranks, chunks;
	tutti_schedule schedule;
} pipelines[] = {{"pp=1", 1, 1, TUTTI_1F1B},        {"pp=2", 2, 1, TUTTI_GPIPE},
		 {"pp=2", 2, 1, TUTTI_1F1B},        {"pp=2", 2, 2, TUTTI_INTERLEAVED},
		 {"pp=2", 2, 1, TUTTI_ZERO_BUBBLE}, {"pp=4", 4, 1, TUTTI_1F1B},
		 {"pp=4", 4, 1, TUTTI_ZERO_BUBBLE}, {"dp=2,pp=2", 4, 2, TUTTI_INTERLEAVED},
		 {"pp=2,dp=2", 4, 1, TUTTI_1F1B},   {"pp=2,dp=2,tp=2", 8, 2, TUTTI_ZERO_BUBBLE}};
enum { PIPELINES = sizeof pipelines / sizeof *pipelines };

struct run {
	int which;
	tutti_strategy strategy;
	int is_any_order; /* of additions; else deterministic, for the bits */
	size_t limit;     /* of memory; 0: none */
	float values[VALUES];
	struct { /* the callback that fails; rank -1: none */
		int rank, stage, micro_batch;
	} fails;
};

/* A rank's own. */
struct own {
	const struct run *run;
	struct toy_pipeline p;
	int batch, rank;
};

/* Where a callback fails hooks may, too. */
static tutti_status bare_hooks(const struct own *own, int stage,
			       tutti_status (*begin)(tutti_trainer *, int),
			       tutti_status (*end)(tutti_trainer *, int))
{
	for (int u = 0; u < MESH_UNITS; u++) {
		if (!toy_pipeline_has(&own->p, stage, u))
			continue;
		tutti_status status = begin(own->p.toy.trainer, u);
		if (status == TUTTI_OK)
			status = end(own->p.toy.trainer, u);
		if (status != TUTTI_OK)
			return status;
	}
	return TUTTI_OK;
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	struct own *own = arg;
	const float *from = in;
	float *to = out;

	if (own->run->fails.rank >= 0)
		return bare_hooks(own, stage, tutti_forward_begin, tutti_forward_end);
	for (int u = 0; u < MESH_UNITS; u++)
		if (toy_pipeline_has(&own->p, stage, u))
			mesh_toy_forward(&own->p.toy, u);
	for (int i = 0; i < COUNT; i++) {
		CHECK(!from || from[i] == (float)(stage * 100 + m * 10 + i));
		if (to)
			to[i] = (float)((stage + 1) * 100 + m * 10 + i);
	}
	return TUTTI_OK;
}

static tutti_status weights(void *arg, int stage, int m)
{
	struct own *own = arg;

	if (own->run->fails.rank >= 0)
		return bare_hooks(own, stage, tutti_backward_begin, tutti_backward_end);
	toy_pipeline_backward(&own->p, stage, own->batch, m);
	return TUTTI_OK;
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct own *own = arg;

	if (in_grad)
		memset(in_grad, 0, COUNT * sizeof(float));
	if (own->rank == own->run->fails.rank && stage == own->run->fails.stage &&
	    m == own->run->fails.micro_batch)
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

static void make(struct own *own, tutti_comm *comm, const struct run *run)
{
	int which = run->which;
	tutti_train_config config = config_of(run);

	*own = (struct own){.run = run, .rank = tutti_rank(comm)};
	toy_pipeline_create(&own->p, comm, pipelines[which].axes, &config,
			    &(tutti_pipeline_config){.schedule = pipelines[which].schedule,
						     .micro_batches = MICRO_BATCHES,
						     .chunks = pipelines[which].chunks,
						     .count = COUNT,
						     .arg = own,
						     .forward = forward,
						     .backward = backward,
						     .backward_weights = weights});
}

static void run_steps(struct own *own)
{
	for (own->batch = 0; own->batch < STEPS; own->batch++)
		toy_pipeline_step(&own->p, own->batch);
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	float values[VALUES];
	struct own own;

	make(&own, comm, run);
	run_steps(&own);
	mesh_toy_read(&own.p.toy, values);
	if (tutti_rank(comm) == 0)
		memcpy(run->values, values, sizeof values);
	toy_pipeline_destroy(&own.p);
}

static void test_bits(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2,
						    TUTTI_FSDP};
	float expected[VALUES];

	for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++)
		for (int i = 0; i < PIPELINES; i++) {
			struct run run = {
				.which = i, .strategy = strategies[s], .fails = {.rank = -1}};
			print_message("%s, schedule %d, %d chunks, strategy %d\n",
				      pipelines[i].axes, (int)pipelines[i].schedule,
				      pipelines[i].chunks, (int)run.strategy);
			assert_int_equal(ranks_as_threads(pipelines[i].ranks, train, &run), 0);
			if (s == 0 && i == 0)
				memcpy(expected, run.values, sizeof expected);
			assert_memory_equal(run.values, expected, sizeof expected);
		}
}

/* The first rank of each stage's data: reductions come with the last backward of a stage alone. */
static void count(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	tutti_train_stats before, after;
	struct own own;

	make(&own, comm, run);
	CHECK(tutti_micro_batch(own.p.toy.trainer, TUTTI_PASS_LAST, 12, NULL) == TUTTI_OK);
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
	struct run run = {.which = 8, .strategy = TUTTI_DDP, .fails = {.rank = -1}};

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
		for (int i = 7; i < PIPELINES; i++) {
			struct run run = {.which = i,
					  .strategy = (tutti_strategy)s,
					  .is_any_order = i % 2,
					  .fails = {.rank = -1}};
			print_message("%s, strategy %d\n", pipelines[i].axes, s);
			assert_int_equal(ranks_as_threads(pipelines[i].ranks, limit, &run), 0);
		}
}

static void fail_once(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct own own;

	make(&own, comm, run);
	CHECK(tutti_micro_batch(own.p.toy.trainer, TUTTI_PASS_LAST, 12, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_SYSTEM,
		    "On rank 3: The backward of stage 1, micro-batch 2, failed: no more");
	toy_pipeline_destroy(&own.p);
}

static void test_failure(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_FSDP};

	for (size_t s = 0; s < 2; s++) {
		struct run run = {.which = 8,
				  .strategy = strategies[s],
				  .fails = {.rank = 3, .stage = 1, .micro_batch = 2}};
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

/* Outside of a step, and in an evaluation, nothing has happened. */
static void too_early(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	struct own own;

	make(&own, comm, run);
	CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_INVALID, "tutti_micro_batch");
	CHECK(tutti_micro_batch(own.p.toy.trainer, TUTTI_PASS_EVAL, 12, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_pipeline_run(own.p.pipeline), TUTTI_ERR_INVALID, "tutti_micro_batch");
	CHECK(tutti_micro_batch(own.p.toy.trainer, TUTTI_PASS_LAST, 12, NULL) == TUTTI_OK);
	CHECK(tutti_pipeline_run(own.p.pipeline) == TUTTI_OK);
	CHECK(tutti_step(own.p.toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	toy_pipeline_destroy(&own.p);
}

static void test_too_early(void **state)
{
	struct run run = {.which = 8, .strategy = TUTTI_ZERO1, .fails = {.rank = -1}};

	assert_int_equal(ranks_with_timeout(4, 60000, too_early, &run), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bits),      cmocka_unit_test(test_reduced_in_the_run),
		cmocka_unit_test(test_memory),    cmocka_unit_test(test_failure),
		cmocka_unit_test(test_too_early), RANKS_TEST(wrong_mesh, 2, 2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
