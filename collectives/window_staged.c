/* Ordinary buffers, too long for a line: piece by piece through the ranks' staging slots.
 *
 * A piece goes through three stages on every rank:
 *     stage    this rank copies into its slot what others will read
 *     take     it reduces or copies what it needs out of the others' slots
 *     finish   all_reduce only: it copies out of its own slot what others have put there
 * For all_reduce, take is an n-ary reduction of this rank's slice of the piece from all slots at
 * once, and the result goes back into the very lines of the slots it was read from: no lines of a
 * result area to fetch, and each owner copies out what lies in its own slot.
 *
 * Stages of several pieces overlap: stage k, take k - 1, finish k - 2, in that order, so that the
 * others' part of k - 1 is done while this rank copies. The slot of piece k is the one of piece k -
 * WINDOW_SLOTS:
 * - the others must have taken that piece: their WORD_TAKEN says so, and it grows by the same
 * number in every collective on every rank, so it holds for pieces of earlier calls as well;
 * - this rank must have finished it: the order above has finished piece k - 3 when k is staged, so
 * three slots are enough and two are not. Everything here depends only on what all ranks agree on,
 * never on a rank's own pointers. */
#include "collectives/window_internal.h"

#include "memory/dtype.h"
#include "memory/reduce.h"

_Static_assert(WINDOW_SLOTS >= 3, "stage k would overwrite piece k - 2 before it is copied out");

static struct range piece_of(const struct window_run *run, uint64_t k)
{
	struct range piece = {(size_t)k * run->each, run->each};
	if (piece.count > run->args.count - piece.first)
		piece.count = run->args.count - piece.first;
	return piece;
}

/* Bytes of a slot that one rank's block of a piece takes in a reduce_scatter. */
static size_t block_bytes(const struct window *w)
{
	return w->slot_bytes / (size_t)w->size / WINDOW_ALIGN * WINDOW_ALIGN;
}

void staged_begin(struct window *w, struct window_run *run)
{
	bool is_scatter = run->args.collective == COLL_REDUCE_SCATTER;

	run->each = units_of(is_scatter ? block_bytes(w) : w->slot_bytes, run);
	run->pieces =
		run->args.count <= run->each ? 1 : (run->args.count + run->each - 1) / run->each;
	run->steps = (uint32_t)(run->pieces + 2) * 3;
}

/* n elements from element from of src to element to of dst. */
static void copy(const struct window_run *run, void *dst, size_t to, const void *src, size_t from,
		 size_t n)
{
	size_t each = run->unit;
	if (n)
		memcpy((uint8_t *)dst + to * each, (const uint8_t *)src + from * each, n * each);
}

/* ---- stage ---------------------------------------------------------------------------- */

static void stage_all_reduce(struct window *w, struct window_run *run, struct range piece,
			     uint8_t *slot)
{
	struct range own = share_of(w, run, piece.count, w->rank);
	size_t end = own.first + own.count;

	copy(run, slot, 0, run->args.send, piece.first, own.first);
	copy(run, slot, end, run->args.send, piece.first + end, piece.count - end);
}

static void stage_reduce_scatter(struct window *w, struct window_run *run, struct range piece,
				 uint8_t *slot)
{
	for (int rank = 0; rank < w->size; rank++) {
		if (rank != w->rank)
			copy(run, slot + (size_t)rank * block_bytes(w), 0, run->args.send,
			     (size_t)rank * run->args.count + piece.first, piece.count);
	}
}

static void stage(struct window *w, struct window_run *run, uint64_t k)
{
	uint8_t *slot = slot_of(w, w->generation + k, w->rank);
	struct range piece = piece_of(run, k);

	switch (run->args.collective) {
	case COLL_ALL_REDUCE:
		stage_all_reduce(w, run, piece, slot);
		break;
	case COLL_REDUCE_SCATTER:
		stage_reduce_scatter(w, run, piece, slot);
		break;
	case COLL_BROADCAST:
		if (run->args.root != w->rank)
			break;
		/* fall through */
	default:
		copy(run, slot, 0, run->args.send, piece.first, piece.count);
	}
}

/* ---- take ----------------------------------------------------------------------------- */

static void take_all_reduce(struct window *w, struct window_run *run, struct range piece,
			    uint64_t generation)
{
	struct range own = share_of(w, run, piece.count, w->rank);
	size_t each = run->unit, at = (piece.first + own.first) * each;

	for (int rank = 0; rank < w->size; rank++) {
		uint8_t *slot = slot_of(w, generation, rank) + own.first * each;
		w->src[rank] = slot;
		w->dst[rank] = slot;
	}
	w->src[w->rank] = (const uint8_t *)run->args.send + at;
	w->dst[w->rank] = (uint8_t *)run->args.recv + at;
	reduce(w->dst, w->size, w->src, w->size, own.count, run->args.dtype, run->args.op, w->size);
}

static void take_reduce_scatter(struct window *w, struct window_run *run, struct range piece,
				uint64_t generation)
{
	size_t each = run->unit, block = (size_t)w->rank * block_bytes(w);
	void *dst = (uint8_t *)run->args.recv + piece.first * each;

	for (int rank = 0; rank < w->size; rank++)
		w->src[rank] = slot_of(w, generation, rank) + block;
	w->src[w->rank] = (const uint8_t *)run->args.send +
			  ((size_t)w->rank * run->args.count + piece.first) * each;
	reduce(&dst, 1, w->src, w->size, piece.count, run->args.dtype, run->args.op, w->size);
}

static void take_all_gather(struct window *w, struct window_run *run, struct range piece,
			    uint64_t generation)
{
	size_t own = (size_t)w->rank * run->args.count;
	bool in_place = (const uint8_t *)run->args.recv + own * run->unit == run->args.send;

	/* Each rank begins with its neighbour, so that not all read the same slot at once. */
	for (int i = 1; i < w->size; i++) {
		int rank = (w->rank + i) % w->size;
		copy(run, run->args.recv, (size_t)rank * run->args.count + piece.first,
		     slot_of(w, generation, rank), 0, piece.count);
	}
	if (!in_place)
		copy(run, run->args.recv, own + piece.first, run->args.send, piece.first,
		     piece.count);
}

static void take_broadcast(struct window *w, struct window_run *run, struct range piece,
			   uint64_t generation)
{
	if (w->rank != run->args.root)
		copy(run, run->args.recv, piece.first, slot_of(w, generation, run->args.root), 0,
		     piece.count);
	else if (run->args.recv != run->args.send)
		copy(run, run->args.recv, piece.first, run->args.send, piece.first, piece.count);
}

static void take(struct window *w, struct window_run *run, uint64_t k)
{
	uint64_t generation = w->generation + k;
	struct range piece = piece_of(run, k);

	switch (run->args.collective) {
	case COLL_ALL_REDUCE:
		take_all_reduce(w, run, piece, generation);
		break;
	case COLL_REDUCE_SCATTER:
		take_reduce_scatter(w, run, piece, generation);
		break;
	case COLL_BROADCAST:
		take_broadcast(w, run, piece, generation);
		break;
	default:
		take_all_gather(w, run, piece, generation);
	}
}

/* ---- finish --------------------------------------------------------------------------- */

static void finish_all_reduce(struct window *w, struct window_run *run, uint64_t k)
{
	struct range piece = piece_of(run, k), own = share_of(w, run, piece.count, w->rank);
	uint8_t *slot = slot_of(w, w->generation + k, w->rank);
	size_t end = own.first + own.count;

	copy(run, run->args.recv, piece.first, slot, 0, own.first);
	copy(run, run->args.recv, piece.first + end, slot, end, piece.count - end);
}

/* ---- the order of it all -------------------------------------------------------------- */

enum stage { STAGE, TAKE, FINISH, STAGES };

/* Which piece a step is about, and what it does with it; false: nothing. Steps go round by round,
 * and TAKE is one round behind STAGE, FINISH two. */
static bool job_of(const struct window_run *run, uint32_t step, enum stage *stage, uint64_t *k)
{
	uint64_t lag = step % STAGES, round = step / STAGES;

	*stage = (enum stage)lag;
	*k = round - lag;
	if (round < lag || *k >= run->pieces)
		return false;
	if (*stage == FINISH)
		return run->args.collective == COLL_ALL_REDUCE;
	return *stage != STAGE || *k > 0 || !run->first_is_staged;
}

/* Leaves run at the last step with nothing to do before the next one with something, or the end. */
static void skip_idle(struct window_run *run)
{
	enum stage stage;
	uint64_t k;

	while (run->step + 1 < run->steps && !job_of(run, run->step + 1, &stage, &k))
		run->step++;
}

static bool stages(const struct window *w, const struct window_run *run)
{
	return run->args.collective != COLL_BROADCAST || run->args.root == w->rank;
}

/* When every other rank has taken what lay in the slot of this generation before; 0: nothing did.
 */
static uint64_t slot_is_free(uint64_t generation)
{
	return generation + 1 > WINDOW_SLOTS ? generation + 1 - WINDOW_SLOTS : 0;
}

static struct need staged_need(const struct window *w, const struct window_run *run)
{
	struct need need = {WORD_TAKEN, 0, -1};
	enum stage stage;
	uint64_t k;

	if (!job_of(run, run->step, &stage, &k))
		return need;
	if (stage == STAGE) {
		if (stages(w, run))
			need.value = slot_is_free(w->generation + k);
	} else if (stage == FINISH) {
		need.value = w->generation + k + 1;
	} else if (run->args.collective != COLL_BROADCAST) {
		need = (struct need){WORD_STAGED, w->generation + k + 1, -1};
	} else if (run->args.root != w->rank) {
		need = (struct need){WORD_STAGED, w->generation + k + 1, run->args.root};
	}
	return need;
}

static tutti_status staged_step(struct window *w, struct window_run *run)
{
	enum stage kind;
	uint64_t k;

	if (!job_of(run, run->step, &kind, &k)) {
		skip_idle(run);
		return TUTTI_OK;
	}
	switch (kind) {
	case STAGE:
		stage(w, run, k);
		word_post(w, WORD_STAGED, w->generation + k + 1);
		break;
	case TAKE:
		take(w, run, k);
		word_post(w, WORD_TAKEN, w->generation + k + 1);
		break;
	default:
		finish_all_reduce(w, run, k);
	}
	skip_idle(run);
	return TUTTI_OK;
}

bool staged_first(struct window *w, struct window_run *run)
{
	uint64_t value = slot_is_free(w->generation);

	for (int rank = 0; value && stages(w, run) && rank < w->size; rank++) {
		if (rank != w->rank && !word_reached(w, WORD_TAKEN, rank, value))
			return false;
	}
	stage(w, run, 0);
	/* No bell: the line that follows says it again. */
	atomic_store_explicit(&w->area->words[WORD_STAGED].value, w->generation + 1,
			      memory_order_release);
	return true;
}

const struct window_path window_staged = {"staged", staged_need, staged_step};
