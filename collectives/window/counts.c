/* Blocks of different lengths. A rank tells the others of its blocks in its row, which has an entry
 * for each other rank, is kept per parity of the operation's number, and is written before the
 * line.
 *
 * In an all_to_allv the sender and the receiver of a block both know its length, and must agree.
 * All ranks check that without reading all rows: a rank's line has the sum of a hash of every block
 * that it sends minus that of every block that it expects. Over all ranks every block is added once
 * and taken away once, so the sums cancel when all agree. Only when they do not, the rows are
 * searched for the block to name. */
#include "collectives/window/window_internal.h"

#include "collectives/window/blocks.h"

#include <assert.h>

static size_t counts_bytes_of(const struct window_run *run, struct range block)
{
	return block.count * run->unit;
}

void counts_publish(struct window *w, struct window_run *run)
{
	bool is_gather = run->pattern == COLL_GATHER,
	     is_rooted = is_gather || run->pattern == COLL_SCATTER;
	bool has_expected = run->args.collective == COLL_ALL_TO_ALLV;
	struct row_entry *row = row_of(w, run->number, w->rank);

	run->stream_bytes = 0;
	if (run->pattern == COLL_ALL_GATHER || (is_rooted && run->args.root != w->rank))
		return;
	/* From the next rank on, so that senders begin with different receivers. */
	for (int i = 1; i <= w->size; i++) {
		int rank = rank_after(w, i);
		struct range block = block_of(run, is_gather ? RECV_SIDE : SEND_SIDE, rank);
		size_t expected = has_expected ? run->args.counts[RECV_SIDE][rank] : 0;
		row[rank] =
			(struct row_entry){block.count, block.first, run->stream_bytes, expected};
		if (rank != w->rank)
			run->stream_bytes += counts_bytes_of(run, block);
	}
}

static uint64_t counts_hash_of(int from, int to, uint64_t count)
{
	uint64_t h = ((uint64_t)from << 32 | (uint64_t)to) * 0x9e3779b97f4a7c15u;

	h = (h ^ h >> 29 ^ count) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 32) * 0x94d049bb133111ebu;
	return h ^ h >> 31;
}

static uint64_t counts_balance_of(const struct window *w, const struct window_run *run)
{
	uint64_t balance = 0;

	for (int rank = 0; rank < w->size; rank++) {
		balance += counts_hash_of(w->rank, rank, run->args.counts[SEND_SIDE][rank]);
		balance -= counts_hash_of(rank, w->rank, run->args.counts[RECV_SIDE][rank]);
	}
	return balance;
}

static tutti_status counts_disagree(const struct window *w, const struct window_run *run, int from,
				    int to)
{
	unsigned long long sent = row_of(w, run->number, from)[to].count;
	unsigned long long expected = row_of(w, run->number, to)[from].expected;
	char what[128];

	return fail(TUTTI_ERR_MISMATCH,
		    "The ranks' counts do not agree in %s: rank %d sends %llu elements to rank %d, "
		    "rank %d expects %llu from rank %d.",
		    failure_call_text(w, run, what, sizeof what), from, sent, to, to, expected,
		    from);
}

tutti_status counts_agree(const struct window *w, const struct window_run *run)
{
	uint64_t balance = 0;

	for (int rank = 0; rank < w->size; rank++)
		balance += line_buffers_of(w, run, rank).balance;
	if (balance == 0)
		return TUTTI_OK;
	for (int from = 0; from < w->size; from++) {
		for (int to = 0; to < w->size; to++) {
			if (row_of(w, run->number, from)[to].count !=
			    row_of(w, run->number, to)[from].expected)
				return counts_disagree(w, run, from, to);
		}
	}
	assert(!"the sums differ, so some pair does");
	return TUTTI_ERR_INTERNAL;
}

static void counts_write_blocks(const struct window *w, const struct window_run *run, uint8_t *body)
{
	const struct row_entry *row = row_of(w, run->number, w->rank);
	const uint8_t *send = run->args.send;

	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, SEND_SIDE, rank);
		if (rank != w->rank && block.count)
			memcpy(body + row[rank].start, send + block.first * run->unit,
			       counts_bytes_of(run, block));
	}
}

void counts_write(struct window *w, const struct window_run *run, struct line_buffers *buffers)
{
	buffers->pieces = run->pieces;
	buffers->balance = counts_balance_of(w, run);
	buffers->sends = SENDS_NOTHING;
	if (run->stream_bytes > w->geometry.small_bytes) {
		buffers->sends = SENDS_MUCH;
	} else if (run->stream_bytes) {
		buffers->sends = SENDS_IN_LINE;
		counts_write_blocks(w, run,
				    payload_of(w, run->number, w->rank, w->geometry.small_bytes));
	}
}

bool counts_finish(struct window *w, const struct window_run *run)
{
	uint8_t *recv = run->args.recv;
	struct range own = block_of(run, SEND_SIDE, w->rank);

	for (int rank = 0; rank < w->size; rank++) {
		if (line_buffers_of(w, run, rank).sends == SENDS_MUCH)
			return false;
	}
	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, RECV_SIDE, rank);
		const uint8_t *from = payload_of(w, run->number, rank, w->geometry.small_bytes) +
				      row_of(w, run->number, rank)[w->rank].start;
		if (!block.count)
			continue;
		if (rank == w->rank)
			from = (const uint8_t *)run->args.send + own.first * run->unit;
		memcpy(recv + block.first * run->unit, from, counts_bytes_of(run, block));
	}
	return true;
}
