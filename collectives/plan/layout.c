/* Layouts of calls: which collectives have a block for every rank on which side, and how they are
 * cut. */
#include "collectives/plan/layout.h"

#include "core/memory/dtype.h"

size_t layout_longest(const struct layout *l)
{
	if (!l->blocks)
		return l->each;
	size_t longest = 0;
	for (uint32_t i = 0; i < 2 * l->blocks * l->split; i += l->split)
		if (layout_length(l, i) > longest)
			longest = layout_length(l, i);
	return longest;
}

struct layout layout_of(const struct call_args *args, int size, uint32_t split)
{
	enum collective pattern = collective_pattern(args->collective);
	struct layout l = {.split = split, .block = args->count};

	if (pattern == COLL_BARRIER)
		l.block = 1;
	l.each = (l.block + split - 1) / split;
	if (split > 1 && l.each >= 1024) /* whole cache lines, if the data are aligned */
		l.each = (l.each + 63) / 64 * 64;
	if (!args->counts[SEND_SIDE])
		return l;
	l.blocks = (uint32_t)size;
	for (int side = 0; side < 2; side++) {
		l.counts[side] = args->counts[side];
		if (collective_has_blocks(pattern, side))
			l.offsets[side] = args->offsets[side];
	}
	return l;
}

static size_t layout_extent_of_blocks(const struct call_args *args, int size, int side)
{
	size_t end = 0;
	if (!args->counts[side])
		return args->count * (size_t)size;
	for (int r = 0; r < size; r++)
		if (args->counts[side][r] && args->offsets[side][r] + args->counts[side][r] > end)
			end = args->offsets[side][r] + args->counts[side][r];
	return end;
}

size_t layout_extent(const struct call_args *args, int rank, int size, int side)
{
	enum collective pattern = collective_pattern(args->collective);
	bool is_root = rank == args->root;

	if (pattern == COLL_BARRIER || pattern == COLL_MEM_ALLOC)
		return 0;
	if (!is_root && side == RECV_SIDE && (pattern == COLL_REDUCE || pattern == COLL_GATHER))
		return 0;
	if (!is_root && side == SEND_SIDE && (pattern == COLL_BROADCAST || pattern == COLL_SCATTER))
		return 0;
	size_t elements = collective_has_blocks(pattern, side)
				  ? layout_extent_of_blocks(args, size, side)
			  : args->counts[side] ? args->counts[side][rank]
					       : args->count;
	return elements * dtype_bytes(args->dtype);
}
