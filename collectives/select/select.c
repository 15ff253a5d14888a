/* The table of algorithms and the choice among them. select_parse.c reads the user's rules. */
#include "collectives/select/select.h"

#include "collectives/plan/layout.h"
#include "core/status.h"
#include "memory/dtype.h"

#include <stdatomic.h>
#include <string.h>

/* Of algorithms by which one rank holds all ranks' blocks for all. */
#define FEW_RANKS 32

static uint32_t width_one(int size)
{
	(void)size;
	return 1;
}

static uint32_t width_size(int size)
{
	return (uint32_t)size;
}

static uint32_t width_two_sizes(int size)
{
	return 2 * (uint32_t)size;
}

static uint32_t width_log(int size)
{
	return 2 + (uint32_t)log2_up(size);
}

/* Half the blocks' sums, and all that arrive. */
static uint32_t width_circulant(int size)
{
	return (uint32_t)size + (uint32_t)size / 2;
}

/* The sums of all blocks, and those that arrive in each round. */
static uint32_t width_sizes_log(int size)
{
	return (uint32_t)size * (1 + (uint32_t)log2_up(size));
}

static uint32_t width_square(int size)
{
	return (uint32_t)size * (uint32_t)size;
}

static uint32_t width_tree(int size)
{
	return size > 1 ? 4 : 1;
}

#define ROW(COLLECTIVE, collective, name, ...)                                                     \
	{COLL_##COLLECTIVE, #name, name##_##collective, name##_##collective##_cost, __VA_ARGS__},
#define WINDOW_ROW(COLLECTIVE)                                                                     \
	{COLL_##COLLECTIVE, "window", NULL, NULL, CUT_NONE, ADDS_ONCE, 0, width_one},
static const struct algorithm table[] = {ALGORITHM_TABLE(ROW, WINDOW_ROW)};
#define ALGORITHMS ((int)(sizeof table / sizeof table[0]))

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

/* Chunks count by blocks; a side of one block is this rank's of the other side's. The blocks that
 * all_to_all receives have lengths of their own. */
static struct plan_shape shape_of(const struct algorithm *a, int rank, int size)
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

struct plan *algorithm_plan(const struct algorithm *a, const struct plan_key *key)
{
	struct plan_shape shape = shape_of(a, key->rank, key->size);
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
	a->build(p, g, key->in_place && is_vector && has_out ? to : from, to);
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

	return a->width(size) + (options.scaled ? inputs : 0) +
	       (options.scaled && collective_reduces(a->collective) ? chunks : 0);
}

/* Partial sums of narrow floats are rounded on their way. */
static bool is_narrow(tutti_dtype dtype)
{
	return dtype_is_float(dtype) && dtype_bytes(dtype) < 4;
}

static bool is_fixed(const struct algorithm *a, int size, tutti_dtype dtype)
{
	bool pow2 = (size & (size - 1)) == 0;
	return a->adds == ADDS_ONCE ||
	       (!is_narrow(dtype) &&
		(a->adds == ADDS_FIXED || (a->adds == ADDS_FIXED_POW2 && pow2)));
}

/* An average of integers is exact only where all contributions meet in a wider type. */
const char *select_why_not(const struct select *s, const struct algorithm *a,
			   const struct call_args *args)
{
	if (!a->build && !s->has_window)
		return "the ranks do not share memory (or TUTTI_WINDOW=0, or a filter without shm)";
	if ((a->needs & NEEDS_NODES) && !s->nodes)
		return "it needs several nodes of equally many ranks, more than one, numbered node "
		       "by node or in turn";
	if ((a->needs & NEEDS_EQUAL_BLOCKS) && args->counts[SEND_SIDE])
		return "it needs blocks of equal size";
	if ((a->needs & NEEDS_FEW_RANKS) && s->size > FEW_RANKS)
		return "it is for up to 32 ranks, since one holds the blocks of all";
	if (!collective_reduces(a->collective))
		return NULL;
	if (a->build && a->adds == ADDS_ONCE && s->size > PLAN_SOURCES_MAX)
		return "direct exchange reduces at most 1024 contributions at once";
	if (a->adds != ADDS_ONCE && args->op == TUTTI_AVG && !dtype_is_float(args->dtype))
		return "an average of integers needs all contributions at once";
	if (s->deterministic && !is_fixed(a, s->size, args->dtype))
		return a->adds == ADDS_FIXED
			       ? "it rounds partial sums of 16- and 8-bit floats, which "
				 "config.deterministic does not admit"
			       : "config.deterministic admits only the fixed association";
	return NULL;
}

/* Bytes of the pieces that run.c cuts a chunk into. */
static double slice_of(const struct select *s, const struct algorithm *a, double bytes)
{
	double scratch = s->scratch_bytes ? (double)s->scratch_bytes : 4 << 20;
	double slice = s->slice_bytes ? (double)s->slice_bytes : 256 << 10;
	double chunk = bytes / algorithm_split(a, s->size), room = scratch / a->width(s->size) / 8;

	slice = slice < room ? slice : room;
	return slice < chunk ? slice : chunk;
}

double select_seconds(const struct select *s, const struct algorithm *a, double bytes)
{
	struct topology place = {s->size, s->num_nodes > 1 ? s->num_nodes : 1};
	struct cost c = a->cost(place);
	return links_seconds(&s->links, place, &c, bytes, slice_of(s, a, bytes));
}

/* The cheapest that can serve the call; NULL: none. */
static const struct algorithm *find_cheapest(const struct select *s, const struct call_args *args,
					     double bytes)
{
	const struct algorithm *best = NULL;
	double least = 0;

	for (int i = 0; i < ALGORITHMS; i++) {
		const struct algorithm *a = &table[i];
		if (a->collective != collective_pattern(args->collective) || !a->cost ||
		    select_why_not(s, a, args))
			continue;
		double seconds = select_seconds(s, a, bytes);
		if (!best || seconds < least) {
			best = a;
			least = seconds;
		}
	}
	return best;
}

void select_prepare(struct select *s, const struct links *links)
{
	s->links = *links;
	for (int c = 0; c < COLL_PATTERNS; c++)
		for (int size = 0; size < SELECT_SIZES; size++) {
			struct call_args args = {.collective = (enum collective)c};
			const struct algorithm *a = find_cheapest(s, &args, (double)(1ull << size));
			s->cheapest[c][size] = a ? (int8_t)(a - table) : -1;
		}
}

/* Sizes between powers of two go with the lower one: all ranks of a call have the same bytes. */
static const struct algorithm *cheapest(const struct select *s, const struct call_args *args,
					size_t bytes)
{
	int size = bytes ? 63 - __builtin_clzll(bytes) : 0, found;

	size = size < SELECT_SIZES ? size : SELECT_SIZES - 1;
	found = s->cheapest[collective_pattern(args->collective)][size];
	if (found >= 0 && !select_why_not(s, &table[found], args))
		return &table[found];
	return find_cheapest(s, args, (double)(1ull << size));
}

/* TUTTI_ALGO speaks of the caller's calls, not of the all_gather inside a split. */
static const struct algorithm *forced(const struct select *s, enum collective collective,
				      size_t bytes)
{
	enum collective pattern = collective_pattern(collective);
	if (collective == COLL_SPLIT || collective == COLL_DUP)
		return NULL;
	for (int i = 0; i < s->rules; i++)
		if (s->rule[i].collective == pattern && bytes >= s->rule[i].first &&
		    bytes <= s->rule[i].last)
			return s->rule[i].algorithm;
	return NULL;
}

/* The bytes that costs are of: those of one block, of v-variants the average. */
static size_t bytes_of(const struct select *s, const struct call_args *args)
{
	size_t bytes = args->count * dtype_bytes(args->dtype);
	if (!args->counts[SEND_SIDE])
		return bytes;
	return bytes /
	       (size_t)s->size; /* 0 for all_to_allv: ranks do not know each other's counts */
}

/* Found by its name once: every small call asks. */
static const struct algorithm *window_of(enum collective pattern)
{
	static const struct algorithm *_Atomic found[COLL_PATTERNS];
	const struct algorithm *a = atomic_load_explicit(&found[pattern], memory_order_relaxed);

	if (__builtin_expect(!a, 0)) {
		a = algorithm_find(pattern, "window");
		atomic_store_explicit(&found[pattern], a, memory_order_relaxed);
	}
	return a;
}

tutti_status select_algorithm(const struct select *s, const struct call_args *args,
			      const struct algorithm **algorithm)
{
	enum collective pattern = collective_pattern(args->collective);
	const struct algorithm *a;
	const char *why;

	if (select_is_window(s)) {
		*algorithm = window_of(pattern);
		return TUTTI_OK;
	}
	size_t bytes = bytes_of(s, args);
	*algorithm = a = forced(s, args->collective, bytes);
	if (a && (why = select_why_not(s, a, args)))
		return fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_ALGO forces %s for %s, but %s", a->name,
			    collective_name(args->collective), why);
	if (a)
		return TUTTI_OK;
	*algorithm = s->has_window ? window_of(pattern) : cheapest(s, args, bytes);
	if (*algorithm)
		return TUTTI_OK;
	why = select_why_not(s, algorithm_find(pattern, "direct"), args);
	return fail(TUTTI_ERR_UNSUPPORTED, "no algorithm serves %s on %d ranks: %s",
		    collective_name(args->collective), s->size, why ? why : "there is none");
}
