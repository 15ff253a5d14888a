/* Several copies and a reduction at once, a block of each in turn: not one behind the other.
 *
 * Lines that another core has just written come from that core's cache, and one stream of them
 * keeps a core waiting: its prefetchers look ahead within a page only, and for each stream alone.
 * With several streams, and work in near memory between them, more lines are on their way at any
 * time. A piece took 0.8 of the time (docs/measurements). */
#ifndef CORE_MEMORY_WEAVE_H
#define CORE_MEMORY_WEAVE_H

#include "core/memory/reduce_kernels.h"

#include <stddef.h>
#include <stdint.h>

#define WEAVE_COPIES 32

/* Zeroed: empty. */
struct weave {
	struct strand {
		uint8_t *dst;
		const uint8_t *src;
		size_t bytes;
	} copies[WEAVE_COPIES];
	int n_copies;
	struct reduction reduction; /* count is 0 without one */
	reduce_sum_fn *sum;         /* what does it */
	int unit_shift;             /* of its elements' bytes */
};

/* Adds a copy to the weave; if there is no room, runs it first. A long copy is done at once.
 * Destinations overlap with nothing else, but one of the reduction may be one of its sources, and
 * one of a copy its source. */
void weave_copy(struct weave *weave, void *dst, const void *src, size_t bytes);
/* As reduce(). dst and src must last until weave_run. A reduction of more than one pass is done at
 * once. */
void weave_reduce(struct weave *weave, const struct reduction *reduction);
/* Leaves weave empty. */
void weave_run(struct weave *weave);

#endif
