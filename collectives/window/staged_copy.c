/* The contents of the pieces of a staged collective that only copies. In a broadcast and in gathers
 * a rank stages one block, a slot full of it at a time. In scatter and all_to_all it stages a
 * stream: the blocks for the other ranks one behind the other, from the next rank's on, cut into
 * slots. A rank that has a part in a piece copies it out. So slots are full whatever the blocks'
 * lengths, and in an all_to_all of long blocks every rank reads from another one. A rank's block
 * for itself is copied in parts along with the pieces. */
#include "collectives/window/staged.h"

/* count elements from element from of src to element to of dst. */
static void window_staged_copy(struct window *w, const struct window_run *run, void *dst, size_t to,
			       const void *src, size_t from, size_t count)
{
	size_t each = run->unit;

	weave_copy(&w->weave, (uint8_t *)dst + to * each, (const uint8_t *)src + from * each,
		   count * each);
}

static struct range staged_copy_piece_of(const struct window_run *run, uint64_t k, size_t count)
{
	return part_of(count, (size_t)k * run->each, run->each);
}

static void staged_copy_cut_blocks(struct window *w, struct window_run *run)
{
	(void)w;
	run->each = units_of(run->piece_bytes, run);
	run->pieces = (run->largest + run->each - 1) / run->each;
}

static bool staged_copy_from_root(const struct window *w, const struct window_run *run, uint64_t k,
				  int from, int to)
{
	(void)w, (void)k, (void)to;
	return from == run->args.root;
}

static bool staged_copy_is_root(const struct window_run *run, int rank)
{
	return run->args.root == rank;
}

static size_t stage_broadcast(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = staged_copy_piece_of(run, k, run->args.count);

	window_staged_copy(w, run, slot_of(w, w->generation + k, w->rank), 0, run->args.send,
			   piece.first, piece.count);
	return piece.count * run->unit;
}

static void staged_copy_take_broadcast(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = staged_copy_piece_of(run, k, run->args.count);

	if (w->rank == run->args.root)
		window_staged_copy(w, run, run->args.recv, piece.first, run->args.send, piece.first,
				   piece.count);
	else
		window_staged_copy(w, run, run->args.recv, piece.first,
				   slot_of(w, w->generation + k, run->args.root), 0, piece.count);
}

static bool staged_copy_gathers(const struct window_run *run, int rank)
{
	return run->pattern == COLL_ALL_GATHER || run->args.root == rank;
}

static bool staged_copy_passes_block(const struct window *w, const struct window_run *run,
				     uint64_t k, int from, int to)
{
	(void)w;
	return staged_copy_gathers(run, to) &&
	       staged_copy_piece_of(run, k, block_of(run, SEND_SIDE, from).count).count;
}

static bool staged_copy_gives_block(const struct window_run *run, int rank)
{
	return run->pattern == COLL_ALL_GATHER || run->args.root != rank;
}

static size_t stage_block(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = staged_copy_piece_of(run, k, run->own);

	if (w->size == 1)
		return 0;
	window_staged_copy(w, run, slot_of(w, w->generation + k, w->rank), 0, run->args.send,
			   piece.first, piece.count);
	return piece.count * run->unit;
}

static void staged_copy_take_blocks(struct window *w, struct window_run *run, uint64_t k)
{
	for (int i = 1; staged_copy_gathers(run, w->rank) && i <= w->size; i++) {
		int rank = rank_after(w, i);
		struct range block = block_of(run, RECV_SIDE, rank);
		struct range piece = staged_copy_piece_of(run, k, block.count);
		if (rank != w->rank)
			window_staged_copy(w, run, run->args.recv, block.first + piece.first,
					   slot_of(w, w->generation + k, rank), 0, piece.count);
		else
			window_staged_copy(w, run, run->args.recv, block.first + piece.first,
					   run->args.send, piece.first, piece.count);
	}
}

/* The range in bytes, within the blocks that rank from sends to others, of those for rank to. */
static struct range staged_copy_stream_of(const struct window *w, const struct window_run *run,
					  int from, int to)
{
	int distance = to > from ? to - from : to - from + w->size;
	size_t bytes = run->args.count * run->unit;

	if (has_counts(run)) {
		const struct row_entry *pair = &row_of(w, run->number, from)[to];
		return (struct range){pair->start, pair->count * run->unit};
	}
	return (struct range){(size_t)(distance - 1) * bytes, bytes};
}

/* A part of a block that lies in a slot: bytes. */
struct part {
	size_t in_slot, in_block, bytes;
};

static struct part staged_copy_part_in(const struct window_run *run, struct range stream,
				       uint64_t k)
{
	size_t first = (size_t)k * run->piece_bytes, end = first + run->piece_bytes;
	size_t low = stream.first > first ? stream.first : first;
	size_t high = stream.first + stream.count < end ? stream.first + stream.count : end;

	if (low >= high)
		return (struct part){0, 0, 0};
	return (struct part){low - first, low - stream.first, high - low};
}

static bool staged_copy_scatters(const struct window_run *run, int rank)
{
	return run->pattern == COLL_ALL_TO_ALL || run->args.root == rank;
}

/* All ranks know all pieces, except in an all_to_allv: there the others' pieces follow in their
 * lines. */
static void staged_copy_cut_stream(struct window *w, struct window_run *run)
{
	size_t own = run->own, others = run->total - own;

	(void)w;
	if (run->pattern == COLL_SCATTER) {
		own = block_of(run, SEND_SIDE, run->args.root).count;
		others = run->total - own;
	}
	if (others < own)
		others = own;
	run->pieces = (others * run->unit + run->piece_bytes - 1) / run->piece_bytes;
}

static bool staged_copy_passes_part(const struct window *w, const struct window_run *run,
				    uint64_t k, int from, int to)
{
	return staged_copy_scatters(run, from) &&
	       staged_copy_part_in(run, staged_copy_stream_of(w, run, from, to), k).bytes > 0;
}

static size_t stage_stream(struct window *w, struct window_run *run, uint64_t k)
{
	uint8_t *slot = slot_of(w, w->generation + k, w->rank);
	const uint8_t *send = run->args.send;
	size_t staged = 0;

	for (int i = 1; i < w->size; i++) {
		int rank = rank_after(w, i);
		struct part part =
			staged_copy_part_in(run, staged_copy_stream_of(w, run, w->rank, rank), k);
		if (!part.bytes)
			continue;
		weave_copy(&w->weave, slot + part.in_slot,
			   send + block_of(run, SEND_SIDE, rank).first * run->unit + part.in_block,
			   part.bytes);
		staged += part.bytes;
	}
	return staged;
}

/* Where the data from rank belong. */
static uint8_t *staged_copy_place_for(const struct window_run *run, int rank)
{
	size_t first = run->pattern == COLL_SCATTER ? 0 : block_of(run, RECV_SIDE, rank).first;
	return (uint8_t *)run->args.recv + first * run->unit;
}

static void staged_copy_take_own(struct window *w, struct window_run *run, uint64_t k)
{
	struct range block = block_of(run, SEND_SIDE, w->rank);
	struct part part = staged_copy_part_in(run, (struct range){0, block.count * run->unit}, k);
	const uint8_t *from = (const uint8_t *)run->args.send + block.first * run->unit;
	uint8_t *to = staged_copy_place_for(run, w->rank);

	weave_copy(&w->weave, to + part.in_block, from + part.in_block, part.bytes);
}

static void staged_copy_take_parts(struct window *w, struct window_run *run, uint64_t k)
{
	for (int i = 1; i < w->size; i++) {
		int rank = w->rank >= i ? w->rank - i : w->rank - i + w->size;
		struct part part;
		if (!staged_copy_scatters(run, rank))
			continue;
		part = staged_copy_part_in(run, staged_copy_stream_of(w, run, rank, w->rank), k);
		weave_copy(&w->weave, staged_copy_place_for(run, rank) + part.in_block,
			   slot_of(w, w->generation + k, rank) + part.in_slot, part.bytes);
	}
	if (staged_copy_scatters(run, w->rank))
		staged_copy_take_own(w, run, k);
}

const struct window_moves moves_broadcast = {staged_copy_cut_blocks,     staged_copy_from_root,
					     staged_copy_is_root,        stage_broadcast,
					     staged_copy_take_broadcast, NULL};
const struct window_moves moves_gather = {staged_copy_cut_blocks,  staged_copy_passes_block,
					  staged_copy_gives_block, stage_block,
					  staged_copy_take_blocks, NULL};
const struct window_moves moves_stream = {staged_copy_cut_stream, staged_copy_passes_part,
					  staged_copy_scatters,   stage_stream,
					  staged_copy_take_parts, NULL};
