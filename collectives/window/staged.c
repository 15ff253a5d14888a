/* Ordinary buffers, too long for a line: piece by piece through the ranks' slots. This file has the
 * order of the steps, and the pieces of reductions; those of copies are in staged_copy.c.
 *
 * A piece goes through three stages on every rank:
 *     stage    this rank copies into its slot what others will read
 *     take     it reduces or copies what it needs out of the others' slots
 *     finish   all_reduce and a reduce's root only: it copies out of its own slot what others have
 *              put there
 * Round r stages piece r, takes r - 1 and finishes r - 2: when all three may be done they are done
 * together (core/memory/weave.h), so that while lines come from other cores this one copies its
 * own. Then the words say so.
 *
 * The slot of piece k is the one of piece k - WINDOW_SLOTS. It is free when
 * - the others have taken that piece: their WORD_TAKEN says so. It grows by the same number in
 * every collective on every rank, so it holds for pieces of earlier calls as well. Once all lines
 * of this call are there, all pieces of earlier calls have been taken, so only the ranks matter
 * that this call's piece went to. A rank that does not wait for all lines asks all ranks about the
 * slots that it fills first;
 * - this rank has finished that piece: piece k - 3 is finished before the round of k begins, but k
 * - 2 only in it, so three slots are enough and two are not.
 *
 * How many pieces there are depends only on what all ranks agree on or tell each other, never on a
 * rank's own pointers. */
#include "collectives/window/staged.h"

#include "collectives/window/doorbell.h"
#include "core/clock.h"
#include "core/memory/ops.h"

#include <assert.h>

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

static void staged_reduce_into(struct window *w, const struct window_run *run, int outputs,
			       size_t count)
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
static struct range staged_find_share(struct window *w, struct window_run *run, uint64_t k)
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

static void staged_take_all_reduce(struct window *w, struct window_run *run, uint64_t k)
{
	struct range own = staged_find_share(w, run, k);

	for (int rank = 0; rank < w->size; rank++)
		w->scratch.dst[rank] = slot_of(w, w->generation + k, rank) + own.first * run->unit;
	w->scratch.dst[w->rank] = (uint8_t *)run->args.recv +
				  (staged_reduce_piece_of(run, k).first + own.first) * run->unit;
	staged_reduce_into(w, run, w->size, own.count);
}

static void staged_take_reduce(struct window *w, struct window_run *run, uint64_t k)
{
	struct range own = staged_find_share(w, run, k);

	if (w->rank == run->args.root)
		w->scratch.dst[0] = (uint8_t *)run->args.recv +
				    (staged_reduce_piece_of(run, k).first + own.first) * run->unit;
	else
		w->scratch.dst[0] =
			slot_of(w, w->generation + k, run->args.root) + own.first * run->unit;
	staged_reduce_into(w, run, 1, own.count);
}

static void staged_finish_whole(struct window *w, struct window_run *run, uint64_t k)
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

static bool staged_to_root(const struct window *w, const struct window_run *run, uint64_t k,
			   int from, int to)
{
	(void)w, (void)k, (void)from;
	return to == run->args.root;
}

static bool staged_stages_for_root(const struct window_run *run, int rank)
{
	return rank != run->args.root || run->scalar;
}

static size_t stage_for_root(struct window *w, struct window_run *run, uint64_t k)
{
	return staged_reduce_put(w, run, slot_of(w, w->generation + k, w->rank),
				 staged_reduce_piece_of(run, k));
}

static void staged_take_by_root(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = staged_reduce_piece_of(run, k);

	if (w->rank != run->args.root)
		return;
	for (int rank = 0; rank < w->size; rank++)
		w->scratch.src[rank] = slot_of(w, w->generation + k, rank);
	if (!run->scalar)
		w->scratch.src[w->rank] = staged_reduce_at(run, run->args.send, piece.first);
	w->scratch.dst[0] = (uint8_t *)run->args.recv + piece.first * run->unit;
	staged_reduce_into(w, run, 1, piece.count);
}

/* Every piece has a part of every block, so that all ranks reduce at once: equal parts of equal
 * blocks, else parts in proportion, in whole lines and at least one. */
static struct deal staged_deal_of(const struct window *w, const struct window_run *run, int rank)
{
	if (has_counts(run))
		return w->scratch.deals[rank];
	return (struct deal){(size_t)rank * (run->each * run->unit), run->each};
}

static size_t staged_lines_of(const struct window_run *run, size_t count)
{
	return (count * run->unit + WINDOW_ALIGN - 1) / WINDOW_ALIGN;
}

static void staged_deal_slots(struct window *w, struct window_run *run)
{
	const size_t *counts = run->args.counts[SEND_SIDE];
	size_t lines = run->piece_bytes / WINDOW_ALIGN - (size_t)w->size, all = 0, used = 0;

	for (int rank = 0; rank < w->size; rank++)
		all += staged_lines_of(run, counts[rank]);
	run->pieces = 0;
	for (int rank = 0; rank < w->size; rank++) {
		size_t block = staged_lines_of(run, counts[rank]),
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
		staged_deal_slots(w, run);
		return;
	}
	run->each = units_of(block, run);
	run->pieces = (run->args.count + run->each - 1) / run->each;
}

static struct range staged_reduce_dealt(const struct window *w, const struct window_run *run,
					uint64_t k, int rank)
{
	struct range block = block_of(run, SEND_SIDE, rank);
	size_t each = staged_deal_of(w, run, rank).each;
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
			staged += staged_reduce_put(w, run, slot + staged_deal_of(w, run, rank).at,
						    part);
	}
	return staged;
}

static void staged_reduce_take_part(struct window *w, struct window_run *run, uint64_t k)
{
	size_t place = staged_deal_of(w, run, w->rank).at;
	struct range part = staged_reduce_dealt(w, run, k, w->rank);

	if (!part.count)
		return;
	for (int rank = 0; rank < w->size; rank++)
		w->scratch.src[rank] = slot_of(w, w->generation + k, rank) + place;
	if (!run->scalar)
		w->scratch.src[w->rank] = staged_reduce_at(
			run, run->args.send, block_of(run, SEND_SIDE, w->rank).first + part.first);
	w->scratch.dst[0] = (uint8_t *)run->args.recv + part.first * run->unit;
	staged_reduce_into(w, run, 1, part.count);
}

static const struct window_moves moves_all_reduce = {
	staged_reduce_cut_whole, NULL, NULL, stage_whole, staged_take_all_reduce,
	staged_finish_whole};
static const struct window_moves moves_reduce = {
	staged_reduce_cut_whole, NULL, NULL, stage_whole, staged_take_reduce, staged_finish_whole};
static const struct window_moves moves_reduce_by_root = {staged_reduce_cut_whole, staged_to_root,
							 staged_stages_for_root,  stage_for_root,
							 staged_take_by_root,     NULL};
static const struct window_moves moves_reduce_scatter = {staged_reduce_cut_blocks,
							 staged_reduce_passes_part,
							 NULL,
							 stage_parts,
							 staged_reduce_take_part,
							 NULL};

static const struct window_path path; /* at the end */

_Static_assert(WINDOW_SLOTS >= 3, "stage k would overwrite piece k - 2 before it is copied out");

static const struct window_moves *const moves_of[COLL_PATTERNS] = {
	[COLL_ALL_REDUCE] = &moves_all_reduce,
	[COLL_REDUCE] = &moves_reduce,
	[COLL_REDUCE_SCATTER] = &moves_reduce_scatter,
	[COLL_BROADCAST] = &moves_broadcast,
	[COLL_ALL_GATHER] = &moves_gather,
	[COLL_GATHER] = &moves_gather,
	[COLL_SCATTER] = &moves_stream,
	[COLL_ALL_TO_ALL] = &moves_stream,
};

enum stage { STAGE, TAKE, FINISH, STAGES };

/* With more ranks than cores: see staged_piece_bytes. */
#define SHORT_PIECE      ((size_t)128 << 10)
#define ALL_REDUCE_LEAST ((size_t)64 << 10)
#define ALL_REDUCE_EACH  ((size_t)16 << 10) /* of a piece, for each rank */
#define BROADCAST_PIECES 4u
/* A round of short pieces is long if it took so much for each rank. */
#define LONG_ROUND_NS 250000u

static void staged_set_steps(struct window_run *run)
{
	assert(run->pieces < UINT32_MAX / STAGES - 2);
	run->steps = (uint32_t)(run->pieces + 2) * STAGES;
}

static size_t staged_bytes(const struct window_run *run)
{
	switch (run->pattern) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE:
	case COLL_ALL_GATHER:
		return run->largest * run->unit;
	case COLL_REDUCE_SCATTER:
		return run->total * run->unit;
	default:
		return 0;
	}
}

/* A broadcast's root stages while the others copy what it has staged before. */
static size_t staged_broadcast_piece(const struct window *w, const struct window_run *run)
{
	size_t bytes = run->args.count * run->unit / BROADCAST_PIECES,
	       least = w->geometry.slot_bytes / 2;

	least = least < SHORT_PIECE ? least : SHORT_PIECE;
	bytes = bytes > least ? bytes : least;
	return (bytes + WINDOW_ALIGN - 1) / WINDOW_ALIGN * WINDOW_ALIGN;
}

/* All ranks touch a piece three times, so it is short from early on; but a round costs the more the
 * more ranks take turns. Data that another core reads should have left the writer's first-level
 * cache, where a read takes three times as long: so no less than 64 KiB. */
static size_t staged_all_reduce_piece(const struct window *w, const struct window_run *run)
{
	size_t size = (size_t)w->size, each = size * ALL_REDUCE_EACH;

	if (staged_bytes(run) / size <= each * size / 2)
		return w->geometry.slot_bytes;
	return each > ALL_REDUCE_LEAST ? each : ALL_REDUCE_LEAST;
}

/* With more ranks than cores slots are long, for the fewest switches of threads. A call of which
 * every rank stages much goes through memory then, from each rank's stage to the next one's take;
 * its pieces are short enough to stay in the caches. */
static size_t staged_piece_bytes(const struct window *w, const struct window_run *run)
{
	size_t piece = w->geometry.slot_bytes;

	if (run->pattern == COLL_BROADCAST)
		piece = staged_broadcast_piece(w, run);
	else if (piece <= SHORT_PIECE) /* as it is with a core for every rank */
		return piece;
	else if (run->pattern == COLL_ALL_REDUCE)
		piece = staged_all_reduce_piece(w, run);
	else if (staged_bytes(run) / (size_t)w->size > w->geometry.slot_bytes / 2)
		piece = SHORT_PIECE;
	return piece < w->geometry.slot_bytes ? piece : w->geometry.slot_bytes;
}

bool staged_by_root(const struct window_run *run)
{
	return run->moves == &moves_reduce_by_root;
}

void staged_begin(struct window *w, struct window_run *run)
{
	run->moves = moves_of[run->pattern];
	if (run->pattern == COLL_REDUCE && staged_bytes(run) <= w->geometry.by_root_bytes)
		run->moves = &moves_reduce_by_root;
	run->piece_bytes = staged_piece_bytes(w, run);
	run->may_be_long =
		run->pattern != COLL_BROADCAST && run->piece_bytes < w->geometry.slot_bytes;
	if (run->may_be_long && w->contention.is_agreed)
		run->piece_bytes = w->geometry.slot_bytes;
	run->moves->cut(w, run);
	if (run->pieces == 0)
		run->pieces = 1;
	staged_set_steps(run);
}

/* Without a root all ranks see all lines, and agree on what any says. A rank that does not see all
 * may wait for one that is late. */
static void staged_begin_rounds(struct window *w, const struct window_run *run, bool is_contended)
{
	bool is_short = run->piece_bytes < w->geometry.slot_bytes;

	if (!collective_has_root(run->pattern))
		w->contention.is_agreed = is_contended || contention_is_noticed(&w->contention);
	if (run->may_be_long && run->sees_all)
		contention_begin(&w->contention, is_short, is_short ? clock_now_ns() : 0);
}

/* Where a line says that the first piece is staged, no word follows for it. */
void staged_agree(struct window *w, struct window_run *run)
{
	bool is_contended = false;

	run->path = &path;
	for (int peer = run->first; peer < run->peers; peer++) {
		struct line_buffers buffers = line_buffers_of(w, run, peer);
		if (peer != w->rank && buffers.is_staged)
			w->seen[WORD_STAGED][peer] = w->generation + 1;
		if (run->args.collective == COLL_ALL_TO_ALLV && run->pieces < buffers.pieces)
			run->pieces = buffers.pieces;
		is_contended |= buffers.is_contended;
	}
	staged_set_steps(run);
	staged_begin_rounds(w, run, is_contended);
}

static bool staged_stages(const struct window_run *run, int rank)
{
	return !run->moves->stages || run->moves->stages(run, rank);
}

/* Which piece a step is about, and what it does with it; false: nothing. Steps go round by round,
 * and TAKE is one round behind STAGE, FINISH two. */
static bool staged_piece_of_step(const struct window *w, const struct window_run *run,
				 uint32_t step, enum stage *stage, uint64_t *k)
{
	uint64_t lag = step % STAGES, round = step / STAGES;

	*stage = (enum stage)lag;
	*k = round - lag;
	if (round < lag || *k >= run->pieces)
		return false;
	if (*stage == FINISH)
		return run->moves->finish &&
		       (run->pattern != COLL_REDUCE || run->args.root == w->rank);
	return *stage != STAGE ||
	       (staged_stages(run, w->rank) && (*k > 0 || !run->first_is_staged));
}

/* Skips steps in which there is nothing to do: the next step has something, or is the end. */
static void staged_skip_idle(const struct window *w, struct window_run *run)
{
	enum stage stage;
	uint64_t k;

	while (run->step + 1 < run->steps &&
	       !staged_piece_of_step(w, run, run->step + 1, &stage, &k))
		run->step++;
}

/* When every other rank has taken what lay in the slot before; 0 if nothing did. */
static uint64_t staged_slot_is_free(uint64_t generation)
{
	return generation + 1 > WINDOW_SLOTS ? generation + 1 - WINDOW_SLOTS : 0;
}

/* The ranks that took what lay in the slot to be staged into now. */
static bool staged_took_from_here(const struct window *w, const struct window_run *run, int rank)
{
	enum stage stage;
	uint64_t k;

	staged_piece_of_step(w, run, run->step, &stage, &k);
	return run->moves->passes(w, run, k - WINDOW_SLOTS, w->rank, rank);
}

static bool staged_gives(const struct window *w, const struct window_run *run, int rank)
{
	enum stage stage;
	uint64_t k;

	staged_piece_of_step(w, run, run->step, &stage, &k);
	return run->moves->passes(w, run, k, rank, w->rank);
}

static struct need staged_need(const struct window *w, const struct window_run *run)
{
	struct need need = {WORD_TAKEN, 0, NULL};
	bool some = run->moves->passes != NULL;
	enum stage stage;
	uint64_t k;

	if (!staged_piece_of_step(w, run, run->step, &stage, &k))
		return need;
	if (stage == STAGE) {
		if (k >= WINDOW_SLOTS || !run->sees_all)
			need.value = staged_slot_is_free(w->generation + k);
		need.of = some && k >= WINDOW_SLOTS ? staged_took_from_here : NULL;
	} else if (stage == FINISH) {
		need.value = w->generation + k + 1;
	} else {
		need = (struct need){WORD_STAGED, w->generation + k + 1,
				     some ? staged_gives : NULL};
	}
	return need;
}

static void staged_stage(struct window *w, struct window_run *run, uint64_t k)
{
	count_bytes(&w->traffic.staged_bytes, run->moves->stage(w, run, k));
}

/* All of round's needs are met and its parts are known. */
static void staged_end_round(struct window *w, struct window_run *run, uint32_t round)
{
	weave_run(&w->weave);
	if (round < run->pieces && staged_stages(run, w->rank) &&
	    (round > 0 || !run->first_is_staged))
		word_post(w, WORD_STAGED, w->generation + round + 1);
	if (round >= TAKE && round - TAKE < run->pieces)
		word_post(w, WORD_TAKEN, w->generation + round - TAKE + 1);
	if (w->contention.is_judged)
		contention_round(&w->contention, (uint64_t)w->size * LONG_ROUND_NS, clock_now_ns());
}

static tutti_status staged_step(struct window *w, struct window_run *run)
{
	uint32_t round = run->step / STAGES;
	enum stage kind;
	uint64_t k;

	if (staged_piece_of_step(w, run, run->step, &kind, &k)) {
		if (kind == STAGE)
			staged_stage(w, run, k);
		else if (kind == TAKE)
			run->moves->take(w, run, k);
		else
			run->moves->finish(w, run, k);
	}
	staged_skip_idle(w, run);
	if ((run->step + 1) / STAGES != round)
		staged_end_round(w, run, round);
	if (run->step + 1 == run->steps)
		contention_end(&w->contention);
	return TUTTI_OK;
}

/* The slot has data of an earlier call, so all ranks must have taken these. */
bool staged_first(struct window *w, struct window_run *run)
{
	uint64_t value = staged_slot_is_free(w->generation);

	if (!staged_stages(run, w->rank))
		return false;
	for (int rank = 0; value && rank < w->size; rank++) {
		if (rank != w->rank && !word_reached(w, WORD_TAKEN, rank, value))
			return false;
	}
	staged_stage(w, run, 0);
	weave_run(&w->weave);
	/* No doorbell: the line that follows says it again. */
	atomic_store_explicit(&w->area->words[WORD_STAGED].value, w->generation + 1,
			      memory_order_release);
	return true;
}

static const struct window_path path = {"staged", staged_need, staged_step};
