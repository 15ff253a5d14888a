/* Calls whose data fits the ranks' lines: each rank posts its data with its line, and reads the
 * others' data in theirs. One wait in all. Up to LINE_PAYLOAD bytes that is one cache line from
 * each rank to each other. (What an all_to_allv puts into lines is in counts.c.) */
#include "collectives/window/window_internal.h"

#include "collectives/window/blocks.h"
#include "collectives/plan/plan.h"
#include "core/prefetch.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"

/* The longest that some rank puts in its line: the same on all ranks. */
static size_t small_payload_bytes(const struct window_run *run)
{
	switch (run->pattern) {
	case COLL_REDUCE_SCATTER:
	case COLL_SCATTER:
	case COLL_ALL_TO_ALL:
		return run->total * run->unit;
	default:
		return run->largest * run->unit;
	}
}

bool small_fits(const struct window *w, struct window_run *run)
{
	run->payload = small_payload_bytes(run);
	if (run->pattern == COLL_ALL_REDUCE)
		return run->payload <= w->geometry.small_all_reduce;
	return run->payload <= w->geometry.small_bytes && run->args.collective != COLL_ALL_TO_ALLV;
}

/* Where a rank's block begins when all blocks lie one behind the other: bytes. */
static size_t small_place_of(const struct window_run *run, int rank)
{
	size_t elements = run->own * (size_t)rank;

	if (has_counts(run)) {
		elements = 0;
		for (int i = 0; i < rank; i++)
			elements += run->args.counts[SEND_SIDE][i];
	}
	return elements * run->unit;
}

/* The part of its payload that this rank writes: bytes [0, first) and [second, end). Data that only
 * this rank would read stays out, but for scaled inputs, which have no other place. */
struct written {
	size_t first, second, end;
};

static struct written small_written_by(const struct window *w, const struct window_run *run)
{
	bool is_root = run->args.root == w->rank;
	size_t whole = run->total * run->unit, own = run->own * run->unit, place;

	switch (run->pattern) {
	case COLL_SCATTER:
		if (!is_root)
			return (struct written){0};
		/* fall through */
	case COLL_REDUCE_SCATTER:
	case COLL_ALL_TO_ALL:
		if (run->scalar)
			return (struct written){whole, whole, whole};
		place = small_place_of(run, w->rank);
		return (struct written){place, place + own, whole};
	case COLL_BROADCAST:
		return (struct written){is_root ? own : 0, 0, 0};
	case COLL_REDUCE:
	case COLL_GATHER:
		return (struct written){is_root && !run->scalar ? 0 : own, 0, 0};
	default:
		return (struct written){own, 0, 0};
	}
}

static void small_put(const struct window_run *run, void *dst, const void *src, size_t bytes)
{
	if (bytes && run->scalar)
		scale(dst, src, run->scalar, units_of(bytes, run), run->args.dtype);
	else if (bytes)
		memcpy(dst, src, bytes);
}

/* Blocks that lie anywhere. */
static void small_put_blocks(const struct window *w, const struct window_run *run, uint8_t *dst)
{
	const uint8_t *send = run->args.send;

	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, SEND_SIDE, rank);
		if (block.count && (rank != w->rank || run->scalar))
			small_put(run, dst, send + block.first * run->unit,
				  block.count * run->unit);
		dst += block.count * run->unit;
	}
}

void small_write(struct window *w, const struct window_run *run)
{
	uint8_t *payload = payload_of(w, run->number, w->rank, run->payload);
	struct written written = small_written_by(w, run);
	const uint8_t *send = run->args.send;

	if (has_counts(run) && written.end) {
		small_put_blocks(w, run, payload);
		return;
	}
	small_put(run, payload, send, written.first);
	small_put(run, payload + written.second, send + written.second,
		  written.end - written.second);
}

/* In a call that waits for all ranks each is about to read what the others have written. Up to so
 * many bytes come sooner if their writer pushes them out of its cache. A root that runs ahead does
 * not stop for that: the others wait for it. */
#define PUSHED_BYTES 4096u

static void small_push_lines(const uint8_t *payload, size_t first, size_t end)
{
	for (size_t at = first; at < end; at += CACHE_LINE)
		push_out(payload + at);
}

static void small_claim_lines(const uint8_t *payload, size_t first, size_t end)
{
	for (size_t at = first; at < end; at += CACHE_LINE)
		prefetch_to_write(payload + at);
}

void small_hand_over(struct window *w, const struct window_run *run)
{
	struct written written = small_written_by(w, run);
	const uint8_t *payload = payload_of(w, run->number, w->rank, run->payload);

	if (!collective_has_root(run->pattern) && run->own * run->unit <= PUSHED_BYTES) {
		wait_for_stores();
		small_push_lines(payload, 0, written.first);
		small_push_lines(payload, written.second, written.end);
	}
	payload = payload_of(w, run->number + 1, w->rank, run->payload);
	small_claim_lines(payload, 0, written.first);
	small_claim_lines(payload, written.second, written.end);
}

/* Where rank's block for this rank is, offset bytes into its payload. This rank's own block is
 * taken from its buffer: what it has just stored into its line may still be on the way, and a load
 * would wait for that. */
static const uint8_t *small_block_from(const struct window *w, const struct window_run *run,
				       int rank, size_t offset)
{
	const uint8_t *send = run->args.send;

	if (rank != w->rank || run->scalar)
		return payload_of(w, run->number, rank, run->payload) + offset;
	if (!collective_has_blocks(run->pattern, SEND_SIDE))
		return send;
	return send + block_of(run, SEND_SIDE, rank).first * run->unit;
}

/* Sets up the reduction before the lines are there, when it costs nothing. The first look at the
 * lines then comes a little later, which is good, too: a look takes a line away from the rank that
 * is writing it. */
void small_prepare(struct window *w, const struct window_run *run)
{
	bool is_root = run->args.root == w->rank;
	size_t offset = run->pattern == COLL_REDUCE_SCATTER ? small_place_of(run, w->rank) : 0;
	struct reduction r = {w->scratch.dst,  w->scratch.src, 1,      w->size, run->own,
			      run->args.dtype, run->args.op,   w->size};

	if (!collective_reduces(run->pattern) || !run->own ||
	    (run->pattern == COLL_REDUCE && !is_root))
		return;
	for (int rank = 0; rank < w->size; rank++)
		w->scratch.src[rank] = small_block_from(w, run, rank, offset);
	w->scratch.dst[0] = run->args.recv;
	reduce_prepare(&w->prepared, &r);
}

/* Every rank's block: of all that it wrote (gather), or from offset on. */
static void small_gather(const struct window *w, const struct window_run *run, size_t offset)
{
	uint8_t *recv = run->args.recv;

	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, RECV_SIDE, rank);
		uint8_t *to = recv + block.first * run->unit;
		const uint8_t *from = small_block_from(w, run, rank, offset);
		if (block.count && to != from)
			memcpy(to, from, block.count * run->unit);
	}
}

/* This rank's block out of the root's payload. */
static void small_take(const struct window *w, const struct window_run *run, size_t offset)
{
	const uint8_t *from = small_block_from(w, run, run->args.root, offset);

	if (run->own && from != run->args.recv)
		memcpy(run->args.recv, from, run->own * run->unit);
}

void small_finish(struct window *w, const struct window_run *run)
{
	bool is_root = run->args.root == w->rank;

	if (!run->payload)
		return;
	switch (run->pattern) {
	case COLL_REDUCE:
		if (!is_root)
			break;
		/* fall through */
	case COLL_ALL_REDUCE:
	case COLL_REDUCE_SCATTER:
		if (run->own)
			reduce_run(&w->prepared);
		break;
	case COLL_GATHER:
		if (!is_root)
			break;
		/* fall through */
	case COLL_ALL_GATHER:
		small_gather(w, run, 0);
		break;
	case COLL_ALL_TO_ALL:
		small_gather(w, run, small_place_of(run, w->rank));
		break;
	case COLL_BROADCAST:
		small_take(w, run, 0);
		break;
	case COLL_SCATTER:
		small_take(w, run, small_place_of(run, w->rank));
		break;
	default:
		break;
	}
}
