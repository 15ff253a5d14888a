/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: a trainer that lacks memory in the middle of a pipeline's step although it has
 * what tutti_memory_estimate_on says. Random models run in random orders of their stages' forwards
 * and backwards, with memory_limit at the estimate. */
#include "tests/train/design.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <tutti/parallel.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit.h"

enum { GRAIN = 128, MODELS = 30, DATA = 2, PIPE = 2 };
enum { RANKS = DATA * PIPE, MICRO_BATCHES = 3, MOST_CHUNKS = 2 };

static const tutti_axis axes[] = {{"dp", DATA}, {"pp", PIPE}};

struct run {
	struct design design;
	int chunks;
	tutti_train_config config;
	uint64_t order;   /* of actions is drawn from it */
	bool is_exact;    /* some rank has all at once */
	bool is_repeated; /* both steps have the same order */
};

struct own {
	const struct run *run;
	tutti_trainer *trainer;
	int place; /* in the pipeline */
};

static bool is_of(const struct own *own, int unit, int chunk)
{
	return own->run->design.stage[unit] == chunk * PIPE + own->place;
}

static void forward(const struct own *own, int chunk)
{
	for (int u = 0; u < own->run->design.units; u++)
		if (is_of(own, u, chunk))
			CHECK(unit_forward(own->trainer, u) == TUTTI_OK);
}

static void backward(const struct own *own, int chunk)
{
	for (int u = own->run->design.units - 1; u >= 0; u--)
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
		int chunk = design_draw_below(&drawn, own->run->chunks);
		bool goes_back = design_draw_below(&drawn, 2);
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
	struct own own = {.run = arg};
	tutti_train_config config = own.run->config;
	tutti_train_stats estimate, stats = {0};
	tutti_model *model = design_build(&own.run->design);
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
		CHECK(tutti_step(own.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
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
	tutti_train_config config = {
		.strategy = strategies[design_draw_below(drawn, 5)],
		.bucket_bytes = (size_t)design_draw_below(drawn, 1 << 12),
		.prefetch_units = design_draw_below(drawn, 4) ? design_draw_below(drawn, 4) : 64,
		.keep_after_forward = design_draw_below(drawn, 3) == 0,
		.deterministic = design_draw_below(drawn, 4) == 0,
		.shard_size = DATA};

	if (design_draw_below(drawn, 2)) {
		config.param_dtype = TUTTI_BF16;
		config.grad_dtype = design_draw_below(drawn, 2) ? TUTTI_BF16 : TUTTI_F32;
		config.reduce_dtype = design_draw_below(drawn, 2) ? TUTTI_BF16 : TUTTI_F32;
	}
	return config;
}

static struct run draw_run(uint64_t *drawn)
{
	struct run run = {.chunks = 1 + design_draw_below(drawn, MOST_CHUNKS),
			  .config = draw_config(drawn),
			  .order = *drawn,
			  .is_repeated = design_draw_below(drawn, 2)};

	run.design = design_draw(drawn, run.chunks * PIPE, DESIGN_UNITS, GRAIN);
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
	struct run run = {.design = design_equal(5, GRAIN, 0),
			  .chunks = 1,
			  .config = {.strategy = TUTTI_FSDP},
			  .is_exact = true};
	tutti_train_stats stats;

	run.design.count[0] = run.design.count[3] = 10 * GRAIN;
	run.design.stage[4] = 1;
	tutti_model *model = design_build(&run.design);
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
