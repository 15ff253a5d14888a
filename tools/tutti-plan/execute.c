/* Executes the plans of all ranks the way run.c does, one slice, with contributions instead of
 * bytes: lanes issue in order, at most LANE_DEPTH at once, steps wait for their edges, messages for
 * both their ends. In which order it goes on does not matter, since check_order has found that
 * plans fix what does. */
#include "execute.h"

#include "tools/must.h"

#include "collectives/engine/run.h"

static uint32_t read_operands(struct execution *x, int rank, uint32_t step)
{
	struct refs refs = look_reads(x->ranks[rank].plan, step);
	for (uint32_t i = 0; i < refs.n; i++)
		x->operands[i] = contents_read(x, rank, step, refs.at[i]);
	return refs.n;
}

static void execute_enqueue(struct execution *x, int rank, uint32_t lane)
{
	struct moving *m = &x->ranks[rank].lanes[lane];
	if (m->is_queued)
		return;
	m->is_queued = true;
	x->queue = must_grow(x->queue, x->queued, &x->room, sizeof *x->queue);
	x->queue[x->queued++] = (struct place_in_queue){rank, lane};
}

static void execute_step_done(struct execution *x, int rank, uint32_t step)
{
	struct rank_state *r = &x->ranks[rank];
	const struct plan *p = r->plan;
	const struct step *s = &p->steps[step];
	struct moving *m = &r->lanes[s->lane];

	r->is_done[step] = true;
	while (m->retired < m->posted && r->is_done[p->order[p->lanes[s->lane].first + m->retired]])
		m->retired++;
	execute_enqueue(x, rank, s->lane);
	for (uint32_t k = 0; k < s->succs; k++) {
		uint32_t next = p->edges[s->succ + k];
		if (--r->pending[next] == 0)
			execute_enqueue(x, rank, p->steps[next].lane);
	}
}

static void execute_take_along(struct execution *x, int rank, uint32_t step)
{
	struct refs refs = look_reads(x->ranks[rank].plan, step);
	for (uint32_t i = 0; i < refs.n; i++)
		x->ranks[rank].carried[refs.at - x->ranks[rank].plan->refs + i] =
			contents_read(x, rank, step, refs.at[i]);
}

static void execute_deliver(struct execution *x, int from, uint32_t send, int to, uint32_t recv)
{
	struct rank_state *a = &x->ranks[from], *b = &x->ranks[to];
	struct refs out = look_reads(a->plan, send), in = look_writes(b->plan, recv);

	if (x->rendezvous)
		execute_take_along(x, from, send);
	const uint32_t *carried = a->carried + (out.at - a->plan->refs);
	if (b->plan->steps[recv].kind == STEP_RECV_REDUCE) {
		x->operands[0] = contents_read(x, to, recv, look_reads(b->plan, recv).at[0]);
		x->operands[1] = carried[0];
		contents_compute(x, to, recv, 2);
	} else {
		for (uint32_t i = 0; i < in.n; i++)
			contents_write(x, to, recv, in.at[i], carried[i]);
	}
	if (x->rendezvous)
		execute_step_done(x, from, send);
	execute_step_done(x, to, recv);
}

/* Moves all messages between two ranks of which both ends are posted. */
static void deliver_posted(struct execution *x, int from, int to)
{
	uint32_t out = lane_map_find(&x->map, true, from, to) - 1;
	uint32_t in = lane_map_find(&x->map, false, to, from) - 1;
	const struct plan *a = x->ranks[from].plan, *b = x->ranks[to].plan;
	struct moving *s = &x->ranks[from].lanes[out], *r = &x->ranks[to].lanes[in];

	while (r->matched < s->posted && r->matched < r->posted && !x->failed) {
		uint32_t k = r->matched++;
		execute_deliver(x, from, a->order[a->lanes[out].first + k], to,
				b->order[b->lanes[in].first + k]);
	}
}

static void start_step(struct execution *x, int rank, uint32_t step)
{
	const struct step *s = &x->ranks[rank].plan->steps[step];

	if (s->kind == STEP_SEND) {
		if (!x->rendezvous) {
			execute_take_along(x, rank, step);
			execute_step_done(x, rank, step);
		}
		deliver_posted(x, rank, s->peer);
	} else if (s->peer >= 0) {
		deliver_posted(x, s->peer, rank);
	} else {
		contents_compute(x, rank, step, read_operands(x, rank, step));
		execute_step_done(x, rank, step);
	}
}

static void execute_issue(struct execution *x, int rank, uint32_t lane)
{
	struct rank_state *r = &x->ranks[rank];
	const struct lane *l = &r->plan->lanes[lane];
	struct moving *m = &r->lanes[lane];

	m->is_queued = false;
	while (m->posted < l->count && m->posted - m->retired < LANE_DEPTH && !x->failed) {
		uint32_t step = r->plan->order[l->first + m->posted];
		if (r->pending[step])
			return;
		m->posted++;
		start_step(x, rank, step);
	}
}

static void open_rank(struct execution *x, int rank)
{
	struct rank_state *r = &x->ranks[rank];
	const struct plan *p = x->set->of[rank];
	uint32_t cells = look_cells(p), refs = 0;

	for (uint32_t s = 0; s < p->count; s++)
		if (p->steps[s].ref + p->steps[s].refs > refs)
			refs = p->steps[s].ref + p->steps[s].refs;
	r->plan = p;
	r->lanes = must_alloc(p->lane_count, sizeof *r->lanes);
	r->pending = must_alloc(p->count, sizeof *r->pending);
	r->is_done = must_alloc(p->count, sizeof *r->is_done);
	r->holds = must_alloc(cells, sizeof *r->holds);
	r->writer = must_alloc(cells, sizeof *r->writer);
	r->carried = must_alloc(refs, sizeof *r->carried);
	for (uint32_t s = 0; s < p->count; s++)
		r->pending[s] = p->steps[s].deps;
	for (uint32_t c = 0; c < cells; c++)
		r->writer[c] = NONE;
}

static void close_rank(struct rank_state *r)
{
	free(r->lanes);
	free(r->pending);
	free(r->is_done);
	free(r->holds);
	free(r->writer);
	free(r->carried);
}

/* The first step that is not done; only: of the receives that were posted. */
static bool find_undone(const struct execution *x, bool only, int *rank, uint32_t *step)
{
	for (*rank = 0; *rank < x->set->size; ++*rank) {
		const struct rank_state *r = &x->ranks[*rank];
		for (*step = 0; *step < r->plan->count; ++*step)
			if (!r->is_done[*step] &&
			    (!only || (!r->pending[*step] && look_receives(r->plan, *step))))
				return true;
	}
	return false;
}

/* A receive that was posted says best why nothing goes on. */
static void check_ended(struct execution *x)
{
	int rank;
	uint32_t step;
	char words[512];

	if (x->failed ||
	    (!find_undone(x, true, &rank, &step) && !find_undone(x, false, &rank, &step)))
		return;
	look_step_in_words(x->ranks[rank].plan, step, words, sizeof words);
	finding_says(x->finding, "Rank %d: %s never ends%s.", rank, words,
		     x->rendezvous ? " when sends wait for their receives" : "");
	x->failed = true;
}

static void execute_check_end(struct execution *x)
{
	check_ended(x);
	for (int r = 0; r < x->set->size && !x->failed; r++)
		contents_check(x, r);
}

static uint32_t most_operands(const struct plan_set *set)
{
	uint32_t most = 2;
	for (int r = 0; r < set->size; r++)
		if (set->of[r]->max_refs > most)
			most = set->of[r]->max_refs;
	return most;
}

bool check_execution(const struct plan_set *set, bool rendezvous, struct finding *f)
{
	struct execution x = {.set = set,
			      .rendezvous = rendezvous,
			      .ranks = must_alloc((size_t)set->size, sizeof *x.ranks),
			      .operands = must_alloc(most_operands(set), sizeof *x.operands),
			      .finding = f};
	lane_map_open(&x.map, set);
	values_open(&x.values);
	for (int r = 0; r < set->size; r++) {
		open_rank(&x, r);
		contents_fill(&x, r);
		for (uint32_t l = 0; l < set->of[r]->lane_count; l++)
			execute_enqueue(&x, r, l);
	}
	while (x.queued && !x.failed) {
		struct place_in_queue at = x.queue[--x.queued];
		execute_issue(&x, at.rank, at.lane);
	}
	execute_check_end(&x);
	for (int r = 0; r < set->size; r++)
		close_rank(&x.ranks[r]);
	values_close(&x.values);
	lane_map_close(&x.map);
	free(x.ranks);
	free(x.operands);
	free(x.queue);
	return !x.failed;
}
