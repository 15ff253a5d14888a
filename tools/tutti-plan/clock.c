/* Lanes issue steps as run.c does, messages take the ports of ranks and nodes, events say when. */
#include "clock.h"

#include "tools/must.h"

#include "collectives/engine/cursor.h"
#include "collectives/engine/run.h"

#include <math.h>
#include <string.h>

/* The queue of events: Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the shortest
 * path problem", 1990. */

#define TAKEN 64 /* the bucket that no time needs: what was handed out lies there */

void events_open(struct events *e)
{
	memset(e, 0, sizeof *e);
}

void events_close(struct events *e)
{
	for (int b = 0; b < 65; b++)
		free(e->bucket[b].event);
}

static int clock_events_bucket(const struct events *e, uint64_t at)
{
	return at == e->now ? 0 : 64 - __builtin_clzll(at ^ e->now);
}

static void clock_events_put(struct events *e, int b, struct event event)
{
	e->bucket[b].event =
		must_grow(e->bucket[b].event, e->bucket[b].count, &e->bucket[b].room, sizeof event);
	e->bucket[b].event[e->bucket[b].count++] = event;
}

void events_add(struct events *e, struct event event)
{
	clock_events_put(e, clock_events_bucket(e, event.at), event);
	e->pending++;
}

/* Moves time on to the earliest event, and what is in its bucket closer to bucket 0. */
static void clock_events_advance(struct events *e)
{
	int b = 1;
	while (e->bucket[b].count == 0)
		b++;
	size_t n = e->bucket[b].count;
	const struct event *event = e->bucket[b].event;
	e->now = event[0].at;
	for (size_t i = 1; i < n; i++)
		if (event[i].at < e->now)
			e->now = event[i].at;
	e->bucket[b].count = 0;
	for (size_t i = 0; i < n; i++)
		clock_events_put(e, clock_events_bucket(e, event[i].at), event[i]);
}

size_t events_take(struct events *e, const struct event **due)
{
	struct event *event = e->bucket[TAKEN].event;
	size_t room = e->bucket[TAKEN].room;

	if (e->pending == 0)
		return 0;
	if (e->bucket[0].count == 0)
		clock_events_advance(e);
	e->bucket[TAKEN] = e->bucket[0];
	size_t n = e->bucket[TAKEN].count;
	e->bucket[TAKEN].count = 0;
	e->bucket[0].event = event;
	e->bucket[0].room = room;
	e->bucket[0].count = 0;
	e->pending -= n;
	*due = e->bucket[TAKEN].event;
	return n;
}

/* Lanes issue steps, messages take ports. */

enum { ARRIVES, LANDED, SENT, COMPUTED };

struct lane_clock {
	struct cursor cursor;
	uint32_t posted, retired, depth;   /* ios                                             */
	uint32_t started, landed, matched; /* messages: on their way; here; of a posted io    */
	uint32_t ios;                      /* the lane's first                                */
	bool is_dirty;
};

struct io {
	uint32_t step, slice;
	bool is_done;
};

struct rank_clock {
	uint64_t send_free, receive_free, compute_free;
	uint32_t finished; /* slices */
};

struct clock {
	const struct world *world;
	const struct machine *machine;
	struct slices slices;
	uint32_t slots, interleave;
	struct lane_clock *lanes;
	struct io *ios;
	struct rank_clock *ranks;
	uint64_t *node_free[2]; /* of the node's port: in, out                              */
	uint32_t *pending;      /* [step * slots + slot]                                    */
	uint32_t *left;         /* [rank * slots + slot]                                    */
	uint32_t *dirty;
	size_t dirty_count, dirty_room;
	struct events events;
	struct run_time result;
};

struct slices clock_cut(const struct machine *m, double chunk_bytes, uint32_t width)
{
	struct run_limits limits = {m->element, m->slice_bytes, m->scratch_bytes};
	size_t longest = (size_t)ceil(chunk_bytes / (double)m->element);
	struct run_cut cut = run_cut(longest, true, width, &limits);

	return (struct slices){cut.slices, chunk_bytes, (double)(cut.elements * m->element)};
}

static uint64_t clock_ticks(double seconds)
{
	return (uint64_t)(seconds * 1e12 + 0.5);
}

static uint64_t clock_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static double clock_slice_bytes(const struct clock *c, const struct io *io)
{
	double at = io->slice * c->slices.slice, left = c->slices.chunk - at;
	return left < 0 ? 0 : left < c->slices.slice ? left : c->slices.slice;
}

static double clock_message_bytes(const struct clock *c, const struct io *io)
{
	return clock_slice_bytes(c, io) * c->world->steps[io->step].chunks;
}

static void clock_mark_dirty(struct clock *c, uint32_t lane)
{
	if (c->lanes[lane].is_dirty)
		return;
	c->lanes[lane].is_dirty = true;
	c->dirty = must_grow(c->dirty, c->dirty_count, &c->dirty_room, sizeof *c->dirty);
	c->dirty[c->dirty_count++] = lane;
}

static void clock_refill(struct clock *c, uint32_t rank, uint32_t slot)
{
	const struct world *w = c->world;
	for (uint32_t s = w->first_step[rank]; s < w->first_step[rank + 1]; s++)
		c->pending[(size_t)s * c->slots + slot] = w->steps[s].deps;
	c->left[(size_t)rank * c->slots + slot] = w->first_step[rank + 1] - w->first_step[rank];
}

static void clock_slice_done(struct clock *c, uint32_t rank)
{
	struct rank_clock *r = &c->ranks[rank];
	while (r->finished < c->slices.count &&
	       c->left[(size_t)rank * c->slots + r->finished % c->slots] == 0) {
		clock_refill(c, rank, r->finished % c->slots);
		r->finished++;
	}
	for (uint32_t l = c->world->first_lane[rank];
	     r->finished < c->slices.count && l < c->world->first_lane[rank + 1]; l++)
		clock_mark_dirty(c, l);
}

static void clock_complete(struct clock *c, uint32_t lane, uint32_t at)
{
	const struct world *w = c->world;
	struct lane_clock *l = &c->lanes[lane];
	struct io *io = &c->ios[l->ios + at];
	const struct world_step *s = &w->steps[io->step];
	uint32_t slot = io->slice % c->slots, rank = w->lanes[lane].rank;

	io->is_done = true;
	while (l->retired != l->posted && c->ios[l->ios + l->retired % l->depth].is_done)
		l->retired++;
	clock_mark_dirty(c, lane);
	for (uint32_t k = s->succ; k < s->succ + s->succs; k++)
		if (--c->pending[(size_t)w->edges[k] * c->slots + slot] == 0)
			clock_mark_dirty(c, w->steps[w->edges[k]].lane);
	if (--c->left[(size_t)rank * c->slots + slot] == 0)
		clock_slice_done(c, rank);
}

static const struct link_speed *clock_speed(const struct clock *c, uint32_t lane)
{
	return &c->machine->links.link[c->world->lanes[lane].link];
}

/* The port of the lane's node, if its messages use it. */
static uint64_t *clock_node_port(struct clock *c, uint32_t lane, bool sends)
{
	const struct world *w = c->world;
	if (w->lanes[lane].link != LINK_NET || w->local == 1)
		return NULL;
	return &c->node_free[sends][w->lanes[lane].rank / (uint32_t)w->local];
}

static uint64_t clock_wire_ticks(const struct clock *c, uint32_t lane, double bytes)
{
	return clock_ticks(bytes * clock_speed(c, lane)->beta);
}

/* Takes the ports of the lane's rank and node, not before begin. Returns when the bytes are
 * through. */
static uint64_t clock_occupy(struct clock *c, uint32_t lane, uint64_t begin, double bytes)
{
	bool sends = c->world->lanes[lane].sends;
	struct rank_clock *rank = &c->ranks[c->world->lanes[lane].rank];
	uint64_t *rank_free = sends ? &rank->send_free : &rank->receive_free;
	uint64_t *node_free = clock_node_port(c, lane, sends);

	begin = clock_later(begin, *rank_free) + clock_ticks(clock_speed(c, lane)->overhead);
	if (node_free) {
		begin = clock_later(begin, *node_free);
		*node_free = begin + clock_ticks(bytes * c->machine->node_beta);
	}
	return *rank_free = begin + clock_wire_ticks(c, lane, bytes);
}

static void clock_compute(struct clock *c, uint32_t lane, uint32_t at, double bytes)
{
	uint64_t *free_at = &c->ranks[c->world->lanes[lane].rank].compute_free;
	*free_at =
		clock_later(c->events.now, *free_at) + clock_ticks(bytes * c->machine->links.gamma);
	events_add(&c->events,
		   (struct event){.at = *free_at, .kind = COMPUTED, .lane = lane, .io = at});
}

/* Messages that have landed meet the receives that are posted. */
static void clock_match(struct clock *c, uint32_t lane)
{
	struct lane_clock *l = &c->lanes[lane];
	while (l->matched < l->landed && l->matched < l->posted) {
		uint32_t at = l->matched++ % l->depth;
		const struct io *io = &c->ios[l->ios + at];
		if (c->world->steps[io->step].kind == STEP_RECV_REDUCE)
			clock_compute(c, lane, at, clock_slice_bytes(c, io));
		else
			clock_complete(c, lane, at);
	}
}

/* The first byte of a message is at the receiver's port. */
static void clock_arrive(struct clock *c, const struct event *e)
{
	uint64_t end = clock_occupy(c, e->lane, e->at, e->bytes);
	events_add(&c->events, (struct event){.at = end, .kind = LANDED, .lane = e->lane});
}

static void clock_start_message(struct clock *c, uint32_t lane, uint32_t at)
{
	const struct link_speed *speed = clock_speed(c, lane);
	double bytes = clock_message_bytes(c, &c->ios[c->lanes[lane].ios + at]);
	uint64_t end = clock_occupy(c, lane, c->events.now, bytes);
	/* At a free port the message lands alpha + bytes * beta after it left. */
	uint64_t at_port = end - clock_wire_ticks(c, lane, bytes) - clock_ticks(speed->overhead) +
			   clock_ticks(speed->alpha) - clock_ticks(speed->overhead);

	c->result.messages++;
	c->result.bytes += (uint64_t)bytes;
	events_add(&c->events, (struct event){.at = end, .kind = SENT, .lane = lane, .io = at});
	events_add(&c->events, (struct event){.at = clock_later(at_port, c->events.now),
					      .kind = ARRIVES,
					      .lane = c->world->lanes[lane].other,
					      .bytes = (float)bytes});
}

static void clock_start_messages(struct clock *c, uint32_t lane)
{
	struct lane_clock *l = &c->lanes[lane];
	const struct lane_clock *other = &c->lanes[c->world->lanes[lane].other];
	while (l->started < l->posted && (!c->machine->rendezvous || l->started < other->posted)) {
		l->started++;
		clock_start_message(c, lane, (l->started - 1) % l->depth);
	}
}

static void clock_post(struct clock *c, uint32_t lane, uint32_t step, uint32_t slice)
{
	const struct world_lane *to = &c->world->lanes[lane];
	const struct world_step *s = &c->world->steps[step];
	struct lane_clock *l = &c->lanes[lane];
	uint32_t at = l->posted++ % l->depth;
	struct io *io = &c->ios[l->ios + at];

	*io = (struct io){step, slice, false};
	if (to->is_local) {
		double adds = s->kind == STEP_REDUCE ? (double)s->chunks - 1 : 0;
		clock_compute(c, lane, at, clock_slice_bytes(c, io) * adds);
	} else if (to->sends) {
		clock_start_messages(c, lane);
	} else {
		clock_match(c, lane);
		if (c->machine->rendezvous)
			clock_start_messages(c, to->other);
	}
}

static void clock_issue(struct clock *c, uint32_t lane)
{
	const struct world_lane *l = &c->world->lanes[lane];
	struct lane_clock *at = &c->lanes[lane];

	at->is_dirty = false;
	while (at->cursor.base < c->slices.count && at->posted - at->retired < at->depth) {
		uint32_t slice = cursor_slice(&at->cursor);
		uint32_t step = c->world->order[l->first + at->cursor.index];
		const uint32_t *pending = &c->pending[(size_t)step * c->slots];
		if (cursor_must_wait(&at->cursor, pending, c->slots, c->ranks[l->rank].finished))
			return;
		cursor_advance(&at->cursor, l->count, c->slices.count, c->interleave);
		clock_post(c, lane, step, slice);
	}
}

static int clock_compare_lanes(const void *a, const void *b)
{
	const uint32_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* In the order of lanes, so that one rank that stands for all does as each of them would. */
static void clock_issue_dirty(struct clock *c)
{
	while (c->dirty_count) {
		size_t n = c->dirty_count;
		if (n > 1)
			qsort(c->dirty, n, sizeof *c->dirty, clock_compare_lanes);
		for (size_t i = 0; i < n; i++)
			clock_issue(c, c->dirty[i]);
		memmove(c->dirty, c->dirty + n, (c->dirty_count - n) * sizeof *c->dirty);
		c->dirty_count -= n;
	}
}

static void clock_open_lanes(struct clock *c)
{
	const struct world *w = c->world;
	size_t ios = 0;

	c->lanes = must_alloc(w->lane_count, sizeof *c->lanes);
	for (uint32_t l = 0; l < w->lane_count; l++) {
		size_t all = (size_t)w->lanes[l].count * c->slices.count;
		c->lanes[l].depth = all < LANE_DEPTH ? (uint32_t)all : LANE_DEPTH;
		c->lanes[l].ios = (uint32_t)ios;
		ios += c->lanes[l].depth;
	}
	c->ios = must_alloc(ios, sizeof *c->ios);
}

static void clock_open(struct clock *c)
{
	const struct world *w = c->world;
	size_t ranks = (size_t)w->ranks;

	c->slots = c->slices.count < RUN_SLOTS ? c->slices.count : RUN_SLOTS;
	c->interleave = c->slices.count < RUN_INTERLEAVE ? c->slices.count : RUN_INTERLEAVE;
	clock_open_lanes(c);
	c->ranks = must_alloc(ranks, sizeof *c->ranks);
	for (int sends = 0; sends < 2; sends++)
		c->node_free[sends] =
			must_alloc(ranks / (size_t)w->local + 1, sizeof **c->node_free);
	c->pending = must_alloc(w->step_count * c->slots, sizeof *c->pending);
	c->left = must_alloc(ranks * c->slots, sizeof *c->left);
	events_open(&c->events);
	for (uint32_t r = 0; r < (uint32_t)w->ranks; r++)
		for (uint32_t s = 0; s < c->slots; s++)
			clock_refill(c, r, s);
	for (uint32_t l = 0; l < w->lane_count; l++)
		clock_mark_dirty(c, l);
}

static void clock_close(struct clock *c)
{
	free(c->lanes);
	free(c->ios);
	free(c->ranks);
	free(c->node_free[0]);
	free(c->node_free[1]);
	free(c->pending);
	free(c->left);
	free(c->dirty);
	events_close(&c->events);
}

static void clock_happen(struct clock *c, const struct event *e)
{
	switch (e->kind) {
	case ARRIVES:
		clock_arrive(c, e);
		break;
	case LANDED:
		c->lanes[e->lane].landed++;
		clock_match(c, e->lane);
		break;
	default:
		clock_complete(c, e->lane, e->io);
	}
}

/* A receive that was posted says best why nothing goes on, a send least. */
static uint32_t clock_stuck_step(const struct clock *c, int rank)
{
	const struct world *w = c->world;
	uint32_t step = w->first_step[rank];
	int best = 0;

	for (uint32_t l = w->first_lane[rank]; l < w->first_lane[rank + 1]; l++) {
		const struct lane_clock *lane = &c->lanes[l];
		bool is_posted = lane->retired != lane->posted;
		bool has_more = lane->cursor.base < c->slices.count;
		int says = is_posted ? (w->lanes[l].sends ? 1 : 3) : has_more ? 2 : 0;
		if (says <= best)
			continue;
		best = says;
		step = is_posted ? c->ios[lane->ios + lane->retired % lane->depth].step
				 : w->order[w->lanes[l].first + lane->cursor.index];
	}
	return step - w->first_step[rank];
}

struct run_time clock_run(const struct world *w, const struct machine *m, struct slices slices)
{
	struct clock c = {.world = w, .machine = m, .slices = slices, .result = {.stuck = -1}};
	const struct event *due;
	size_t n;

	clock_open(&c);
	clock_issue_dirty(&c);
	while ((n = events_take(&c.events, &due))) {
		for (size_t i = 0; i < n; i++)
			clock_happen(&c, &due[i]);
		clock_issue_dirty(&c);
	}
	for (int r = w->ranks - 1; r >= 0; r--)
		if (w->first_step[r + 1] > w->first_step[r] && c.ranks[r].finished < slices.count)
			c.result.stuck = r;
	if (c.result.stuck >= 0)
		c.result.stuck_step = clock_stuck_step(&c, c.result.stuck);
	c.result.seconds = (double)c.events.now * 1e-12;
	struct run_time result = c.result;
	clock_close(&c);
	return result;
}
