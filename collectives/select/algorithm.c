/* The algorithms as one table, and the plans and scratch that they need. */
#include "collectives/plan/plan.h"
#include "collectives/select/select.h"

#include <string.h>

#define ROW(COLLECTIVE, collective, name, ...)                                                     \
	{COLL_##COLLECTIVE, #name, name##_##collective, name##_##collective##_cost, __VA_ARGS__},
#define WINDOW_ROW(COLLECTIVE)                                                                     \
	{COLL_##COLLECTIVE, "window", NULL, NULL, CUT_NONE, ADDS_ONCE, 0, WIDTH_ONE},
static const struct algorithm table[] = {ALGORITHM_TABLE(ROW, WINDOW_ROW)};
_Static_assert(sizeof table / sizeof table[0] == ALGORITHMS, "each row is counted");

/* A call does not ask for an algorithm where ranks share a window (collectives/comm/call.c). */
#define NOTHING(...)
#define ONE_MORE(collective) +1
_Static_assert(0 ALGORITHM_TABLE(NOTHING, ONE_MORE) == COLL_PATTERNS, "the window serves each");

const struct algorithm *algorithm_at(int i)
{
	return i < ALGORITHMS ? &table[i] : NULL;
}

const char *algorithm_name(int i)
{
	return i < ALGORITHMS ? table[i].name : NULL;
}

const struct algorithm *algorithm_find(enum collective collective, const char *name)
{
	for (int i = 0; i < ALGORITHMS; i++)
		if (table[i].collective == collective && strcmp(table[i].name, name) == 0)
			return &table[i];
	return NULL;
}

uint32_t algorithm_split(const struct algorithm *a, int size)
{
	switch (a->cut) {
	case CUT_NONE:
		return 1;
	case CUT_HALVES:
		return 2;
	case CUT_RANKS:
		return (uint32_t)size;
	case CUT_RANKS_TWICE:
		return 2 * (uint32_t)size;
	}
	return 1;
}

static uint32_t algorithm_width_of(const struct algorithm *a, int size)
{
	uint32_t n = (uint32_t)size, rounds = (uint32_t)log2_up(size);

	switch (a->width) {
	case WIDTH_ONE:
		return 1;
	case WIDTH_TREE:
		return 4;
	case WIDTH_LOG:
		return 2 + rounds;
	case WIDTH_SIZE:
		return n;
	case WIDTH_HALF_MORE:
		return n + n / 2;
	case WIDTH_TWO_SIZES:
		return 2 * n;
	case WIDTH_SIZES_LOG:
		return n * (1 + rounds);
	case WIDTH_SQUARE:
		return n * n;
	}
	return 1;
}

/* Chunks count by blocks; a side of one block is this rank's of the other side's. The blocks that
 * all_to_all receives have lengths of their own. */
static struct plan_shape algorithm_shape_of(const struct algorithm *a, int rank, int size)
{
	uint32_t split = algorithm_split(a, size), n = (uint32_t)size;
	bool in = collective_has_blocks(a->collective, SEND_SIDE);
	bool out = collective_has_blocks(a->collective, RECV_SIDE);
	struct plan_shape s = {split * (in ? n : 1), split * (out ? n : 1), 0, 0};
	if (!in && out)
		s.in_base = split * (uint32_t)rank;
	else if (in && !out)
		s.out_base = split * (uint32_t)rank;
	else if (in && out)
		s.out_base = split * n;
	return s;
}

/* A rank alone has its result in its input, whatever the algorithm. A sum of one makes NaNs
 * canonical. */
static void algorithm_build_alone(struct plan *p, enum collective c, struct span in,
				  struct span out)
{
	if (collective_reduces(c))
		plan_reduce(p, out, &in, 1);
	else if (c != COLL_BARRIER)
		plan_copy(p, out, in);
}

struct plan *algorithm_plan(const struct algorithm *a, const struct plan_key *key)
{
	struct plan_shape shape = algorithm_shape_of(a, key->rank, key->size);
	struct plan *p = plan_new(key->rank, key->size, shape, key->options);
	if (!p)
		return NULL;
	struct span to = span(BUF_OUT, 0, shape.out_chunks),
		    from = span(BUF_IN, 0, shape.in_chunks);
	struct group g = {.me = modulo(key->rank - key->root, key->size),
			  .size = key->size,
			  .stride = 1,
			  .shift = key->root,
			  .nodes = key->nodes};
	bool is_vector = !collective_has_blocks(a->collective, SEND_SIDE) &&
			 !collective_has_blocks(a->collective, RECV_SIDE);
	/* Off the root of a reduce there is no OUT to work in, even if the caller names one pointer
	 * twice. */
	bool has_out = a->collective != COLL_REDUCE || key->rank == key->root;
	if (key->in_place && is_vector && has_out)
		from = to;
	if (key->size == 1)
		algorithm_build_alone(p, a->collective, from, to);
	else
		a->build(p, g, from, to);
	return plan_end(p);
}

/* Scaled inputs, and sums of them land before they are added. Staged plans need more, but it may
 * depend on nothing that differs by rank: slices are cut by it. */
uint32_t algorithm_width(const struct algorithm *a, int size, struct plan_options options)
{
	uint32_t split = algorithm_split(a, size), n = (uint32_t)size;
	bool in = collective_has_blocks(a->collective, SEND_SIDE);
	bool out = collective_has_blocks(a->collective, RECV_SIDE);
	uint32_t inputs = split * (in ? n : 1), chunks = in || out ? split * n : inputs;

	return algorithm_width_of(a, size) + (options.scaled ? inputs : 0) +
	       (options.scaled && collective_reduces(a->collective) ? chunks : 0);
}
