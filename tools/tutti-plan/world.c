/* Joins the plans of all ranks: each lane knows its other end. */
#include "world.h"

#include "tools/must.h"

#include <string.h>

/* Do the plans of all ranks look alike when each rank calls its peers by how far away they
 * are? */

#define SAMPLES     16
#define STEPS_FULLY (1 << 22) /* so many in all plans together: every rank is looked at */

static enum link world_link(const struct plan_set *set, int a, int b)
{
	struct nodes nodes = look_nodes(set);
	return node_of(&nodes, a) == node_of(&nodes, b) ? LINK_LOCAL : LINK_NET;
}

static int world_symmetry_name(enum symmetry symmetry, const struct plan_set *set, int rank,
			       int peer)
{
	return symmetry == SYMMETRY_XOR ? peer ^ rank : modulo(peer - rank, set->size);
}

static uint64_t world_symmetry_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

/* Of everything that time depends on. The order in which a step names what it reads, or those that
 * wait for it, does not matter. */
static uint64_t world_symmetry_hash_of(enum symmetry symmetry, const struct plan_set *set,
				       const struct plan *p)
{
	uint64_t hash = world_symmetry_mix(p->count, p->lane_count);

	for (uint32_t l = 0; l < p->lane_count; l++) {
		int peer = p->lanes[l].peer;
		hash = world_symmetry_mix(hash, p->lanes[l].sends);
		hash = world_symmetry_mix(hash, peer < 0 ? UINT64_MAX
							 : (uint64_t)world_symmetry_name(
								   symmetry, set, p->rank, peer));
		hash = world_symmetry_mix(hash, peer < 0 ? 0 : world_link(set, p->rank, peer));
	}
	for (uint32_t i = 0; i < p->count; i++) {
		const struct step *s = &p->steps[i];
		uint64_t succs = 0;
		for (uint32_t k = 0; k < s->succs; k++)
			succs += world_symmetry_mix(1, p->edges[s->succ + k]);
		hash = world_symmetry_mix(hash, (uint64_t)s->kind << 32 | s->lane);
		hash = world_symmetry_mix(hash, (uint64_t)s->deps << 32 | s->refs);
		hash = world_symmetry_mix(hash, succs);
	}
	return hash;
}

/* A few at both ends and in the middle, where trees and chains differ, and some between. */
static int world_symmetry_sample(const struct plan_set *set, int i)
{
	if (i < 4)
		return i % set->size;
	if (i < 8)
		return modulo(-(i - 3), set->size);
	if (i < 10)
		return set->size / 2 - (i - 8);
	return (int)((uint64_t)i * 0x9e3779b97f4a7c15u % (uint64_t)set->size);
}

static bool world_symmetry_holds(enum symmetry symmetry, const struct plan_set *set)
{
	struct plan *first = look_build(set, 0);
	uint64_t hash = world_symmetry_hash_of(symmetry, set, first);
	bool fully = (uint64_t)first->count * (uint64_t)set->size <= STEPS_FULLY;
	int n = fully ? set->size : SAMPLES;
	bool same = true;

	plan_free(first);
	for (int i = 0; i < n && same; i++) {
		struct plan *p = look_build(set, fully ? i : world_symmetry_sample(set, i));
		same = world_symmetry_hash_of(symmetry, set, p) == hash;
		plan_free(p);
	}
	return same;
}

/* Ranks of a node share its ports, so none stands for all. */
enum symmetry symmetry_of(const struct plan_set *set)
{
	if (set->nodes > 1 && set->nodes < set->size)
		return SYMMETRY_NONE;
	if (world_symmetry_holds(SYMMETRY_ROTATION, set))
		return SYMMETRY_ROTATION;
	return (set->size & (set->size - 1)) == 0 && world_symmetry_holds(SYMMETRY_XOR, set)
		       ? SYMMETRY_XOR
		       : SYMMETRY_NONE;
}

/* The lanes of all ranks, joined. */

static void world_add_edges(struct world *w, const struct plan *p, uint32_t step, uint32_t first)
{
	for (uint32_t k = 0; k < p->steps[step].succs; k++) {
		w->edges = must_grow(w->edges, w->edge_count, &w->edges_room, sizeof *w->edges);
		w->edges[w->edge_count++] = first + p->edges[p->steps[step].succ + k];
	}
}

static void world_add_steps(struct world *w, const struct plan *p)
{
	uint32_t first = (uint32_t)w->step_count, first_lane = (uint32_t)w->lane_count;

	for (uint32_t i = 0; i < p->count; i++) {
		const struct step *s = &p->steps[i];
		w->steps = must_grow(w->steps, w->step_count, &w->steps_room, sizeof *w->steps);
		w->order = must_grow(w->order, w->step_count, &w->order_room, sizeof *w->order);
		w->order[w->step_count] = first + p->order[i];
		w->steps[w->step_count++] = (struct world_step){.lane = first_lane + s->lane,
								.deps = s->deps,
								.succ = (uint32_t)w->edge_count,
								.succs = s->succs,
								.chunks = s->refs,
								.kind = (uint8_t)s->kind};
		world_add_edges(w, p, i, first);
	}
}

static void world_add_rank(struct world *w, const struct plan_set *set, const struct plan *p,
			   int rank)
{
	uint32_t first = (uint32_t)w->step_count;

	w->first_step[rank] = first;
	w->first_lane[rank] = (uint32_t)w->lane_count;
	world_add_steps(w, p);
	for (uint32_t l = 0; l < p->lane_count; l++) {
		const struct lane *lane = &p->lanes[l];
		w->lanes = must_grow(w->lanes, w->lane_count, &w->lanes_room, sizeof *w->lanes);
		w->lanes[w->lane_count] = (struct world_lane){.rank = (uint32_t)rank,
							      .first = first + lane->first,
							      .count = lane->count,
							      .other = (uint32_t)w->lane_count,
							      .sends = lane->sends,
							      .is_local = lane->peer < 0};
		if (lane->peer >= 0) {
			/* Until they are joined: the peer's number. */
			w->lanes[w->lane_count].other = (uint32_t)lane->peer;
			w->lanes[w->lane_count].link =
				(uint8_t)world_link(set, p->rank, lane->peer);
		}
		w->lane_count++;
	}
}

/* Which rank receives, from which, on which lane. */
struct end {
	uint32_t rank, peer, lane;
};

static int world_compare_ends(const void *a, const void *b)
{
	const struct end *x = a, *y = b;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return (x->peer > y->peer) - (x->peer < y->peer);
}

/* How the lane's receiver calls itself and its sender. Where one rank stands for all it is both:
 * the sender is the peer as seen from rank 0, and rank 0 as seen from the peer it sends to. */
static struct end world_names(const struct world *w, const struct plan_set *set, uint32_t lane)
{
	const struct world_lane *l = &w->lanes[lane];
	int peer = (int)l->other;

	if (w->symmetry == SYMMETRY_NONE)
		return l->sends ? (struct end){l->other, l->rank, lane}
				: (struct end){l->rank, l->other, lane};
	return (struct end){0,
			    (uint32_t)(l->sends ? world_symmetry_name(w->symmetry, set, peer, 0)
						: world_symmetry_name(w->symmetry, set, 0, peer)),
			    lane};
}

/* False: a lane has no other end. */
static bool world_join(struct world *w, const struct plan_set *set)
{
	struct end *ends = must_alloc(w->lane_count, sizeof *ends);
	size_t n = 0, joined = 0, sends = 0;

	for (uint32_t l = 0; l < w->lane_count; l++)
		if (!w->lanes[l].sends && !w->lanes[l].is_local)
			ends[n++] = world_names(w, set, l);
	qsort(ends, n, sizeof *ends, world_compare_ends);
	for (uint32_t l = 0; l < w->lane_count; l++) {
		if (!w->lanes[l].sends)
			continue;
		struct end name = world_names(w, set, l);
		struct end *end = bsearch(&name, ends, n, sizeof *ends, world_compare_ends);
		sends++;
		if (!end || w->lanes[end->lane].count != w->lanes[l].count)
			break;
		w->lanes[l].other = end->lane;
		joined++;
	}
	for (uint32_t l = 0; l < w->lane_count && joined == sends; l++)
		if (w->lanes[l].sends)
			w->lanes[w->lanes[l].other].other = l;
	free(ends);
	return joined == sends && joined == n;
}

/* Chunks that plans have and name, of all ranks together: a few seconds. */
#define WORK_MAX 100000000

bool world_open(struct world *w, const struct plan_set *set, size_t steps_max, bool exact)
{
	memset(w, 0, sizeof *w);
	w->size = set->size;
	w->local = set->size / set->nodes;
	w->symmetry = exact ? SYMMETRY_NONE : symmetry_of(set);
	w->ranks = w->symmetry == SYMMETRY_NONE ? set->size : 1;
	w->first_step = must_alloc((size_t)w->ranks + 1, sizeof(uint32_t));
	w->first_lane = must_alloc((size_t)w->ranks + 1, sizeof(uint32_t));
	bool fits = true;
	size_t work = 0; /* plans of few steps may name many chunks */
	for (int r = 0; r < w->ranks && fits; r++) {
		struct plan *p = set->of ? set->of[r] : look_build(set, r);
		work += look_cells(p) + (p->count ? p->steps[p->count - 1].ref : 0);
		fits = w->step_count + p->count <= steps_max && work <= WORK_MAX;
		if (fits)
			world_add_rank(w, set, p, r);
		if (!set->of)
			plan_free(p);
	}
	w->first_step[w->ranks] = (uint32_t)w->step_count;
	w->first_lane[w->ranks] = (uint32_t)w->lane_count;
	if (fits && world_join(w, set))
		return true;
	world_close(w);
	return false;
}

void world_close(struct world *w)
{
	free(w->steps);
	free(w->lanes);
	free(w->edges);
	free(w->order);
	free(w->first_step);
	free(w->first_lane);
	memset(w, 0, sizeof *w);
}
