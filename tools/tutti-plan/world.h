/* The plans of a call made small, to be run in virtual time by clock.c: those of all ranks, or, where all do
 * the same but for names, of one rank that stands for all. */
#ifndef TUTTI_PLAN_WORLD_H
#define TUTTI_PLAN_WORLD_H

#include "look.h"

/* Among which the plans of all ranks are one plan: peers count from the rank itself. */
enum symmetry {
	SYMMETRY_NONE,
	SYMMETRY_ROTATION, /* peer - rank, modulo their number                         */
	SYMMETRY_XOR,      /* peer ^ rank, of a power of two                           */
};

struct world_step {
	uint32_t lane, deps;
	uint32_t succ, succs; /* slice of edges */
	uint32_t chunks;      /* of a message; read by a reduction */
	uint8_t kind;         /* enum step_kind */
};

struct world_lane {
	uint32_t rank, first, count; /* slice of order */
	uint32_t other;              /* the peer's lane at the other end; this one if local */
	uint8_t link;                /* enum link */
	bool sends, is_local;
};

struct world {
	int size, ranks, local; /* of the communicator; of those in here; ranks of a node */
	enum symmetry symmetry;
	struct world_step *steps;
	struct world_lane *lanes;
	uint32_t *edges, *order;
	uint32_t *first_step, *first_lane; /* by rank, and the end */
	size_t step_count, lane_count, edge_count;
	size_t steps_room, lanes_room, edges_room, order_room;
};

/* False: it would have more than steps_max steps, or take as long to build; there is no world then. exact: all ranks, whatever they
 * have in common. set->of: the plans, or NULL to build them one by one. */
bool world_open(struct world *world, const struct plan_set *set, size_t steps_max, bool exact);
void world_close(struct world *world);

/* Looks at a few ranks' plans, or at all of them when they are small. */
enum symmetry symmetry_of(const struct plan_set *set);

#endif
