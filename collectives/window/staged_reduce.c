/* The contents of the pieces of a staged collective that reduces. take is an n-ary reduction of
 * this rank's part of the piece out of all slots at once.
 *
 * For all_reduce the result goes back into the very lines of the slots that it was read from: no
 * lines of a result area to fetch, and each owner copies out what lies in its own slot. reduce does
 * the same, but only the root's slot gets the result, so all ranks reduce and only one copies out.
 *
 * Where the root of a reduce does it alone, the others stage all and are gone.
 *
 * The input of a scaled sum is multiplied on its way into the slot; this rank's own part goes
 * there, too, and is reduced from there. */
#include "collectives/window/staged.h"

#include "core/memory/ops.h"

static const uint8_t *staged_reduce_at(const struct window_run *run, const void *buffer,
				       size_t element)
{
	return (const uint8_t *)buffer + element * run->unit;
}

/* From element from of send to to, in a slot; returns bytes. */
static size_t staged_reduce_put(struct window *w, const struct window_run *run, uint8_t *to,
				struct range from)
{
	const uint8_t *send = staged_reduce_at(run, run->args.send, from.first);

	if (from.count && run->scalar)
		scale(to, send, run->scalar, from.count, run->args.dtype);
	else
		weave_copy(&w->weave, to, send, from.count * run->unit);
	return from.count * run->unit;
}

static void reduce_into(struct window *w, const struct window_run *run, int outputs, size_t count)
{
	struct reduction r = {w->scratch.dst, w->scratch.src,  outputs,      w->size,
			      count,          run->args.dtype, run->args.op, w->size};

	weave_reduce(&w->weave, &r);
}

static struct range staged_reduce_piece_of(const struct window_run *run, uint64_t k)
{
	return part_of(run->args.count, (size_t)k * run->each, run->each);
}

static void staged_reduce_cut_whole(struct window *w, struct window_run *run)
{
	(void)w;
	run->each = units_of(run->piece_bytes, run);
	run->pieces = (run->args.count + run->each - 1) / run->each;
}

static size_t stage_whole(struct window *w, struct window_run *run, uint64_t k)
{
	uint8_t *slot = slot_of(w, w->generation + k, w->rank);
	struct range piece = staged_reduce_piece_of(run, k);
	size_t staged = 0;

	for (int rank = 0; rank < w->size; rank++) {
		struct range share = share_of(w, run, piece.count, rank);
		struct range from = {piece.first + share.first, share.count};
		if (rank != w->rank || run->scalar)
			staged += staged_reduce_put(w, run, slot + share.first * run->unit, from);
	}
	return staged;
}

/* Sets the sources of this rank's share of piece k, and returns the share. */
static struct range find_share(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = staged_reduce_piece_of(run, k),
		     own = share_of(w, run, piece.count, w->rank);

	for (int rank = 0; rank < w->size; rank++)
		w->scratch.src[rank] = slot_of(w, w->generation + k, rank) + own.first * run->unit;
	if (!run->scalar)
		w->scratch.src[w->rank] =
			staged_reduce_at(run, run->args.send, piece.first + own.first);
	return own;
}

static void take_all_reduce(struct window *w, struct window_run *run, uint64_t k)
{
	struct range own = find_share(w, run, k);

	for (int rank = 0; rank < w->size; rank++)
		w->scratch.dst[rank] = slot_of(w, w->generation + k, rank) + own.first * run->unit;
	w->scratch.dst[w->rank] = (uint8_t *)run->args.recv +
				  (staged_reduce_piece_of(run, k).first + own.first) * run->unit;
	reduce_into(w, run, w->size, own.count);
}

static void take_reduce(struct window *w, struct window_run *run, uint64_t k)
{
	struct range own = find_share(w, run, k);

	if (w->rank == run->args.root)
		w->scratch.dst[0] = (uint8_t *)run->args.recv +
				    (staged_reduce_piece_of(run, k).first + own.first) * run->unit;
	else
		w->scratch.dst[0] =
			slot_of(w, w->generation + k, run->args.root) + own.first * run->unit;
	reduce_into(w, run, 1, own.count);
}

static void finish_whole(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = staged_reduce_piece_of(run, k);
	const uint8_t *slot = slot_of(w, w->generation + k, w->rank);
	uint8_t *recv = (uint8_t *)run->args.recv + piece.first * run->unit;

	for (int rank = 0; rank < w->size; rank++) {
		struct range share = share_of(w, run, piece.count, rank);
		size_t from = share.first * run->unit;
		if (rank != w->rank)
			weave_copy(&w->weave, recv + from, slot + from, share.count * run->unit);
	}
}

static bool to_root(const struct window *w, const struct window_run *run, uint64_t k, int from,
		    int to)
{
	(void)w, (void)k, (void)from;
	return to == run->args.root;
}

static bool stages_for_root(const struct window_run *run, int rank)
{
	return rank != run->args.root || run->scalar;
}

static size_t stage_for_root(struct window *w, struct window_run *run, uint64_t k)
{
	return staged_reduce_put(w, run, slot_of(w, w->generation + k, w->rank),
				 staged_reduce_piece_of(run, k));
}

static void take_by_root(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = staged_reduce_piece_of(run, k);

	if (w->rank != run->args.root)
		return;
	for (int rank = 0; rank < w->size; rank++)
		w->scratch.src[rank] = slot_of(w, w->generation + k, rank);
	if (!run->scalar)
		w->scratch.src[w->rank] = staged_reduce_at(run, run->args.send, piece.first);
	w->scratch.dst[0] = (uint8_t *)run->args.recv + piece.first * run->unit;
	reduce_into(w, run, 1, piece.count);
}

/* Every piece has a part of every block, so that all ranks reduce at once: equal parts of equal
 * blocks, else parts in proportion, in whole lines and at least one. */
static struct deal deal_of(const struct window *w, const struct window_run *run, int rank)
{
	if (has_counts(run))
		return w->scratch.deals[rank];
	return (struct deal){(size_t)rank * (run->each * run->unit), run->each};
}

static size_t lines_of(const struct window_run *run, size_t count)
{
	return (count * run->unit + WINDOW_ALIGN - 1) / WINDOW_ALIGN;
}

static void deal_slots(struct window *w, struct window_run *run)
{
	const size_t *counts = run->args.counts[SEND_SIDE];
	size_t lines = run->piece_bytes / WINDOW_ALIGN - (size_t)w->size, all = 0, used = 0;

	for (int rank = 0; rank < w->size; rank++)
		all += lines_of(run, counts[rank]);
	run->pieces = 0;
	for (int rank = 0; rank < w->size; rank++) {
		size_t block = lines_of(run, counts[rank]),
		       each = block ? 1 + lines * block / all : 0;
		w->scratch.deals[rank] =
			(struct deal){used * WINDOW_ALIGN, units_of(each * WINDOW_ALIGN, run)};
		used += each;
		if (block && run->pieces < (block + each - 1) / each)
			run->pieces = (block + each - 1) / each;
	}
}

static void staged_reduce_cut_blocks(struct window *w, struct window_run *run)
{
	size_t block = run->piece_bytes / (size_t)w->size / WINDOW_ALIGN * WINDOW_ALIGN;

	if (has_counts(run)) {
		deal_slots(w, run);
		return;
	}
	run->each = units_of(block, run);
	run->pieces = (run->args.count + run->each - 1) / run->each;
}

static struct range staged_reduce_dealt(const struct window *w, const struct window_run *run,
					uint64_t k, int rank)
{
	struct range block = block_of(run, SEND_SIDE, rank);
	size_t each = deal_of(w, run, rank).each;
	return part_of(block.count, (size_t)k * each, each);
}

static bool staged_reduce_passes_part(const struct window *w, const struct window_run *run,
				      uint64_t k, int from, int to)
{
	(void)from;
	return staged_reduce_dealt(w, run, k, to).count > 0;
}

static size_t stage_parts(struct window *w, struct window_run *run, uint64_t k)
{
	uint8_t *slot = slot_of(w, w->generation + k, w->rank);
	size_t staged = 0;

	for (int rank = 0; rank < w->size; rank++) {
		struct range part = staged_reduce_dealt(w, run, k, rank);
		part.first += block_of(run, SEND_SIDE, rank).first;
		if (rank != w->rank || run->scalar)
			staged += staged_reduce_put(w, run, slot + deal_of(w, run, rank).at, part);
	}
	return staged;
}

static void staged_reduce_take_part(struct window *w, struct window_run *run, uint64_t k)
{
	size_t place = deal_of(w, run, w->rank).at;
	struct range part = staged_reduce_dealt(w, run, k, w->rank);

	if (!part.count)
		return;
	for (int rank = 0; rank < w->size; rank++)
		w->scratch.src[rank] = slot_of(w, w->generation + k, rank) + place;
	if (!run->scalar)
		w->scratch.src[w->rank] = staged_reduce_at(
			run, run->args.send, block_of(run, SEND_SIDE, w->rank).first + part.first);
	w->scratch.dst[0] = (uint8_t *)run->args.recv + part.first * run->unit;
	reduce_into(w, run, 1, part.count);
}

const struct window_moves moves_all_reduce = {
	staged_reduce_cut_whole, NULL, NULL, stage_whole, take_all_reduce, finish_whole};
const struct window_moves moves_reduce = {
	staged_reduce_cut_whole, NULL, NULL, stage_whole, take_reduce, finish_whole};
const struct window_moves moves_reduce_by_root = {
	staged_reduce_cut_whole, to_root, stages_for_root, stage_for_root, take_by_root, NULL};
const struct window_moves moves_reduce_scatter = {staged_reduce_cut_blocks,
						  staged_reduce_passes_part,
						  NULL,
						  stage_parts,
						  staged_reduce_take_part,
						  NULL};
