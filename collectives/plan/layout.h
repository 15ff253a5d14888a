/* Where the chunks of a call lie in its buffers and how long they are: what turns a plan's numbers
 * into elements. */
#ifndef COLLECTIVES_PLAN_LAYOUT_H
#define COLLECTIVES_PLAN_LAYOUT_H

#include "collectives/plan/calls.h"

#include <stdbool.h>

/* A buffer is one block or several, one for each rank; a block is cut into split chunks of each
 * elements, the last ones short or empty. */
struct layout {
	uint32_t split;
	size_t block, each; /* elements of all blocks and their chunks, unless there are counts */
	/* v-variants: chunks 0 .. blocks*split-1 are of blocks as long as counts[SEND_SIDE]
	 * says, the following ones as counts[RECV_SIDE] says. offsets of a side: where its
	 * blocks begin; NULL if it has one block at 0. */
	uint32_t blocks;
	const size_t *counts[2], *offsets[2];
};

/* Elements of chunk shape. */
static inline size_t layout_length(const struct layout *l, uint32_t shape)
{
	size_t block = l->block, each = l->each;
	uint32_t at = shape / l->split;
	if (l->blocks) {
		block = at < l->blocks ? l->counts[SEND_SIDE][at]
				       : l->counts[RECV_SIDE][at - l->blocks];
		each = (block + l->split - 1) / l->split;
	}
	size_t first = (size_t)(shape % l->split) * each;
	return first >= block ? 0 : block - first < each ? block - first : each;
}

/* The element of its buffer that chunk of side begins with. shape: plan_shape_of the chunk. */
static inline size_t layout_offset(const struct layout *l, int side, uint32_t chunk, uint32_t shape)
{
	uint32_t at = chunk / l->split, k = chunk % l->split;
	if (!l->blocks)
		return (size_t)at * l->block + (size_t)k * l->each;
	uint32_t of = shape / l->split;
	size_t block = of < l->blocks ? l->counts[SEND_SIDE][of]
				      : l->counts[RECV_SIDE][of - l->blocks];
	size_t first = (size_t)k * ((block + l->split - 1) / l->split);
	if (first > block)
		first = block;
	return first + (l->offsets[side] ? l->offsets[side][at] : 0);
}

/* Elements of the longest chunk. */
size_t layout_longest(const struct layout *l);

/* Whether the buffer of a side has a block for each rank, not one alone. */
static inline bool collective_has_blocks(enum collective pattern, int side)
{
	const unsigned send = 1u << COLL_REDUCE_SCATTER | 1u << COLL_SCATTER |
			      1u << COLL_ALL_TO_ALL;
	const unsigned recv = 1u << COLL_ALL_GATHER | 1u << COLL_GATHER | 1u << COLL_ALL_TO_ALL;

	return (side == SEND_SIDE ? send : recv) >> pattern & 1;
}

/* How a call of size ranks is laid out when each of its blocks is cut into split chunks. */
struct layout layout_of(const struct call_args *args, int size, uint32_t split);
/* Bytes from the start of the buffer of a side to the end of its last block, on this rank: 0 where
 * it has none (recv off the root of a gather). */
size_t layout_extent(const struct call_args *args, int rank, int size, int side);

#endif
