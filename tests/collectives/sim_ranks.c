/* Ranks over the simulated network, and one collective on all of them with its expectation. */
#include "sim_ranks.h"

#include "core/memory/dtype.h"
#include "tests/core/memory/proof_kind.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_engine(struct sim_ranks *ranks, const struct sim_ranks_config *config, int r,
			struct tutti_endpoint **eps, const struct engine_route *routes)
{
	struct engine_config ec = {
		.rank = r,
		.size = ranks->size,
		.endpoints = &eps[r],
		.endpoint_count = 1,
		.routes = routes,
		.slice_bytes = config->slice_bytes ? config->slice_bytes : 131072,
		.scratch_bytes = config->scratch_bytes ? config->scratch_bytes : 4 << 20,
		.now_ns = sim_now_ns,
		.now_arg = ranks->sim};
	if (engine_create(&ranks->engines[r], &ec) != TUTTI_OK)
		abort();
}

void sim_ranks_open(struct sim_ranks *ranks, const struct sim_ranks_config *config)
{
	int n = config->sim.size;
	ranks->size = n;
	ranks->engines = calloc((size_t)n, sizeof(struct engine *));
	assert(ranks->engines);
	if (sim_create(&ranks->sim, &config->sim) != TUTTI_OK)
		abort();
	struct tutti_endpoint **eps = calloc((size_t)n, sizeof(struct tutti_endpoint *));
	struct engine_route *routes = calloc((size_t)n, sizeof *routes);
	assert(eps && routes);
	for (int r = 0; r < n; r++) {
		struct tutti_endpoint_config epc = {
			.rank = r, .size = n, .timeout_ms = 1000, .context = ranks->sim};
		if (transport_sim.open(&eps[r], &epc) != TUTTI_OK)
			abort();
		routes[r].address_bytes = eps[r]->address_bytes;
		memcpy(routes[r].address, eps[r]->address, eps[r]->address_bytes);
	}
	for (int r = 0; r < n; r++) {
		for (int q = 0; q < n; q++)
			routes[q].endpoint = q == r ? NULL : eps[r];
		open_engine(ranks, config, r, eps, routes);
	}
	free(routes);
	free(eps);
}

void sim_ranks_close(struct sim_ranks *ranks)
{
	for (int r = 0; r < ranks->size; r++)
		engine_destroy(ranks->engines[r]);
	free(ranks->engines);
	sim_destroy(ranks->sim);
}

static bool progress_all(struct sim_ranks *ranks)
{
	bool moved = false;
	for (int r = 0; r < ranks->size; r++)
		moved |= engine_progress(ranks->engines[r]);
	return moved;
}

void sim_ranks_run(struct sim_ranks *ranks)
{
	int who[2], quiet = 0;
	/* Memory kinds that are slow on purpose need many passes without a message. */
	while (quiet < 200) {
		while (sim_step(ranks->sim, who)) {
			quiet = 0;
			engine_progress(ranks->engines[who[0]]);
			if (who[1] != who[0])
				engine_progress(ranks->engines[who[1]]);
		}
		quiet = progress_all(ranks) ? 0 : quiet + 1;
		if (proof_allocated() == 0)
			quiet += 100;
	}
}

/* ---- data --------------------------------------------------------------------------------------
 */

/* Small integers that differ by rank, block and index and whose sums are exact in every dtype used
 * here. */
static int64_t plain_value(const struct trial *t, int rank, size_t block, size_t i)
{
	uint64_t x = (uint64_t)rank * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u + t->seed +
		     block * 0xd6e8feb86659fd93u;
	x ^= x >> 29;
	x *= 0x94d049bb133111ebu;
	return (int64_t)((x >> 40) % 1000) - 500;
}

/* Divisible by 1 to 12. */
#define ANY_SIZE 27720

static int64_t value(const struct trial *t, int rank, size_t block, size_t i)
{
	int64_t v = plain_value(t, rank, block, i);
	return t->whole_average ? v % 10 * ANY_SIZE : v;
}

static void put(void *buf, size_t i, tutti_dtype dtype, int64_t v)
{
	if (dtype == TUTTI_F32) {
		float f = (float)v;
		memcpy((char *)buf + 4 * i, &f, 4);
	} else if (dtype == TUTTI_I32) {
		int32_t n = (int32_t)v;
		memcpy((char *)buf + 4 * i, &n, 4);
	} else {
		assert(dtype == TUTTI_I64);
		memcpy((char *)buf + 8 * i, &v, 8);
	}
}

static int64_t combined(const struct trial_run *run, size_t block, size_t i)
{
	int64_t sum = 0;
	for (int r = 0; r < run->size; r++)
		sum += value(&run->trial, r, block, i);
	return run->trial.op == TUTTI_AVG ? sum / run->size : sum;
}

/* Element i of block of rank's result. */
static int64_t expected(const struct trial_run *run, int rank, size_t block, size_t i)
{
	const struct trial *t = &run->trial;
	switch (t->algorithm->collective) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE:
		return combined(run, 0, i);
	case COLL_REDUCE_SCATTER:
		return combined(run, (size_t)rank, i);
	case COLL_ALL_GATHER:
	case COLL_GATHER:
		return value(t, (int)block, 0, i);
	case COLL_SCATTER:
		return value(t, t->root, (size_t)rank, i);
	case COLL_ALL_TO_ALL:
		return value(t, (int)block, (size_t)rank, i);
	case COLL_BROADCAST:
		return value(t, t->root, 0, i);
	default:
		return 0;
	}
}

/* Of block: from a rank to a rank where these differ by pair, else the block's own. */
static size_t count_of(const struct trial *t, size_t from, size_t to)
{
	if (t->algorithm->collective == COLL_BARRIER)
		return 0;
	if (!t->uneven)
		return t->count;
	uint64_t x = (t->seed + from * 0x9e3779b97f4a7c15u + to * 0xbf58476d1ce4e5b9u) | 1;
	x ^= x >> 31;
	x *= 0x94d049bb133111ebu;
	return (x >> 60) % 4 == 0 ? 0 : (size_t)(x >> 33) % (2 * t->count + 1);
}

static bool has_side(const struct trial_run *run, int rank, int side)
{
	enum collective c = run->trial.algorithm->collective;
	if (rank == run->trial.root || !collective_has_root(c))
		return true;
	return side == (c == COLL_BROADCAST || c == COLL_SCATTER ? RECV_SIDE : SEND_SIDE);
}

/* Where the rank's blocks of a side are: one after the other, with gaps in v-variants. The tables
 * always have an entry for every rank, as the API wants them. */
static void lay_out(struct trial_run *run, int rank, int side)
{
	const struct trial *t = &run->trial;
	struct trial_side *s = &run->sides[side][rank];
	enum collective c = t->algorithm->collective;
	size_t at = 0, n = (size_t)run->size, me = (size_t)rank;

	s->blocks = collective_has_blocks(c, side) ? n : 1;
	s->counts = calloc(n, sizeof(size_t));
	s->offsets = calloc(n, sizeof(size_t));
	assert(s->counts && s->offsets);
	for (size_t i = 0; i < n; i++) {
		s->counts[i] = c != COLL_ALL_TO_ALL ? count_of(t, i, 0)
			       : side == SEND_SIDE  ? count_of(t, me, i)
						    : count_of(t, i, me);
		s->offsets[i] = at;
		at += s->counts[i] + (t->uneven ? i % 3 : 0);
	}
	if (!collective_has_blocks(c, SEND_SIDE) && !collective_has_blocks(c, RECV_SIDE))
		at = s->counts[0];
	else if (s->blocks == 1)
		at = s->counts[rank];
	s->bytes = at * run->element;
}

static size_t block_count(const struct trial_side *s, int rank, size_t block)
{
	return s->blocks == 1 ? s->counts[rank] : s->counts[block];
}

static size_t block_at(const struct trial_side *s, size_t block)
{
	return s->blocks == 1 ? 0 : s->offsets[block];
}

#define GUARD 64

static char *room(const struct trial *t, size_t bytes)
{
	char *p = t->staged ? proof_alloc(bytes + GUARD) : malloc(bytes + GUARD);
	assert(p);
	return p;
}

static void write_side(const struct trial_run *run, char *to, const char *data, size_t bytes)
{
	if (run->trial.staged)
		proof_write(to, data, bytes);
	else
		memcpy(to, data, bytes);
}

/* What the side holds before the call (done false), or after it: its own data, or the result; what
 * lies between and after the blocks never changes. */
static char *image(const struct trial_run *run, int rank, int side, bool done)
{
	const struct trial *t = &run->trial;
	const struct trial_side *s = &run->sides[side][rank];
	char *data = malloc(s->bytes + GUARD);
	assert(data);
	memset(data, 0xa5, s->bytes + GUARD);
	for (size_t b = 0; b < s->blocks; b++)
		for (size_t i = 0; i < block_count(s, rank, b); i++)
			put(data, block_at(s, b) + i, t->dtype,
			    done ? expected(run, rank, b, i) : value(t, rank, b, i));
	return data;
}

/* In place the one side lies in the other's block of this rank. */
static void borrow(struct trial_run *run, int rank)
{
	struct trial_side *send = &run->sides[SEND_SIDE][rank],
			  *recv = &run->sides[RECV_SIDE][rank];
	bool send_is_larger = send->blocks > recv->blocks;
	struct trial_side *outer = send_is_larger ? send : recv;
	struct trial_side *inner = send_is_larger ? recv : send;
	size_t at = outer->blocks > 1 ? outer->offsets[rank] : 0;

	inner->base = outer->base + at * run->element;
	inner->is_borrowed = true;
}

static void make_buffers(struct trial_run *run, int rank)
{
	const struct trial *t = &run->trial;
	for (int side = 0; side < 2; side++) {
		struct trial_side *s = &run->sides[side][rank];
		lay_out(run, rank, side);
		if (!has_side(run, rank, side))
			continue;
		s->base = room(t, s->bytes);
		char *data = image(run, rank, side, false);
		if (side == RECV_SIDE)
			memset(data, 0xa5, s->bytes);
		write_side(run, s->base, data, s->bytes + GUARD);
		free(data);
	}
	struct trial_side *send = &run->sides[SEND_SIDE][rank],
			  *recv = &run->sides[RECV_SIDE][rank];
	if (!t->in_place || !send->base || !recv->base ||
	    t->algorithm->collective == COLL_ALL_TO_ALL)
		return;
	struct trial_side *inner = send->blocks > recv->blocks ? recv : send;
	char *lone = inner->base;
	borrow(run, rank);
	char *data = image(run, rank, SEND_SIDE, false);
	write_side(run, send->base, data, send->bytes);
	free(data);
	if (t->staged)
		proof_free(lone);
	else
		free(lone);
}

static enum collective variant(const struct trial *t)
{
	static const enum collective v[COLL_PATTERNS] = {[COLL_ALL_GATHER] = COLL_ALL_GATHERV,
							 [COLL_REDUCE_SCATTER] =
								 COLL_REDUCE_SCATTERV,
							 [COLL_GATHER] = COLL_GATHERV,
							 [COLL_SCATTER] = COLL_SCATTERV,
							 [COLL_ALL_TO_ALL] = COLL_ALL_TO_ALLV};
	return t->uneven ? v[t->algorithm->collective] : t->algorithm->collective;
}

static struct call_args args_of(const struct trial_run *run, int rank)
{
	const struct trial *t = &run->trial;
	struct call_args a = {.collective = variant(t),
			      .dtype = t->dtype,
			      .op = t->op,
			      .root = t->root,
			      .count = t->count,
			      .send = run->sides[SEND_SIDE][rank].base,
			      .recv = run->sides[RECV_SIDE][rank].base,
			      .fingerprint = 1};
	for (int side = 0; t->uneven && side < 2; side++) {
		a.counts[side] = run->sides[side][rank].counts;
		a.offsets[side] = run->sides[side][rank].offsets;
	}
	if (t->algorithm->collective == COLL_BARRIER)
		a.send = a.recv = NULL;
	return a;
}

static struct task_spec spec_of(const struct trial_run *run, int rank)
{
	const struct trial *t = &run->trial;
	struct plan_options options = {.staged = t->staged};
	struct task_spec spec = {.kind = &plan_tasks,
				 .plan = run->plans[rank],
				 .args = args_of(run, rank),
				 .memory = t->staged ? &memory_proof : &memory_host,
				 .name = collective_name(variant(t)),
				 .algorithm = t->algorithm->name,
				 .timeout_ms = t->timeout_ms ? t->timeout_ms : 3600000};
	spec.layout = layout_of(&spec.args, run->size, algorithm_split(t->algorithm, run->size));
	spec.width = algorithm_width(t->algorithm, run->size, options);
	spec.checks_counts = spec.args.collective == COLL_ALL_TO_ALLV;
	return spec;
}

void trial_start(struct trial_run *run, struct sim_ranks *ranks, const struct trial *trial,
		 void (*damage)(struct plan *plan, void *arg), void *arg)
{
	size_t n = (size_t)ranks->size;
	*run = (struct trial_run){.trial = *trial,
				  .size = ranks->size,
				  .element = dtype_bytes(trial->dtype),
				  .plans = calloc(n, sizeof(struct plan *)),
				  .sides = {calloc(n, sizeof(struct trial_side)),
					    calloc(n, sizeof(struct trial_side))},
				  .works = calloc(n, sizeof(struct tutti_work *))};
	assert(run->plans && run->sides[0] && run->sides[1] && run->works);
	for (int r = 0; r < run->size; r++) {
		make_buffers(run, r);
		struct plan_key key = {.rank = r,
				       .size = run->size,
				       .root = trial->root,
				       .in_place = run->sides[SEND_SIDE][r].base ==
						   run->sides[RECV_SIDE][r].base,
				       .options = {.staged = trial->staged},
				       .nodes = trial->nodes};
		run->plans[r] = algorithm_plan(trial->algorithm, &key);
		assert(run->plans[r]);
		if (damage)
			damage(run->plans[r], arg);
		struct task_spec spec = spec_of(run, r);
		if (r + 1 == trial->absent ||
		    engine_submit(ranks->engines[r], &spec, &run->works[r]) != TUTTI_OK)
			run->works[r] = NULL;
	}
}

static const char *verify(const struct trial_run *run, int rank)
{
	static char text[200];
	const struct trial_side *s = &run->sides[RECV_SIDE][rank];
	bool is_inner = s->is_borrowed; /* then what follows is send's, and no guard */
	size_t bytes = s->bytes + (is_inner ? 0 : GUARD);
	const char *wrong = NULL;

	if (!s->base || run->trial.algorithm->collective == COLL_BARRIER)
		return NULL;
	char *want = image(run, rank, RECV_SIDE, true), *got = malloc(bytes + 1);
	assert(got);
	if (run->trial.staged)
		proof_read(got, s->base, bytes);
	else
		memcpy(got, s->base, bytes);
	for (size_t i = 0; i < bytes && !wrong; i++)
		if (got[i] != want[i]) {
			snprintf(text, sizeof text, "rank %d has a wrong element %zu%s", rank,
				 i / run->element, i >= s->bytes ? " (past the end)" : "");
			wrong = text;
		}
	free(got);
	free(want);
	return wrong;
}

static void free_rank(struct trial_run *run, int r)
{
	for (int side = 0; side < 2; side++) {
		struct trial_side *s = &run->sides[side][r];
		free(s->counts);
		free(s->offsets);
		if (s->is_borrowed || !s->base)
			continue;
		if (run->trial.staged)
			proof_free(s->base);
		else
			free(s->base);
	}
	plan_free(run->plans[r]);
}

const char *trial_end(struct trial_run *run)
{
	const char *wrong = NULL;
	for (int r = 0; r < run->size; r++) {
		bool is_done = false;
		if (!run->works[r])
			wrong = "a rank did not take the call";
		else if (work_test(run->works[r], &is_done) != TUTTI_OK)
			wrong = "a rank's call failed";
		else if (!is_done)
			wrong = "a rank never ends";
		else if (!wrong)
			wrong = verify(run, r);
		work_release(run->works[r]);
	}
	for (int r = 0; r < run->size; r++)
		free_rank(run, r);
	free(run->plans);
	free(run->sides[0]);
	free(run->sides[1]);
	free(run->works);
	return wrong;
}

const char *trial_try(const struct trial *trial, const struct sim_ranks_config *config,
		      void (*damage)(struct plan *plan, void *arg), void *arg)
{
	struct sim_ranks ranks;
	struct trial_run run;
	bool ended = true;

	sim_ranks_open(&ranks, config);
	trial_start(&run, &ranks, trial, damage, arg);
	sim_ranks_run(&ranks);
	for (int r = 0; r < run.size; r++) {
		bool is_done = false;
		if (run.works[r])
			work_test(run.works[r], &is_done);
		ended &= is_done;
	}
	/* A hang must not outlive the test: destroy would wait for it. */
	for (int r = 0; r < run.size && !ended; r++)
		engine_fail(ranks.engines[r], TUTTI_ERR_ABORTED, "the simulation has stopped");
	const char *wrong = trial_end(&run);
	sim_ranks_close(&ranks);
	return ended ? wrong : "a rank never ends";
}

uint64_t sim_first_seed(void)
{
	const char *text = getenv("SEED");
	uint64_t seed = text ? strtoull(text, NULL, 0) : 20261120;
	printf("seed %llu (SEED=... repeats it)\n", (unsigned long long)seed);
	return seed ? seed : 1;
}

uint64_t sim_mix(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}
