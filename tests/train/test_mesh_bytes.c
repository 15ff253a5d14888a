/* slow: 18 s */
/* no_tsan: other tests of trainers on meshes run the same code with fewer of them */
/* What would break: a mesh on which a rank sends more or less than docs/training.md says, over any
 * of its axes. The formulas are computed from the whole shapes; the communicators are asked what
 * really left this rank. Rings send exactly what a collective has to. */
#include "tests/train/mesh_toy.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"
#include "tests/whole.h"
#include "train/pipeline/pipeline.h"
#include "train/state/trainer_state.h"

#include <tutti/parallel.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { COUNT = 29, STEPS = 2, EVALUATED = 5 };

/* ---- the formulas, from whole shapes ---- */

enum { UNITS = 8, EACH = 4, PARAMS = UNITS * EACH + 1, MICRO_BATCHES = 3, ELEMENT = 4 };

/* A parameter of a unit. Its rows are as many as there are ranks. */
struct bytes_param {
	int64_t columns;
	const char *split, *partial;
};

struct bytes_run {
	const char *axes;
	tutti_train_config config;
	int has_pipeline, chunks;
	tutti_schedule schedule;
};

/* A rank's own. */
struct bytes_rank {
	const struct bytes_run *run;
	struct mesh_text text;
	tutti_mesh *mesh;
	tutti_trainer *trainer;
	tutti_pipeline *pipeline;
	int ranks;
	/* Of one step: the units in the order in which they began; -1: a micro-batch begins. */
	int begun[4096], begun_count;
};

struct bytes_shards {
	int data, size; /* ranks of "dp" and "cp", and those of a shard group */
};

/* Each unit has these, with as many rows as there are ranks, so that whatever divides them does so
 * evenly: parts are multiples of 64 elements, which no algorithm rounds. */
static const struct bytes_param kinds[EACH + 1] = {
	{256, "tp", NULL}, {64, NULL, "tp"},  {128, NULL, NULL},
	{192, "ep", NULL}, {320, "tp", NULL}, /* tied: of the first unit, and used by the last one
					       */
};

static const struct bytes_param *bytes_kind_of(int param)
{
	return &kinds[param < UNITS * EACH ? param % EACH : EACH];
}

static int bytes_axis_size(const struct bytes_rank *own, const char *axis)
{
	return tutti_mesh_size(own->mesh, axis);
}

static int bytes_stages(const struct bytes_rank *own)
{
	return bytes_axis_size(own, "pp") * own->run->chunks;
}

static int bytes_stage_of(const struct bytes_rank *own, int unit)
{
	return unit * bytes_stages(own) / UNITS;
}

static bool bytes_is_here(const struct bytes_rank *own, int unit)
{
	return bytes_stage_of(own, unit) % bytes_axis_size(own, "pp") ==
	       tutti_mesh_coord(own->mesh, "pp");
}

static bool uses(int unit, int param)
{
	return param == PARAMS - 1 ? unit == 0 || unit == UNITS - 1 : param / EACH == unit;
}

static bool is_used_here(const struct bytes_rank *own, int param)
{
	for (int u = 0; u < UNITS; u++)
		if (uses(u, param) && bytes_is_here(own, u))
			return true;
	return false;
}

/* Of this rank's piece. */
static uint64_t bytes_of(const struct bytes_rank *own, int param)
{
	const struct bytes_param *d = bytes_kind_of(param);
	int parts = d->split ? bytes_axis_size(own, d->split) : 1;

	return (uint64_t)own->ranks * (uint64_t)d->columns / (uint64_t)parts * ELEMENT;
}

/* The two stages that have the tied one, as bits; 0: one rank of "pp" has both. */
static uint64_t bytes_tied_stages(const struct bytes_rank *own, int param)
{
	int pp = bytes_axis_size(own, "pp"), last = bytes_stage_of(own, UNITS - 1) % pp;

	return param == PARAMS - 1 && last != 0 ? 1u | (uint64_t)1 << last : 0;
}

/* The axes, as bits, over which a gradient is summed beside "dp" and "cp". */
static unsigned summed_axes(const struct bytes_rank *own, int param, int *ranks)
{
	const struct bytes_param *d = bytes_kind_of(param);
	unsigned set = 0;

	*ranks = bytes_tied_stages(own, param) ? 2 : 1;
	for (int i = 0; i < own->text.count; i++) {
		const tutti_axis *axis = &own->text.axes[i];
		bool is_split = d->split && strcmp(d->split, axis->name) == 0;
		bool is_partial = d->partial && strcmp(d->partial, axis->name) == 0;
		if (axis->size == 1 || is_split || !(is_partial || strcmp(axis->name, "ep") == 0))
			continue;
		set |= 1u << i;
		*ranks *= axis->size;
	}
	return set;
}

/* What n ranks send: each a part of n - 1 of n, twice for a sum that all of them get. */
static uint64_t scattered(uint64_t bytes, int n)
{
	return bytes * (uint64_t)(n - 1) / (uint64_t)n;
}

static struct bytes_shards bytes_shards_of(const struct bytes_rank *own)
{
	int data = bytes_axis_size(own, "dp") * bytes_axis_size(own, "cp");
	const tutti_train_config *config = &own->run->config;

	if (config->strategy == TUTTI_HSDP)
		return (struct bytes_shards){data, config->shard_size};
	return (struct bytes_shards){data, config->strategy == TUTTI_DDP ? 1 : data};
}

static uint64_t all_bytes(const struct bytes_rank *own)
{
	uint64_t bytes = 0;

	for (int p = 0; p < PARAMS; p++)
		bytes += is_used_here(own, p) ? bytes_of(own, p) : 0;
	return bytes;
}

/* Sent by this rank over dp and cp in a step. */
static uint64_t bytes_of_grads(const struct bytes_rank *own)
{
	struct bytes_shards s = bytes_shards_of(own);
	uint64_t bytes = all_bytes(own), reduced = scattered(bytes, s.size);
	uint64_t times = own->run->has_pipeline ? 1 : MICRO_BATCHES;

	switch (own->run->config.strategy) {
	case TUTTI_DDP:
		return 2 * scattered(bytes, s.data);
	case TUTTI_ZERO1:
		return reduced;
	case TUTTI_HSDP:
		return times * reduced + 2 * scattered(bytes / (uint64_t)s.size, s.data / s.size);
	default:
		return times * reduced;
	}
}

/* Whether two parameters of a unit travel together: they are summed and split alike. */
static bool is_alike(const struct bytes_rank *own, int p, int q)
{
	const char *a = bytes_kind_of(p)->split, *b = bytes_kind_of(q)->split;
	int n;

	a = a && bytes_axis_size(own, a) > 1 ? a : "";
	b = b && bytes_axis_size(own, b) > 1 ? b : "";
	return strcmp(a, b) == 0 && bytes_tied_stages(own, p) == bytes_tied_stages(own, q) &&
	       summed_axes(own, p, &n) == summed_axes(own, q, &n);
}

/* The first parameter of those that travel with it. The tied one is registered behind those of
 * other units and travels alone. */
static int leader(const struct bytes_rank *own, int param)
{
	int first = param / EACH * EACH;

	while (!is_alike(own, first, param))
		first++;
	return first;
}

/* A unit that begins needs it. */
static bool needs(const struct bytes_rank *own, int unit, int param)
{
	for (int p = 0; unit >= 0 && p < PARAMS; p++)
		if (uses(unit, p) && leader(own, p) == leader(own, param))
			return true;
	return false;
}

/* FSDP: what a unit needs is fetched when it begins, if the unit before did not need it. */
static uint64_t fetched(const struct bytes_rank *own)
{
	uint64_t bytes = 0;

	for (int i = 1; i < own->begun_count; i++)
		for (int p = 0; p < PARAMS; p++)
			if (needs(own, own->begun[i], p) && !needs(own, own->begun[i - 1], p))
				bytes += bytes_of(own, p);
	return bytes;
}

/* Values, the step's last comparison of units, of 4 bytes, and the norm, of 184, within a shard
 * group. */
static uint64_t bytes_of_values(const struct bytes_rank *own)
{
	struct bytes_shards s = bytes_shards_of(own);
	tutti_strategy strategy = own->run->config.strategy;
	uint64_t others = (uint64_t)(s.size - 1);

	if (s.size == 1)
		return 0;
	if (strategy == TUTTI_ZERO1 || strategy == TUTTI_ZERO2)
		return scattered(all_bytes(own), s.size) + 184 * others;
	return scattered(fetched(own), s.size) + (4 + 184) * others;
}

/* Over these axes, as bits, and among these stages. */
static uint64_t bytes_of_sums(const struct bytes_rank *own, unsigned axes, uint64_t tied)
{
	struct bytes_shards s = bytes_shards_of(own);
	uint64_t bytes = 0;

	for (int p = 0; p < PARAMS; p++) {
		int ranks;
		if (is_used_here(own, p) && summed_axes(own, p, &ranks) == axes &&
		    bytes_tied_stages(own, p) == tied && ranks > 1)
			bytes += 2 * scattered(bytes_of(own, p) / (uint64_t)s.size, ranks);
	}
	return bytes;
}

/* Messages of a pipeline that this rank sends, both ways. */
static uint64_t bytes_messages(const struct bytes_rank *own)
{
	uint64_t count = 0;

	for (int c = 0; c < own->run->chunks; c++) {
		int stage = c * bytes_axis_size(own, "pp") + tutti_mesh_coord(own->mesh, "pp");
		count += (uint64_t)(stage < bytes_stages(own) - 1) + (uint64_t)(stage > 0);
	}
	return own->run->has_pipeline ? MICRO_BATCHES * count : 0;
}

/* ---- a step ---- */

static void begin(struct bytes_rank *own, int unit, tutti_status (*begins)(tutti_trainer *, int),
		  tutti_status (*ends)(tutti_trainer *, int))
{
	CHECK(begins(own->trainer, unit) == TUTTI_OK);
	CHECK(ends(own->trainer, unit) == TUTTI_OK);
	own->begun[own->begun_count++] = unit;
}

static void forward_stage(struct bytes_rank *own, int stage)
{
	for (int u = 0; u < UNITS; u++)
		if (stage < 0 ? bytes_is_here(own, u) : bytes_stage_of(own, u) == stage)
			begin(own, u, tutti_forward_begin, tutti_forward_end);
}

static void backward_stage(struct bytes_rank *own, int stage)
{
	for (int u = UNITS - 1; u >= 0; u--)
		if (stage < 0 ? bytes_is_here(own, u) : bytes_stage_of(own, u) == stage)
			begin(own, u, tutti_backward_begin, tutti_backward_end);
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	forward_stage(arg, stage);
	return TUTTI_OK;
}

static tutti_status weights(void *arg, int stage, int m)
{
	backward_stage(arg, stage);
	return TUTTI_OK;
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct bytes_rank *own = arg;

	return own->run->schedule == TUTTI_ZERO_BUBBLE ? TUTTI_OK : weights(arg, stage, m);
}

static void micro_batch(struct bytes_rank *own, tutti_pass pass)
{
	CHECK(tutti_micro_batch(own->trainer, pass, 1, NULL) == TUTTI_OK);
	own->begun[own->begun_count++] = -1;
}

static void step(struct bytes_rank *own)
{
	own->begun_count = 0;
	if (own->pipeline) {
		micro_batch(own, TUTTI_PASS_LAST);
		CHECK(tutti_pipeline_run(own->pipeline) == TUTTI_OK);
	} else {
		for (int m = 1; m <= MICRO_BATCHES; m++) {
			micro_batch(own,
				    m < MICRO_BATCHES ? TUTTI_PASS_ACCUMULATE : TUTTI_PASS_LAST);
			forward_stage(own, -1);
			backward_stage(own, -1);
		}
	}
	CHECK(tutti_step(own->trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	for (int p = 0; p < PARAMS; p++)
		tutti_param_data(own->trainer, p);
	for (int b = 0; b < own->trainer->layout.span_count; b++)
		tutti_work_wait(&own->trainer->buckets[b].gathering, 0);
}

/* ---- what was sent ---- */

struct sent {
	uint64_t grads, values, reports, others, whole, messages, by_window;
	uint64_t sums[MODEL_SUM_GROUPS];
	tutti_train_stats stats;
	uint64_t pipeline_bytes;
};

static void add(uint64_t *to, struct sent *sent, const tutti_comm *comm)
{
	tutti_stats stats;

	if (!comm)
		return;
	CHECK(tutti_comm_stats(comm, &stats) == TUTTI_OK);
	*to += stats.sent_bytes;
	sent->by_window += stats.window_bytes + stats.staged_bytes;
}

static struct sent count(const struct bytes_rank *own)
{
	const tutti_trainer *trainer = own->trainer;
	struct sent sent = {0};
	tutti_pipeline_stats of_pipeline = {0};

	add(&sent.grads, &sent, trainer->homes[0].reduce);
	add(&sent.grads, &sent, trainer->homes[0].replicas);
	add(&sent.values, &sent, trainer->homes[0].gather);
	add(&sent.reports, &sent, trainer->comm);
	add(&sent.others, &sent, trainer->mesh->others);
	add(&sent.whole, &sent, trainer->job.comm);
	for (int g = 0; g < trainer->mesh->groups.count; g++)
		add(&sent.sums[g], &sent, trainer->mesh->sums[g]);
	if (own->pipeline) {
		add(&sent.messages, &sent, own->pipeline->line);
		CHECK(tutti_pipeline_stats_of(own->pipeline, &of_pipeline) == TUTTI_OK);
	}
	sent.pipeline_bytes = of_pipeline.sent_bytes;
	CHECK(tutti_trainer_stats(trainer, &sent.stats) == TUTTI_OK);
	return sent;
}

static void expect(const struct bytes_rank *own, const char *what, uint64_t got, uint64_t expected)
{
	if (got == STEPS * expected)
		return;
	fprintf(stderr,
		"%s, strategy %d, schedule %d, %d chunks, rank %d: %s: %" PRIu64
		" bytes in %d steps, not %" PRIu64 "\n",
		own->run->axes, (int)own->run->config.strategy,
		own->run->has_pipeline ? (int)own->run->schedule : -1, own->run->chunks,
		own->trainer->job.rank, what, got, STEPS, STEPS * expected);
	CHECK(!"bytes");
}

static uint64_t check_sums(const struct bytes_rank *own, const struct sent *before,
			   const struct sent *after)
{
	const struct model_groups *groups = &own->trainer->mesh->groups;
	uint64_t all = 0, expected = 0;

	for (int g = 0; g < groups->count; g++) {
		const struct sum_group *group = &groups->list[g];
		uint64_t bytes = bytes_of_sums(own, group->axes, group->stages);
		expect(own, "a sum", after->sums[g] - before->sums[g], bytes);
		all += bytes;
	}
	for (unsigned axes = 0; axes < 1u << own->text.count; axes++) {
		expected += bytes_of_sums(own, axes, 0);
		if (bytes_tied_stages(own, PARAMS - 1))
			expected += bytes_of_sums(own, axes, bytes_tied_stages(own, PARAMS - 1));
	}
	CHECK(all == expected);
	return expected;
}

/* Ranks of one element do not divide a sum evenly: those of all together. */
static void check_whole(const struct bytes_rank *own, uint64_t sent, uint64_t bytes)
{
	uint64_t n = (uint64_t)own->ranks;

	CHECK(tutti_all_reduce(&sent, &sent, 1, TUTTI_U64, TUTTI_SUM, own->trainer->job.comm,
			       NULL) == TUTTI_OK);
	expect(own, "of all ranks, over the whole mesh", sent, 2 * (n - 1) * bytes);
}

static void check(const struct bytes_rank *own, const struct sent *before, const struct sent *after)
{
	int data = bytes_shards_of(own).data, others = own->ranks / data;
	uint64_t sums = check_sums(own, before, after);
	uint64_t agreed = (uint64_t)(others - 1) * (16 + 184);

	expect(own, "by the window", after->by_window - before->by_window, 0);
	expect(own, "gradients", after->grads - before->grads, bytes_of_grads(own));
	expect(own, "values", after->values - before->values, bytes_of_values(own));
	expect(own, "reports", after->reports - before->reports, 32 * (uint64_t)(data - 1));
	expect(own, "agreement and norm", after->others - before->others, agreed);
	expect(own, "messages", after->messages - before->messages,
	       bytes_messages(own) * (COUNT * ELEMENT + 8));
	/* The statistics say the same. */
	expect(own, "sent_grad_bytes", after->stats.sent_grad_bytes - before->stats.sent_grad_bytes,
	       bytes_of_grads(own) + sums);
	expect(own, "sent_mesh_grad_bytes",
	       after->stats.sent_mesh_grad_bytes - before->stats.sent_mesh_grad_bytes, sums);
	expect(own, "sent_mesh_other_bytes",
	       after->stats.sent_mesh_other_bytes - before->stats.sent_mesh_other_bytes, agreed);
	expect(own, "values and others",
	       after->stats.sent_param_bytes + after->stats.sent_other_bytes -
		       before->stats.sent_param_bytes - before->stats.sent_other_bytes,
	       bytes_of_values(own) + 32 * (uint64_t)(data - 1) + agreed);
	if (bytes_axis_size(own, "pp") > 1)
		expect(own, "sent_bytes of the pipeline",
		       after->pipeline_bytes - before->pipeline_bytes,
		       bytes_messages(own) * COUNT * ELEMENT);
	check_whole(own, after->whole - before->whole, own->pipeline ? 4 + 16 : 0);
}

/* Activations alone; the numbers that ranks compare, and the end. */
static void check_evaluations(struct bytes_rank *own)
{
	int last = tutti_mesh_coord(own->mesh, "pp") == bytes_axis_size(own, "pp") - 1;
	uint64_t sends = (uint64_t)(own->run->chunks - last) * EVALUATED;
	struct sent before = count(own);

	for (int i = 0; i < STEPS; i++) {
		own->begun_count = 0;
		micro_batch(own, TUTTI_PASS_EVAL);
		CHECK(tutti_pipeline_forward(own->pipeline, EVALUATED) == TUTTI_OK);
	}
	struct sent after = count(own);
	expect(own, "messages of an evaluation", after.messages - before.messages,
	       sends * (COUNT * ELEMENT + 8));
	check_whole(own, after.whole - before.whole, 24 + 4);
}

/* ---- runs ---- */

static tutti_model *make_model(const struct bytes_rank *own)
{
	tutti_model *model;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < UNITS; u++) {
		snprintf(name, sizeof name, "unit.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_unit_stage(model, u, bytes_stage_of(own, u)) == TUTTI_OK);
	}
	for (int p = 0; p < PARAMS; p++) {
		const struct bytes_param *d = bytes_kind_of(p);
		int64_t shape[] = {own->ranks, d->columns};
		snprintf(name, sizeof name, "param.%d", p);
		CHECK(tutti_model_param(model, p == PARAMS - 1 ? 0 : p / EACH, name, 2, shape, 0) ==
		      p);
		if (d->split)
			CHECK(tutti_model_param_split(model, p, d->split, 0) == TUTTI_OK);
		if (d->partial)
			CHECK(tutti_model_param_partial(model, p, d->partial) == TUTTI_OK);
	}
	CHECK(tutti_model_unit_uses(model, UNITS - 1, PARAMS - 1) == TUTTI_OK);
	return model;
}

static void make(struct bytes_rank *own, tutti_comm *comm, const struct bytes_run *run)
{
	*own = (struct bytes_rank){.run = run, .ranks = tutti_size(comm)};
	mesh_text_read(&own->text, run->axes);
	CHECK(tutti_mesh_create(&own->mesh, comm, own->text.axes, own->text.count) == TUTTI_OK);
	tutti_model *model = make_model(own);
	CHECK(tutti_trainer_create_on(&own->trainer, model, own->mesh, &run->config) == TUTTI_OK);
	tutti_model_destroy(model);
	if (run->has_pipeline)
		CHECK(tutti_pipeline_create(
			      &own->pipeline, own->mesh,
			      &(tutti_pipeline_config){.schedule = run->schedule,
						       .micro_batches = MICRO_BATCHES,
						       .chunks = run->chunks,
						       .count = COUNT,
						       .trainer = own->trainer,
						       .arg = own,
						       .forward = forward,
						       .backward = backward,
						       .backward_weights = weights}) == TUTTI_OK);
}

/* The first step's order of units is not yet known. */
static void train(tutti_comm *comm, void *arg)
{
	struct bytes_rank own;

	make(&own, comm, arg);
	step(&own);
	struct sent before = count(&own);
	for (int i = 0; i < STEPS; i++)
		step(&own);
	struct sent after = count(&own);
	check(&own, &before, &after);
	if (own.pipeline)
		check_evaluations(&own);
	tutti_pipeline_destroy(own.pipeline);
	tutti_trainer_destroy(own.trainer);
	tutti_mesh_destroy(own.mesh);
}

static const struct {
	const char *axes;
	int ranks, data;
} meshes[] = {{"dp=1", 1, 1},           {"tp=2", 2, 1},           {"pp=2", 2, 1},
	      {"ep=2", 2, 1},           {"cp=2", 2, 2},           {"tp=3", 3, 1},
	      {"dp=3", 3, 3},           {"dp=2,tp=2", 4, 2},      {"pp=2,tp=2", 4, 1},
	      {"dp=2,pp=2", 4, 2},      {"dp=2,ep=2", 4, 2},      {"dp=4", 4, 4},
	      {"pp=4", 4, 1},           {"tp=5", 5, 1},           {"dp=3,tp=2", 6, 3},
	      {"ep=2,dp=3", 6, 3},      {"tp=7", 7, 1},           {"dp=2,pp=2,tp=2", 8, 2},
	      {"dp=2,cp=2,tp=2", 8, 4}, {"pp=2,dp=2,ep=2", 8, 2}, {"ep=2,tp=2,pp=2", 8, 1},
	      {"dp=2,pp=4", 8, 2},      {"dp=4,tp=2", 8, 4}};
enum { MESHES = sizeof meshes / sizeof *meshes };

static void run_on(int mesh, struct bytes_run run)
{
	run.axes = meshes[mesh].axes;
	if (run.config.strategy == TUTTI_HSDP)
		run.config.shard_size = meshes[mesh].data % 2 ? 1 : 2;
	assert_int_equal(ranks_as_threads(meshes[mesh].ranks, train, &run), 0);
}

static void test_every_strategy(void **state)
{
	for (int m = 0; m < MESHES; m++)
		for (int s = TUTTI_DDP; s <= TUTTI_HSDP; s++)
			if ((m + s) % long_or(1, 3, 5, 5) == 0)
				run_on(m,
				       (struct bytes_run){.config = {.strategy = (tutti_strategy)s},
							  .chunks = 1});
}

static void test_every_schedule(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_FSDP};

	for (int m = 0; m < MESHES; m++)
		for (int s = TUTTI_GPIPE; s <= TUTTI_ZERO_BUBBLE && strstr(meshes[m].axes, "pp");
		     s++)
			for (int i = long_or(0, (m + s) % 2, 0, 0); i < 2; i += long_or(1, 2, 2, 2))
				run_on(m,
				       (struct bytes_run){.config = {.strategy = strategies[i]},
							  .has_pipeline = 1,
							  .chunks = s < TUTTI_INTERLEAVED ? 1 : 2,
							  .schedule = (tutti_schedule)s});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_strategy),
		cmocka_unit_test(test_every_schedule),
	};
	setenv("TUTTI_WINDOW", "0", 1);
	setenv("TUTTI_ALGO", "all_reduce=ring,reduce_scatter=ring,all_gather=ring", 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
