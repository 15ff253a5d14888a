/* Buffers that all ranks of the window can reach (tutti_mem_alloc): no staging, two waits in all.
 *
 * When all lines are there, every rank's input is ready and every rank's output may be written.
 *
 *     all_reduce      each rank loads its slice from all P inputs and stores the result into all P
 *                     outputs: 2 n bytes of traffic per rank, the least there is
 *     reduce          the same, with the root's output alone
 *     reduce_scatter  each rank reduces its block out of all inputs into its own output
 *     all_gather, all_to_all, broadcast, scatter
 *                     each rank copies its blocks out of the others' inputs, or the root's
 *     gather          each rank copies its block into the root's output
 *
 * Where that pays (reach.c) the root and the others share the work, so that all move as much: in a
 * broadcast each rank stores its share of the root's input into all outputs; in scatter and gather
 * a root whose own block is in its place moves the last P-th of every other block.
 *
 * No rank returns before all have said that they are done with its buffers, or one has failed. The
 * caller of a failed call uses its buffers again, so data that was read counts only if no rank had
 * failed by then. The inputs of a scaled sum must be multiplied first, so it is always staged. */
#include "collectives/window/window_internal.h"

#include "collectives/window/blocks.h"
#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"

static const struct window_path path; /* at the end */

/* The most that one step moves, so that advance never takes long. */
#define STEP_BYTES (256u << 10)

/* Of a block of count elements, those that the root moves: the last, in whole lines. */
static size_t help_with(const struct window *w, const struct window_run *run, size_t count)
{
	size_t line = units_of(WINDOW_ALIGN, run);
	return run->is_shared ? count / (size_t)w->size / line * line : 0;
}

/* The root takes the first share: what it has written last may still be in its first-level cache,
 * from where others get it slowly, but so would it write what they have written last. */
static int turn_of(const struct window *w, const struct window_run *run)
{
	int turn = w->rank - run->args.root;
	return turn < 0 ? turn + w->size : turn;
}

/* This rank's part, in elements: its share, or as much of each block as of all. */
static struct range own_share(const struct window *w, struct window_run *run)
{
	size_t most = 0;

	switch (run->pattern) {
	case COLL_ALL_REDUCE:
	case COLL_REDUCE:
		return share_of(w, run, run->args.count, w->rank);
	case COLL_ALL_GATHER:
		return (struct range){0, run->largest};
	case COLL_ALL_TO_ALL:
		for (int rank = 0; rank < w->size; rank++) {
			size_t count = block_of(run, RECV_SIDE, rank).count;
			most = most < count ? count : most;
		}
		return (struct range){0, most};
	case COLL_BROADCAST:
		if (run->is_shared)
			return share_of(w, run, run->args.count, turn_of(w, run));
		return (struct range){0, run->own};
	default:
		if (run->is_shared && run->args.root == w->rank)
			return (struct range){0, help_with(w, run, run->largest)};
		return (struct range){0, run->own - help_with(w, run, run->own)};
	}
}

bool zero_copy_begin(struct window *w, struct window_run *run)
{
	struct range own;

	if (run->scalar || !reach_all(w, run))
		return false;
	own = own_share(w, run);
	run->path = &path;
	run->pieces = 1; /* one generation, of a slot that stays empty */
	run->each = units_of(STEP_BYTES, run);
	run->steps = (uint32_t)((own.count + run->each - 1) / run->each) + 2;
	return true;
}

static void reduce_part(struct window *w, struct window_run *run, struct range part)
{
	size_t each = run->unit;
	bool is_scatter = run->pattern == COLL_REDUCE_SCATTER;
	int outputs = 1;

	for (int rank = 0; rank < w->size; rank++) {
		size_t from = part.first + (is_scatter ? place_at(w, run, rank) : 0);
		w->scratch.src[rank] = w->scratch.peer_send[rank] + from * each;
	}
	if (is_scatter) {
		w->scratch.dst[0] = (uint8_t *)run->args.recv + part.first * each;
	} else if (run->pattern == COLL_REDUCE) {
		w->scratch.dst[0] = w->scratch.peer_recv[run->args.root] + part.first * each;
	} else {
		outputs = w->size;
		for (int rank = 0; rank < w->size; rank++)
			w->scratch.dst[rank] = w->scratch.peer_recv[rank] + part.first * each;
	}
	struct reduction r = {w->scratch.dst, w->scratch.src,  outputs,      w->size,
			      part.count,     run->args.dtype, run->args.op, w->size};
	weave_reduce(&w->weave, &r);
}

/* The part of a block of count elements. */
static void window_zero_copy(struct window *w, const struct window_run *run, uint8_t *dst,
			     const uint8_t *src, size_t count, struct range part)
{
	size_t from = part.first * run->unit, n = part_of(count, part.first, part.count).count;

	if (dst != src)
		weave_copy(&w->weave, dst + from, src + from, n * run->unit);
}

static const uint8_t *send_at(const struct window *w, const struct window_run *run, int rank,
			      size_t element)
{
	const uint8_t *send = rank == w->rank ? run->args.send : w->scratch.peer_send[rank];
	return send + element * run->unit;
}

/* all_gather, all_to_all */
static void copy_blocks(struct window *w, const struct window_run *run, struct range part)
{
	for (int i = 1; i <= w->size; i++) {
		int rank = rank_after(w, i);
		struct range block = block_of(run, RECV_SIDE, rank);
		size_t from = run->pattern == COLL_ALL_GATHER ? 0 : place_at(w, run, rank);
		if (block.count)
			window_zero_copy(w, run,
					 (uint8_t *)run->args.recv + block.first * run->unit,
					 send_at(w, run, rank, from), block.count, part);
	}
}

/* A broadcast's part, to all ranks. */
static void copy_to_all(struct window *w, const struct window_run *run, struct range part)
{
	const uint8_t *src = send_at(w, run, run->args.root, 0);

	for (int i = 1; i <= w->size; i++) {
		int rank = rank_after(w, i);
		uint8_t *dst = rank == w->rank ? run->args.recv : w->scratch.peer_recv[rank];
		window_zero_copy(w, run, dst, src, run->own, part);
	}
}

/* The root's part of each other rank's block. */
static void copy_for_others(struct window *w, const struct window_run *run, struct range part)
{
	bool is_gather = run->pattern == COLL_GATHER;

	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, is_gather ? RECV_SIDE : SEND_SIDE, rank);
		size_t count = help_with(w, run, block.count), from = block.count - count;
		size_t first = block.first + from;
		if (rank == w->rank || !count)
			continue;
		if (is_gather)
			window_zero_copy(w, run, (uint8_t *)run->args.recv + first * run->unit,
					 w->scratch.peer_send[rank] + from * run->unit, count,
					 part);
		else
			window_zero_copy(w, run, w->scratch.peer_recv[rank] + from * run->unit,
					 (const uint8_t *)run->args.send + first * run->unit, count,
					 part);
	}
}

static void copy_to_root(struct window *w, const struct window_run *run, struct range part)
{
	int root = run->args.root;
	uint8_t *recv = root == w->rank ? run->args.recv : w->scratch.peer_recv[root];

	window_zero_copy(w, run, recv + place_at(w, run, root) * run->unit, run->args.send,
			 run->own, part);
}

static void move_part(struct window *w, struct window_run *run, struct range part)
{
	int root = run->args.root;

	if (run->is_shared && run->pattern == COLL_BROADCAST) {
		copy_to_all(w, run, part);
		return;
	}
	if (run->is_shared && root == w->rank) {
		copy_for_others(w, run, part);
		return;
	}
	switch (run->pattern) {
	case COLL_ALL_GATHER:
	case COLL_ALL_TO_ALL:
		copy_blocks(w, run, part);
		break;
	case COLL_GATHER:
		copy_to_root(w, run, part);
		break;
	case COLL_BROADCAST:
		window_zero_copy(w, run, run->args.recv, send_at(w, run, root, 0), run->own, part);
		break;
	case COLL_SCATTER:
		window_zero_copy(w, run, run->args.recv,
				 send_at(w, run, root, place_at(w, run, root)), run->own, part);
		break;
	default:
		reduce_part(w, run, part);
	}
}

/* Whether rank uses this rank's buffers. */
static bool uses_ours(const struct window *w, const struct window_run *run, int rank)
{
	if (run->is_shared && run->pattern != COLL_BROADCAST && run->args.root != w->rank)
		return rank == run->args.root;
	if (run->pattern == COLL_ALL_GATHER || !has_counts(run))
		return true;
	return row_of(w, run->number, w->rank)[rank].count > 0;
}

/* The last step waits until the others are done with this rank's buffers. */
static struct need zero_copy_need(const struct window *w, const struct window_run *run)
{
	bool some = has_counts(run) || run->is_shared;
	struct need need = {WORD_TAKEN, 0, some ? uses_ours : NULL};

	if (run->step == run->steps - 1 && reach_lends(run, w->rank))
		need.value = w->generation + 1;
	return need;
}

static tutti_status zero_copy_step(struct window *w, struct window_run *run)
{
	size_t done = (size_t)run->step * run->each;
	struct range own, part;

	if (run->step == run->steps - 1)
		return TUTTI_OK;
	if (run->step == run->steps - 2) {
		word_post(w, WORD_TAKEN, w->generation + 1);
		return TUTTI_OK;
	}
	own = own_share(w, run);
	part = part_of(own.count, done, run->each);
	part.first += own.first;
	move_part(w, run, part);
	weave_run(&w->weave);
	return board_failure_while_reading(&w->board);
}

static const struct window_path path = {"zero copy", zero_copy_need, zero_copy_step};
