/* slow: 9 s */
/* no_tsan: it has one thread */
/* Without this an algorithm could deliver wrong bytes, or never end, for some rank count, shape,
 * slicing or order of delivery; and a plan that has lost an edge would go unnoticed. */
#include "tests/collectives/sim_ranks.h"

#include "tests/core/memory/proof_kind.h"
#include "tests/whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

/* How many ranks are tried, and of algorithms whose messages grow like the logarithm of the ranks.
 */
struct most {
	int ranks, of_log;
};

static struct most most(void)
{
	return (struct most){long_or(64, 40, 16, 40), long_or(1000, 128, 127, 128)};
}

static void check(const struct trial *trial, int size, size_t slice, uint64_t seed)
{
	struct sim_ranks_config config = {.sim = {.size = size, .seed = seed, .order = SIM_RANDOM},
					  .slice_bytes = slice,
					  .scratch_bytes = 1 << 20};
	const char *wrong = trial_try(trial, &config, NULL, NULL);
	if (wrong)
		fail_msg("%s %s, %d ranks, count %zu, root %d, in place %d, staged %d, slice %zu, "
			 "seed %llu: %s",
			 collective_name(trial->algorithm->collective), trial->algorithm->name,
			 size, trial->count, trial->root, trial->in_place, trial->staged, slice,
			 (unsigned long long)seed, wrong);
}

/* Counts that do not divide, fewer elements than ranks, none; slices from one to dozens. */
static const struct {
	size_t count, slice;
} shapes[] = {{0, 64}, {1, 64}, {3, 64}, {17, 64}, {64, 64}, {301, 64}, {1000, 256}, {2311, 128}};
#define SHAPES (sizeof shapes / sizeof shapes[0])

static bool has_blocks(const struct algorithm *a)
{
	return collective_has_blocks(a->collective, SEND_SIDE) ||
	       collective_has_blocks(a->collective, RECV_SIDE);
}

/* Has plans, and for any number of ranks: test_nodes.c has those that need nodes. */
static bool is_flat(const struct algorithm *a)
{
	return a->build && !(a->needs & NEEDS_NODES);
}

static struct trial any_trial(const struct algorithm *a, int size, uint64_t *seed)
{
	struct trial t = {.algorithm = a,
			  .dtype = sim_mix(seed) % 2 ? TUTTI_I32 : TUTTI_I64,
			  .op = a->adds == ADDS_ONCE && sim_mix(seed) % 2 ? TUTTI_AVG : TUTTI_SUM,
			  .seed = sim_mix(seed)};
	if (collective_has_root(a->collective))
		t.root = (int)(sim_mix(seed) % (uint64_t)size);
	if (has_blocks(a) && !(a->needs & NEEDS_EQUAL_BLOCKS))
		t.uneven = sim_mix(seed) % 2;
	return t;
}

static void try_shape(const struct algorithm *a, int size, size_t shape, bool staged,
		      uint64_t *seed)
{
	struct trial t = any_trial(a, size, seed);
	t.count = shapes[shape].count / (has_blocks(a) && size > 8 ? 4 : 1);
	t.in_place = sim_mix(seed) % 2;
	t.staged = staged;
	check(&t, size, shapes[shape].slice, sim_mix(seed));
}

static void every_shape(const struct algorithm *a, int size, bool staged, uint64_t *seed)
{
	for (size_t s = 0; s < 2 * SHAPES; s++)
		try_shape(a, size, s / 2, staged, seed);
}

/* ONLY=name leaves the algorithms of other names out. */
static bool is_tried(const struct algorithm *a, int size)
{
	const char *only = getenv("ONLY");
	bool is_for_few = a->needs & NEEDS_FEW_RANKS;
	return is_flat(a) && (!is_for_few || size <= 32) && (!only || strcmp(only, a->name) == 0);
}

/* Many ranks send many messages, so the more there are the fewer shapes. */
static void test_every_algorithm(void **state)
{
	uint64_t seed = sim_first_seed();
	const int most_ranks = most().ranks;
	for (int i = 0; algorithm_at(i); i++)
		for (int size = 1; is_tried(algorithm_at(i), size) && size <= most_ranks; size++)
			if (size <= 9)
				every_shape(algorithm_at(i), size, false, &seed);
			else
				for (int k = size <= 20 ? 2 : 0; k >= 0; k--)
					try_shape(algorithm_at(i), size,
						  sim_mix(&seed) % (size <= 20 ? SHAPES : 5), false,
						  &seed);
}

/* Those whose messages grow like the logarithm of the ranks. */
static void test_many_ranks(void **state)
{
	static const char *const names[] = {"doubling", "circulant", "knomial", "tree", "bruck"};
	static const int sizes[] = {100, 127, 128, 1000};
	uint64_t seed = sim_first_seed();
	for (int i = 0; algorithm_at(i); i++)
		for (int k = 0; k < 5; k++)
			for (int s = 0; s < 4 && strcmp(algorithm_at(i)->name, names[k]) == 0;
			     s++) {
				struct trial t = any_trial(algorithm_at(i), sizes[s], &seed);
				t.count = has_blocks(t.algorithm) ? 1 + sim_mix(&seed) % 2
								  : sim_mix(&seed) % 300;
				if (sizes[s] <= most().of_log && is_tried(t.algorithm, sizes[s]))
					check(&t, sizes[s], 4096, sim_mix(&seed));
			}
}

static void test_every_root(void **state)
{
	uint64_t seed = sim_first_seed();
	for (int i = 0; algorithm_at(i); i++)
		for (int size = 2; size <= 9; size++)
			for (int root = 0; root < size; root++) {
				struct trial t = any_trial(algorithm_at(i), size, &seed);
				t.count = 77;
				t.root = root;
				if (is_tried(t.algorithm, size) &&
				    collective_has_root(t.algorithm->collective))
					check(&t, size, 64, sim_mix(&seed));
			}
}

/* Memory that neither the CPU nor the transport may touch: everything is staged. */
static void test_staged(void **state)
{
	uint64_t seed = sim_first_seed();
	assert_int_equal(proof_kind_use(seed), TUTTI_OK);
	for (int i = 0; algorithm_at(i); i++)
		for (int size = 1; is_tried(algorithm_at(i), size) && size <= 8;
		     size += 1 + size / 4)
			every_shape(algorithm_at(i), size, true, &seed);
	assert_int_equal(proof_allocated(), 0);
}

/* Scratch that slices are cut for is what plans use, on every rank, wherever their data are. */
static void width_holds(const struct algorithm *a, int size, struct plan_options options)
{
	uint32_t most = 0;
	for (int r = 0; r < size; r++)
		for (int in_place = 0; in_place < 2; in_place++) {
			struct plan_key key = {.rank = r,
					       .size = size,
					       .root = collective_has_root(a->collective) ? size / 3
											  : 0,
					       .in_place = in_place,
					       .options = options};
			struct plan *p = algorithm_plan(a, &key);
			assert_non_null(p);
			if (p->pool_chunks[POOL_HOST] + p->pool_chunks[POOL_KIND] > most)
				most = p->pool_chunks[POOL_HOST] + p->pool_chunks[POOL_KIND];
			plan_free(p);
		}
	if (most > algorithm_width(a, size, options))
		fail_msg("%s %s, %d ranks, staged %d, scaled %d: %u chunks of scratch, not %u",
			 collective_name(a->collective), a->name, size, options.staged,
			 options.scaled, most, algorithm_width(a, size, options));
}

static void test_width(void **state)
{
	for (int i = 0; algorithm_at(i); i++)
		for (int size = 1; is_tried(algorithm_at(i), size) && size <= 33;
		     size += 1 + size / 12)
			for (int k = 0; k < 2; k++)
				width_holds(algorithm_at(i), size,
					    (struct plan_options){.scaled = k});
}

/* Several works in flight on the same ranks share lanes in order of submission. */
static void test_many_works(void **state)
{
	uint64_t seed = sim_first_seed();
	struct trial_run run[24];
	for (int round = 0; round < 40; round++) {
		struct sim_ranks_config config = {
			.sim = {.size = 1 + (int)(sim_mix(&seed) % 8), .seed = sim_mix(&seed)},
			.slice_bytes = 64,
			.scratch_bytes = 65536};
		struct sim_ranks ranks;
		sim_ranks_open(&ranks, &config);
		for (int k = 0; k < 24; k++) {
			const struct algorithm *a;
			do
				a = algorithm_at((int)(sim_mix(&seed) % ALGORITHMS));
			while (!is_flat(a));
			struct trial t = any_trial(a, config.sim.size, &seed);
			t.count = sim_mix(&seed) % 300;
			t.in_place = sim_mix(&seed) % 2;
			trial_start(&run[k], &ranks, &t, NULL, NULL);
		}
		sim_ranks_run(&ranks);
		for (int k = 0; k < 24; k++) {
			const char *wrong = trial_end(&run[k]);
			if (wrong)
				fail_msg("round %d work %d: %s", round, k, wrong);
		}
		sim_ranks_close(&ranks);
	}
}

/* ---- damaged plans are caught ------------------------------------------------------------------
 */

struct damage {
	int rank;
	uint32_t pick; /* which of the edges that may be dropped */
	bool done;
};

/* Takes away the pick-th edge from a step that makes data to the send of these data. Other edges
 * may be implied by the order of a lane or by what peers wait for. */
static void drop_edge(struct plan *p, void *arg)
{
	struct damage *d = arg;
	uint32_t seen = 0;
	for (uint32_t i = 0; p->rank == d->rank && i < p->count; i++)
		for (uint32_t k = 0; k < p->steps[i].succs; k++) {
			struct step *s = &p->steps[i];
			uint32_t *edge = &p->edges[s->succ + k];
			if (p->steps[*edge].kind != STEP_SEND || s->kind == STEP_SEND ||
			    seen++ != d->pick)
				continue;
			p->steps[*edge].deps--;
			*edge = p->edges[s->succ + --s->succs];
			d->done = true;
			return;
		}
}

/* Sends the neighbouring chunk instead. */
static void shift_index(struct plan *p, void *arg)
{
	struct damage *d = arg;
	for (uint32_t i = 0; p->rank == d->rank && i < p->count; i++) {
		struct ref *r = &p->refs[p->steps[i].ref];
		if (p->steps[i].kind == STEP_SEND && r->buf != BUF_TMP && p->chunks[r->buf] > 1) {
			r->chunk = (r->chunk + 1) % p->chunks[r->buf];
			d->done = true;
			return;
		}
	}
}

/* Whether some order of delivery shows the damage. */
static bool is_caught(const char *name, void (*damage)(struct plan *, void *), struct damage *d)
{
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct trial t = {.algorithm = algorithm_find(COLL_ALL_REDUCE, name),
				  .count = 500,
				  .dtype = TUTTI_I64,
				  .in_place = seed % 2,
				  .seed = seed};
		struct sim_ranks_config config = {.sim = {.size = 4, .seed = seed},
						  .slice_bytes = 64,
						  .scratch_bytes = 65536};
		if (trial_try(&t, &config, damage, d) && d->done)
			return true;
		if (!d->done)
			return false;
	}
	return false;
}

static void every_edge(const char *name)
{
	int edges = 0;
	for (int rank = 0; rank < 4; rank++)
		for (uint32_t pick = 0;; pick++, edges++) {
			struct damage d = {.rank = rank, .pick = pick};
			bool is_seen = is_caught(name, drop_edge, &d);
			if (!d.done)
				break;
			if (!is_seen)
				fail_msg("%s: nobody noticed that rank %d lost edge %u", name, rank,
					 pick);
		}
	print_message("%s: %d dropped edges, all noticed\n", name, edges);
	assert_true(edges >= 4);
}

static void test_damage_is_caught(void **state)
{
	const char *const names[] = {"ring", "direct", "circulant", "rings"};
	for (int i = 0; i < 4; i++)
		for (int rank = 0; rank < 4; rank++) {
			struct damage d = {.rank = rank};
			assert_true(is_caught(names[i], shift_index, &d));
		}
	every_edge("ring");
	every_edge("direct");
	every_edge("doubling");
	every_edge("circulant");
	every_edge("tree");
	every_edge("rings");
	every_edge("knomial");
}

/* One rank that makes no call: the others' deadline names it. */
static void test_deadline(void **state)
{
	struct sim_ranks ranks;
	struct sim_ranks_config config = {.sim = {.size = 3, .seed = 5}};
	struct trial_run run;
	struct trial t = {.algorithm = algorithm_find(COLL_ALL_REDUCE, "direct"),
			  .count = 100,
			  .dtype = TUTTI_I32,
			  .timeout_ms = 250,
			  .absent = 3};

	sim_ranks_open(&ranks, &config);
	trial_start(&run, &ranks, &t, NULL, NULL);
	sim_ranks_run(&ranks);
	bool is_done;
	assert_int_equal(work_test(run.works[0], &is_done), TUTTI_OK);
	assert_false(is_done);
	sim_advance(ranks.sim, 251000000);
	sim_ranks_run(&ranks);
	assert_int_equal(work_test(run.works[0], &is_done), TUTTI_ERR_TIMEOUT);
	assert_true(is_done);
	/* Rank 1 is there, but waits for rank 2 as well. */
	assert_non_null(strstr(engine_error(ranks.engines[0]), "for ranks 2, 1;"));
	assert_non_null(strstr(engine_error(ranks.engines[0]), "250 ms"));
	assert_non_null(trial_end(&run));
	sim_ranks_close(&ranks);
}

/* A rank dies in the middle: its peers end with PEER and name it. */
static void test_death(void **state)
{
	for (int after = 0; after < 12; after++) {
		struct sim_ranks ranks;
		struct sim_ranks_config config = {.sim = {.size = 4, .seed = 7 + (uint64_t)after}};
		struct trial_run run;
		struct trial t = {.algorithm = algorithm_find(COLL_ALL_REDUCE, "ring"),
				  .count = 1000,
				  .dtype = TUTTI_I32};
		int who[2], named = 0;

		sim_ranks_open(&ranks, &config);
		trial_start(&run, &ranks, &t, NULL, NULL);
		for (int k = 0; k < after && sim_step(ranks.sim, who); k++) {
			engine_progress(ranks.engines[who[0]]);
			engine_progress(ranks.engines[who[1]]);
		}
		sim_kill(ranks.sim, 1);
		sim_ranks_run(&ranks);
		for (int r = 0; r < 4; r++)
			named += r != 1 && engine_status(ranks.engines[r]) == TUTTI_ERR_PEER &&
				 strstr(engine_error(ranks.engines[r]), "rank 1 (sim)") != NULL;
		assert_true(named >= 1);
		for (int r = 0; r < 4; r++)
			engine_fail(ranks.engines[r], TUTTI_ERR_ABORTED, "over");
		trial_end(&run);
		sim_ranks_close(&ranks);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_algorithm),
		cmocka_unit_test(test_many_ranks),
		cmocka_unit_test(test_every_root),
		cmocka_unit_test(test_staged),
		cmocka_unit_test(test_width),
		cmocka_unit_test(test_many_works),
		cmocka_unit_test(test_damage_is_caught),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_death),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
