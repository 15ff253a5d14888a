/* Ranks over the simulated network, and one collective on all of them with its expectation. */
#include "sim_ranks.h"

#include "memory/dtype.h"
#include "tests/memory/proof_kind.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_engine(struct sim_ranks *ranks, const struct sim_ranks_config *config, int r,
			struct tutti_endpoint **eps, const struct route *routes)
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
	struct route *routes = calloc((size_t)n, sizeof *routes);
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

/* Small integers that differ by rank and index and whose sums are exact in every dtype used here.
 */
static int64_t value(const struct trial *t, int rank, size_t i)
{
	uint64_t x = (uint64_t)rank * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u + t->seed;
	x ^= x >> 29;
	x *= 0x94d049bb133111ebu;
	return (int64_t)((x >> 40) % 1000) - 500;
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

static int64_t combined(const struct trial *t, int size, size_t i)
{
	int64_t sum = 0;
	for (int r = 0; r < size; r++)
		sum += value(t, r, i);
	return t->op == TUTTI_AVG ? sum / size : sum;
}

/* Element i of rank's result. */
static int64_t expected(const struct trial_run *run, int rank, size_t i)
{
	const struct trial *t = &run->trial;
	switch (t->algorithm->collective) {
	case COLL_ALL_REDUCE:
		return combined(t, run->size, i);
	case COLL_REDUCE_SCATTER:
		return combined(t, run->size, (size_t)rank * t->count + i);
	case COLL_ALL_GATHER:
		return value(t, (int)(i / t->count), i % t->count);
	case COLL_BROADCAST:
		return value(t, t->root, i);
	default:
		return 0;
	}
}

/* ---- a trial
 * ------------------------------------------------------------------------------------- */

static void *room(const struct trial *t, size_t bytes)
{
	void *p = t->staged ? proof_alloc(bytes + 1) : calloc(1, bytes + 1);
	assert(p);
	return p;
}

static void fill(struct trial_run *run, int rank)
{
	const struct trial *t = &run->trial;
	char *data = calloc(1, run->send_bytes + 1);
	assert(data);
	for (size_t i = 0; i < run->send_bytes / run->element; i++)
		put(data, i, t->dtype, value(t, rank, i));
	if (t->staged)
		proof_write(run->send[rank], data, run->send_bytes);
	else
		memcpy(run->send[rank], data, run->send_bytes);
	free(data);
}

static void make_buffers(struct trial_run *run, int rank)
{
	const struct trial *t = &run->trial;
	size_t n = (size_t)run->size, bytes = t->count * run->element;
	enum collective c = t->algorithm->collective;

	run->send_bytes = c == COLL_REDUCE_SCATTER ? n * bytes : c == COLL_BARRIER ? 0 : bytes;
	run->recv_bytes = c == COLL_ALL_GATHER ? n * bytes : c == COLL_BARRIER ? 0 : bytes;
	if (!t->in_place) {
		run->send[rank] = room(t, run->send_bytes);
		run->recv[rank] = room(t, run->recv_bytes);
	} else if (c == COLL_ALL_GATHER) {
		run->recv[rank] = room(t, run->recv_bytes);
		run->send[rank] = (char *)run->recv[rank] + (size_t)rank * bytes;
	} else {
		run->send[rank] = room(t, run->send_bytes);
		run->recv[rank] = c == COLL_REDUCE_SCATTER
					  ? (char *)run->send[rank] + (size_t)rank * bytes
					  : run->send[rank];
	}
	if (c != COLL_BROADCAST || rank == t->root)
		fill(run, rank);
}

static struct layout layout_of(const struct trial_run *run)
{
	const struct trial *t = &run->trial;
	size_t n = (size_t)run->size;
	if (t->algorithm->collective == COLL_BARRIER)
		return (struct layout){1, 1};
	if (t->algorithm->in_parts && t->algorithm->out_parts)
		return (struct layout){(t->count + n - 1) / n, t->count};
	if (t->algorithm->in_parts || t->algorithm->out_parts)
		return (struct layout){t->count, t->count * n};
	return (struct layout){t->count, t->count};
}

void trial_start(struct trial_run *run, struct sim_ranks *ranks, const struct trial *trial,
		 void (*damage)(struct plan *plan, void *arg), void *arg)
{
	size_t n = (size_t)ranks->size;
	*run = (struct trial_run){.trial = *trial,
				  .size = ranks->size,
				  .element = dtype_bytes(trial->dtype),
				  .plans = calloc(n, sizeof(struct plan *)),
				  .send = calloc(n, sizeof(void *)),
				  .recv = calloc(n, sizeof(void *)),
				  .works = calloc(n, sizeof(struct tutti_work *))};
	assert(run->plans && run->send && run->recv && run->works);
	for (int r = 0; r < run->size; r++) {
		make_buffers(run, r);
		run->plans[r] = algorithm_plan(trial->algorithm, r, run->size, trial->root,
					       trial->in_place, trial->staged);
		assert(run->plans[r]);
		if (damage)
			damage(run->plans[r], arg);
		struct job_spec spec = {.plan = run->plans[r],
					.layout = layout_of(run),
					.width = trial->algorithm->width(run->size),
					.memory = trial->staged ? &memory_proof : &memory_host,
					.args = {.collective = trial->algorithm->collective,
						 .dtype = trial->dtype,
						 .op = trial->op,
						 .root = trial->root,
						 .count = trial->count,
						 .send = run->send[r],
						 .recv = run->recv[r],
						 .fingerprint = 1},
					.name = collective_name(trial->algorithm->collective),
					.algorithm = trial->algorithm->name,
					.timeout_ms =
						trial->timeout_ms ? trial->timeout_ms : 3600000};
		if (r + 1 == trial->absent ||
		    engine_submit(ranks->engines[r], &spec, &run->works[r]) != TUTTI_OK)
			run->works[r] = NULL;
	}
}

static const char *verify(const struct trial_run *run, int rank)
{
	static char text[200];
	char *got = malloc(run->recv_bytes + 1), want[8];
	const char *wrong = NULL;

	assert(got);
	if (run->trial.staged)
		proof_read(got, run->recv[rank], run->recv_bytes);
	else
		memcpy(got, run->recv[rank], run->recv_bytes);
	for (size_t i = 0; i < run->recv_bytes / run->element && !wrong; i++) {
		put(want, 0, run->trial.dtype, expected(run, rank, i));
		if (memcmp(got + i * run->element, want, run->element) != 0) {
			snprintf(text, sizeof text, "rank %d has a wrong element %zu", rank, i);
			wrong = text;
		}
	}
	free(got);
	return wrong;
}

static void free_rank(struct trial_run *run, int r)
{
	bool send_is_base =
		!run->trial.in_place || run->trial.algorithm->collective != COLL_ALL_GATHER;
	void *base = send_is_base ? run->send[r] : run->recv[r];
	if (run->trial.staged)
		proof_free(base);
	else
		free(base);
	if (!run->trial.in_place && run->trial.staged)
		proof_free(run->recv[r]);
	else if (!run->trial.in_place)
		free(run->recv[r]);
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
	free(run->send);
	free(run->recv);
	free(run->works);
	return wrong;
}
