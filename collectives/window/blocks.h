/* Which elements of the callers' buffers a run is about: blocks of ranks, shares, parts. */
#ifndef COLLECTIVES_WINDOW_BLOCKS_H
#define COLLECTIVES_WINDOW_BLOCKS_H

#include "collectives/window/window_internal.h"

struct range {
	size_t first, count;
};

/* How many elements of the run bytes are; units are powers of two. */
static inline size_t units_of(size_t bytes, const struct window_run *run)
{
	return bytes >> __builtin_ctzl(run->unit);
}

static inline bool is_from_root(enum collective pattern)
{
	return pattern == COLL_BROADCAST || pattern == COLL_SCATTER;
}

static inline bool has_counts(const struct window_run *run)
{
	return run->args.counts[SEND_SIDE] != NULL;
}

/* The i-th rank after this one. Where all ranks go round like that, not all read the same memory at
 * once. */
static inline int rank_after(const struct window *w, int i)
{
	int rank = w->rank + i;
	return rank < w->size ? rank : rank - w->size;
}

/* Rank's block in a buffer that has one for each rank. */
static inline struct range block_of(const struct window_run *run, int side, int rank)
{
	const struct call_args *a = &run->args;

	if (a->counts[side])
		return (struct range){a->offsets[side][rank], a->counts[side][rank]};
	return (struct range){(size_t)rank * a->count, a->count};
}

/* Where in rank's send buffer its block for this rank begins, or in a gather's root's recv:
 * elements. */
static inline size_t place_at(const struct window *w, const struct window_run *run, int rank)
{
	if (has_counts(run))
		return row_of(w, run->number, rank)[w->rank].offset;
	return (size_t)w->rank * run->args.count;
}

/* Up to where a buffer with a block for each rank is used: bytes. */
static inline size_t end_of_blocks(const struct window *w, const struct window_run *run, int side)
{
	size_t end = 0;

	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, side, rank);
		if (block.count && end < block.first + block.count)
			end = block.first + block.count;
	}
	return end * run->unit;
}

/* Elements [first, first + most) of count. */
static inline struct range part_of(size_t count, size_t first, size_t most)
{
	if (first >= count)
		return (struct range){count, 0};
	return (struct range){first, count - first < most ? count - first : most};
}

/* Elements cut into one share for each rank: whole lines, so that no two ranks write to the same
 * one. The last shares may be short or empty. */
static inline struct range share_of(const struct window *w, struct window_run *run, size_t count,
				    int rank)
{
	size_t line = units_of(WINDOW_ALIGN, run), first;

	if (run->cut != count) {
		run->cut = count;
		run->share = (count + (size_t)w->size - 1) / (size_t)w->size;
		run->share = (run->share + line - 1) & ~(line - 1);
	}
	first = run->share * (size_t)rank;
	return part_of(count, first, run->share);
}

#endif
