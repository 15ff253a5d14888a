/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: a trainer that lacks memory in the middle of a pipeline's step although it has
 * what tutti_memory_estimate_on says. Random models run in random orders of their stages' forwards
 * and backwards, with memory_limit at the estimate. */
#include "tests/train/ranks.h"

#include <tutti/parallel.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

enum { MOST_UNITS = 10, MOST_PARAMS = 16, GRAIN = 128, MODELS = 30, DATA = 2, PIPE = 2 };
enum { RANKS = DATA * PIPE, MICRO_BATCHES = 3, MOST_CHUNKS = 2 };

static const tutti_axis axes[] = {{"dp", DATA}, {"pp", PIPE}};

struct run {
	int units, params, chunks;
	int stage[MOST_UNITS], unit[MOST_PARAMS], tied_to[MOST_PARAMS]; /* -1: to none */
	int64_t count[MOST_PARAMS];
	unsigned flags[MOST_PARAMS];
	tutti_train_config config;
	uint64_t order;   /* of actions is drawn from it */
	bool is_exact;    /* some rank has all at once */
	bool is_repeated; /* both steps have the same order */
};

static int draw(uint64_t *drawn, int below)
{
	return (int)(tutti_random((*drawn)++, 1, 2, 3) % (uint32_t)below);
}

static tutti_model *build(const struct run *run)
{
	tutti_model *model = NULL;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < run->units; u++) {
		snprintf(name, sizeof name, "u%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_unit_stage(model, u, run->stage[u]) == TUTTI_OK);
	}
	for (int p = 0; p < run->params; p++) {
		snprintf(name, sizeof name, "p%d", p);
		CHECK(tutti_model_param(model, run->unit[p], name, 1, &run->count[p],
					run->flags[p]) == p);
	}
	for (int p = 0; p < run->params; p++)
		if (run->tied_to[p] >= 0)
			CHECK(tutti_model_unit_uses(model, run->tied_to[p], p) == TUTTI_OK);
	return model;
}

struct own {
	const struct run *run;
	tutti_trainer *trainer;
	int place; /* in the pipeline */
};

static bool is_of(const struct own *own, int unit, int chunk)
{
	return own->run->stage[unit] == chunk * PIPE + own->place;
}

static void forward(const struct own *own, int chunk)
{
	for (int u = 0; u < own->run->units; u++)
		if (is_of(own, u, chunk))
			CHECK(unit_forward(own->trainer, u) == TUTTI_OK);
}

static void backward(const struct own *own, int chunk)
{
	for (int u = own->run->units - 1; u >= 0; u--)
		if (is_of(own, u, chunk))
			CHECK(unit_backward(own->trainer, u) == TUTTI_OK);
}

/* What a rank has done in a step, by chunk. */
struct done {
	int there[MOST_CHUNKS], back[MOST_CHUNKS], all_there;
};

/* A chunk's last backward comes after all forwards, as it does in a pipeline. */
static bool may_follow(const struct own *own, const struct done *done, int chunk, bool goes_back)
{
	if (!goes_back)
		return done->there[chunk] < MICRO_BATCHES;
	return done->back[chunk] < done->there[chunk] &&
	       (done->back[chunk] < MICRO_BATCHES - 1 ||
		done->all_there == own->run->chunks * MICRO_BATCHES);
}

/* Chunks are taken at random, and whether they go forward. */
static void mix(const struct own *own, int step)
{
	struct done done = {0};
	uint64_t drawn = own->run->order + (own->run->is_repeated ? 0 : 1000 * (uint64_t)step);

	for (int left = 2 * own->run->chunks * MICRO_BATCHES; left > 0;) {
		int chunk = draw(&drawn, own->run->chunks);
		bool goes_back = draw(&drawn, 2);
		if (!may_follow(own, &done, chunk, goes_back))
			continue;
		left--;
		bool is_last = goes_back && done.back[chunk] == MICRO_BATCHES - 1;
		CHECK(tutti_grads_hold(own->trainer, !is_last) == TUTTI_OK);
		if (goes_back) {
			backward(own, chunk);
			done.back[chunk]++;
		} else {
			forward(own, chunk);
			done.there[chunk]++;
			done.all_there++;
		}
	}
}

static void keep_within(tutti_comm *comm, void *arg)
{
	static const tutti_optimizer adamw = {.kind = TUTTI_ADAMW, .lr = 0.01f, .eps = 1e-8f};
	struct own own = {.run = arg};
	tutti_train_config config = own.run->config;
	tutti_train_stats estimate, stats = {0};
	tutti_model *model = build(own.run);
	tutti_mesh *mesh = NULL;

	CHECK(tutti_mesh_create(&mesh, comm, axes, 2) == TUTTI_OK);
	own.place = tutti_mesh_coord(mesh, "pp");
	CHECK(tutti_memory_estimate_on(model, axes, 2, &config, &estimate) == TUTTI_OK);
	config.memory_limit = estimate.param_bytes + estimate.grad_bytes +
			      estimate.optimizer_bytes + estimate.gathered_peak_bytes;
	CHECK(tutti_trainer_create_on(&own.trainer, model, mesh, &config) == TUTTI_OK);
	tutti_model_destroy(model);
	for (int step = 0; step < 2 && own.trainer; step++) {
		CHECK(tutti_micro_batch(own.trainer, TUTTI_PASS_EVAL, 1, NULL) == TUTTI_OK);
		forward(&own, 0);
		CHECK(tutti_micro_batch(own.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
		mix(&own, step);
		CHECK(tutti_step(own.trainer, &adamw, 1, NULL) == TUTTI_OK);
	}
	CHECK(tutti_trainer_stats(own.trainer, &stats) == TUTTI_OK);
	uint64_t most = stats.gathered_peak_bytes;
	CHECK(tutti_all_reduce(&most, &most, 1, TUTTI_U64, TUTTI_MAX, comm, NULL) == TUTTI_OK);
	CHECK(!own.run->is_exact || most == estimate.gathered_peak_bytes);
	tutti_trainer_destroy(own.trainer);
	tutti_mesh_destroy(mesh);
}

static tutti_train_config draw_config(uint64_t *drawn)
{
	static const tutti_strategy strategies[] = {TUTTI_ZERO2, TUTTI_ZERO2, TUTTI_FSDP,
						    TUTTI_FSDP, TUTTI_HSDP};
	tutti_train_config config = {.strategy = strategies[draw(drawn, 5)],
				     .bucket_bytes = (size_t)draw(drawn, 1 << 12),
				     .prefetch_units = draw(drawn, 4) ? draw(drawn, 4) : 64,
				     .keep_after_forward = draw(drawn, 3) == 0,
				     .deterministic = draw(drawn, 4) == 0,
				     .shard_size = DATA};

	if (draw(drawn, 2)) {
		config.param_dtype = TUTTI_BF16;
		config.grad_dtype = draw(drawn, 2) ? TUTTI_BF16 : TUTTI_F32;
		config.reduce_dtype = draw(drawn, 2) ? TUTTI_BF16 : TUTTI_F32;
	}
	return config;
}

/* Each stage has a unit. */
static struct run draw_run(uint64_t *drawn)
{
	struct run run = {.chunks = 1 + draw(drawn, MOST_CHUNKS),
			  .config = draw_config(drawn),
			  .order = *drawn,
			  .is_repeated = draw(drawn, 2)};
	int stages = run.chunks * PIPE, spread = 1 + draw(drawn, 20);

	run.units = stages + draw(drawn, MOST_UNITS - stages + 1);
	run.params = run.units + draw(drawn, MOST_PARAMS - run.units + 1);
	for (int u = 0; u < run.units; u++)
		run.stage[u] = u < stages ? u : draw(drawn, stages);
	for (int p = 0; p < run.params; p++) {
		run.unit[p] = p < run.units ? p : draw(drawn, run.units);
		run.tied_to[p] = draw(drawn, 4) == 0 ? draw(drawn, run.units) : -1;
		run.count[p] = GRAIN * (1 + draw(drawn, draw(drawn, 3) == 0 ? spread : 2));
		if (draw(drawn, 6) == 0)
			run.count[p] = 0;
		run.flags[p] = draw(drawn, 4) == 0   ? TUTTI_PARAM_FROZEN
			       : draw(drawn, 6) == 0 ? TUTTI_PARAM_NO_SHARD
						     : 0;
	}
	return run;
}

static void test_random_models(void **state)
{
	const char *chosen = getenv("TEST_SEED");
	uint64_t first = chosen ? strtoull(chosen, NULL, 10) : 1;

	for (uint64_t seed = first; seed < first + MODELS; seed++) {
		uint64_t drawn = seed << 20;
		struct run run = draw_run(&drawn);
		if (ranks_as_threads(RANKS, keep_within, &run) != 0)
			fail_msg("seed %" PRIu64 ": strategy %d, prefetch %d, keep %d, types %d %d "
				 "%d",
				 seed, (int)run.config.strategy, run.config.prefetch_units,
				 run.config.keep_after_forward, (int)run.config.param_dtype,
				 (int)run.config.grad_dtype, (int)run.config.reduce_dtype);
	}
}

/* A stage's last unit is followed by its first one, which plain order never has: both large ones
 * are there at once, with all gradients. */
static void test_large_ends(void **state)
{
	struct run run = {.units = 5,
			  .params = 5,
			  .chunks = 1,
			  .stage = {0, 0, 0, 0, 1},
			  .unit = {0, 1, 2, 3, 4},
			  .tied_to = {-1, -1, -1, -1, -1},
			  .count = {10 * GRAIN, GRAIN, GRAIN, 10 * GRAIN, GRAIN},
			  .config = {.strategy = TUTTI_FSDP},
			  .is_exact = true};
	tutti_train_stats stats;

	tutti_model *model = build(&run);
	assert_int_equal(tutti_memory_estimate_on(model, axes, 2, &run.config, &stats), TUTTI_OK);
	tutti_model_destroy(model);
	assert_int_equal(stats.gathered_peak_bytes, (2 * 10 + 22) * GRAIN * sizeof(float));
	assert_int_equal(ranks_as_threads(RANKS, keep_within, &run), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_models),
		cmocka_unit_test(test_large_ends),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
