/* Do the plans of all ranks look alike when each rank calls its peers by how far away they are? */
#include "world.h"

#include <string.h>

#define SAMPLES     16
#define STEPS_FULLY (1 << 22) /* so many in all plans together: every rank is looked at */

enum link world_link(const struct plan_set *set, int a, int b)
{
	struct nodes nodes = look_nodes(set);
	return node_of(&nodes, a) == node_of(&nodes, b) ? LINK_LOCAL : LINK_NET;
}

int symmetry_name(enum symmetry symmetry, const struct plan_set *set, int rank, int peer)
{
	int local = set->size / set->nodes;

	if (symmetry == SYMMETRY_XOR)
		return peer ^ rank;
	if (symmetry == SYMMETRY_TORUS)
		return modulo(peer / local - rank / local, set->nodes) * local +
		       modulo(peer % local - rank % local, local);
	return modulo(peer - rank, set->size);
}

static uint64_t symmetry_mix(uint64_t hash, uint64_t word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
	return hash ^ hash >> 29;
}

/* Of everything that time depends on. The order in which a step names what it reads, or those that
 * wait for it, does not matter. */
static uint64_t symmetry_hash_of(enum symmetry symmetry, const struct plan_set *set,
				 const struct plan *p)
{
	uint64_t hash = symmetry_mix(p->count, p->lane_count);

	for (uint32_t l = 0; l < p->lane_count; l++) {
		int peer = p->lanes[l].peer;
		hash = symmetry_mix(hash, p->lanes[l].sends);
		hash = symmetry_mix(
			hash, peer < 0 ? UINT64_MAX
				       : (uint64_t)symmetry_name(symmetry, set, p->rank, peer));
		hash = symmetry_mix(hash, peer < 0 ? 0 : world_link(set, p->rank, peer));
	}
	for (uint32_t i = 0; i < p->count; i++) {
		const struct step *s = &p->steps[i];
		uint64_t succs = 0;
		for (uint32_t k = 0; k < s->succs; k++)
			succs += symmetry_mix(1, p->edges[s->succ + k]);
		hash = symmetry_mix(hash, (uint64_t)s->kind << 32 | s->lane);
		hash = symmetry_mix(hash, (uint64_t)s->deps << 32 | s->refs);
		hash = symmetry_mix(hash, succs);
	}
	return hash;
}

/* A few at both ends and in the middle, where trees and chains differ, and some between. */
static int symmetry_sample(const struct plan_set *set, int i)
{
	if (i < 4)
		return i % set->size;
	if (i < 8)
		return modulo(-(i - 3), set->size);
	if (i < 10)
		return set->size / 2 - (i - 8);
	return (int)((uint64_t)i * 0x9e3779b97f4a7c15u % (uint64_t)set->size);
}

static bool symmetry_holds(enum symmetry symmetry, const struct plan_set *set)
{
	struct plan *first = look_build(set, 0);
	uint64_t hash = symmetry_hash_of(symmetry, set, first);
	bool fully = (uint64_t)first->count * (uint64_t)set->size <= STEPS_FULLY;
	int n = fully ? set->size : SAMPLES;
	bool same = true;

	plan_free(first);
	for (int i = 0; i < n && same; i++) {
		struct plan *p = look_build(set, fully ? i : symmetry_sample(set, i));
		same = symmetry_hash_of(symmetry, set, p) == hash;
		plan_free(p);
	}
	return same;
}

enum symmetry symmetry_of(const struct plan_set *set)
{
	if (symmetry_holds(SYMMETRY_ROTATION, set))
		return SYMMETRY_ROTATION;
	if ((set->size & (set->size - 1)) == 0 && symmetry_holds(SYMMETRY_XOR, set))
		return SYMMETRY_XOR;
	return set->nodes > 1 && symmetry_holds(SYMMETRY_TORUS, set) ? SYMMETRY_TORUS
								     : SYMMETRY_NONE;
}
