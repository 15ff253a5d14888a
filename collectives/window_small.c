/* Calls whose data fits the ranks' lines: everybody posts it with the line, and reads it off all
 * the others'. One wait in all. Up to LINE_PAYLOAD bytes it is one transfer of one cache line per
 * pair. (What an all_to_allv puts into lines is in window_pairs.c.) */
#include "collectives/window_internal.h"

#include "collectives/layout.h"
#include "memory/ops.h"
#include "memory/reduce.h"

/* The longest that some rank puts in its line: the same on all ranks. */
static size_t payload_bytes(const struct window_run *run)
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
	run->payload = payload_bytes(run);
	if (run->pattern == COLL_ALL_REDUCE)
		return run->payload <= w->small_all_reduce;
	return run->payload <= w->small_bytes && run->args.collective != COLL_ALL_TO_ALLV;
}

/* ---- writing ------------------------------------------------------------------------------- */

static void put(const struct window_run *run, void *dst, const void *src, size_t count)
{
	if (count && run->scalar)
		scale(dst, src, run->scalar, count, run->args.dtype);
	else if (count)
		memcpy(dst, src, count * run->unit);
}

/* All blocks of send, one behind the other. */
static void put_blocks(const struct window *w, const struct window_run *run, uint8_t *dst)
{
	const uint8_t *send = run->args.send;

	if (!has_counts(run)) {
		put(run, dst, send, run->total);
		return;
	}
	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, SEND_SIDE, rank);
		if (block.count)
			put(run, dst, send + block.first * run->unit, block.count);
		dst += block.count * run->unit;
	}
}

void small_write(struct window *w, const struct window_run *run, struct line *line)
{
	void *payload = line_payload(line, run->payload);
	bool is_root = run->args.root == w->rank;

	switch (run->pattern) {
	case COLL_SCATTER:
		if (is_root)
			put_blocks(w, run, payload);
		break;
	case COLL_REDUCE_SCATTER:
	case COLL_ALL_TO_ALL:
		put_blocks(w, run, payload);
		break;
	case COLL_BROADCAST:
		if (!is_root)
			break;
		/* fall through */
	default:
		if (run->payload)
			put(run, payload, run->args.send, run->own);
	}
}

/* ---- reading ------------------------------------------------------------------------------- */

static const uint8_t *payload_of(const struct window *w, const struct window_run *run, int rank)
{
	return line_payload(line_of(w, run->number, rank), run->payload);
}

/* Where this rank's block begins among put_blocks(). */
static size_t own_place(const struct window *w, const struct window_run *run)
{
	size_t elements = run->own * (size_t)w->rank;

	if (has_counts(run)) {
		elements = 0;
		for (int rank = 0; rank < w->rank; rank++)
			elements += run->args.counts[SEND_SIDE][rank];
	}
	return elements * run->unit;
}

/* Where rank's block for this rank is, offset bytes into its payload. This rank's own is taken from
 * its buffer: what it has just stored into its line may still be on its way, and a load would wait
 * for it. */
static const uint8_t *block_from(const struct window *w, const struct window_run *run, int rank,
				 size_t offset)
{
	const uint8_t *send = run->args.send;

	if (rank != w->rank || run->scalar)
		return payload_of(w, run, rank) + offset;
	if (!collective_has_blocks(run->pattern, SEND_SIDE))
		return send;
	return send + block_of(run, SEND_SIDE, rank).first * run->unit;
}

/* recv = the ranks' blocks, offset bytes into their payloads, reduced. */
static void small_reduce(struct window *w, const struct window_run *run, size_t offset)
{
	void *recv = run->args.recv;

	for (int rank = 0; rank < w->size; rank++)
		w->src[rank] = block_from(w, run, rank, offset);
	reduce(&recv, 1, w->src, w->size, run->own, run->args.dtype, run->args.op, w->size);
}

/* Every rank's block: of all that it wrote (gather), or from offset on. */
static void small_gather(const struct window *w, const struct window_run *run, size_t offset)
{
	uint8_t *recv = run->args.recv;

	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, RECV_SIDE, rank);
		uint8_t *to = recv + block.first * run->unit;
		const uint8_t *from = block_from(w, run, rank, offset);
		if (block.count && to != from)
			memcpy(to, from, block.count * run->unit);
	}
}

/* This rank's block out of the root's payload. */
static void small_take(const struct window *w, const struct window_run *run, size_t offset)
{
	const uint8_t *from = block_from(w, run, run->args.root, offset);

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
		small_reduce(w, run, 0);
		break;
	case COLL_REDUCE_SCATTER:
		if (run->own)
			small_reduce(w, run, own_place(w, run));
		break;
	case COLL_GATHER:
		if (!is_root)
			break;
		/* fall through */
	case COLL_ALL_GATHER:
		small_gather(w, run, 0);
		break;
	case COLL_ALL_TO_ALL:
		small_gather(w, run, own_place(w, run));
		break;
	case COLL_BROADCAST:
		small_take(w, run, 0);
		break;
	case COLL_SCATTER:
		small_take(w, run, own_place(w, run));
		break;
	default:
		break;
	}
}
