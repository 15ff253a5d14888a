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
 * Where that pays (zero_copy_reach_pays) the root and the others share the work, so that all move
 * as much: in a broadcast each rank stores its share of the root's input into all outputs; in
 * scatter and gather a root whose own block is in its place moves the last P-th of every other
 * block.
 *
 * No rank returns before all have said that they are done with its buffers, or one has failed. The
 * caller of a failed call uses its buffers again, so data that was read counts only if no rank had
 * failed by then. The inputs of a scaled sum must be multiplied first, so it is always staged. */
#include "collectives/window/allocations.h"
#include "collectives/window/blocks.h"
#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"
#include "collectives/window/window_internal.h"

/* Which buffers of the ranks a zero-copy call uses, and whether all ranks reach them. A rank says
 * in its line where its own buffers are. All ranks decide alike, from all lines. */

/* Bytes: of a block, and of a rank's share of a broadcast; see zero_copy_reach_pays(). */
#define SHARED_LEAST ((size_t)128 << 10)
#define SHARED_LONG  ((size_t)512 << 10)
#define SHARED_MOST  ((size_t)64 << 20) /* of a broadcast's outputs, where ranks share cores */

/* Buffers of a rank. */
struct use {
	bool send, recv;
};

/* The buffers of rank that the others use. */
static struct use zero_copy_use_of(const struct window_run *run, int rank)
{
	bool is_root = run->args.root == rank;

	switch (run->pattern) {
	case COLL_ALL_REDUCE:
		return (struct use){true, true};
	case COLL_REDUCE:
		return (struct use){true, is_root};
	case COLL_BROADCAST:
	case COLL_SCATTER:
		return (struct use){is_root, false};
	case COLL_GATHER:
		return (struct use){false, is_root};
	case COLL_ALL_GATHER:
		return (struct use){block_of(run, SEND_SIDE, rank).count > 0, false};
	default:
		return (struct use){true, false};
	}
}

/* And those that they use besides when the root and the others share the work. */
static struct use zero_copy_shared_of(const struct window_run *run, int rank)
{
	bool is_other = run->args.root != rank && block_of(run, SEND_SIDE, rank).count > 0;

	return (struct use){is_other && run->pattern == COLL_GATHER,
			    run->pattern == COLL_BROADCAST ||
				    (is_other && run->pattern == COLL_SCATTER)};
}

bool reach_lends(const struct window_run *run, int rank)
{
	struct use use = zero_copy_use_of(run, rank), shared = zero_copy_shared_of(run, rank);
	return use.send || use.recv || (run->is_shared && (shared.send || shared.recv));
}

static struct reach zero_copy_reach_find(struct window *w, const void *buffer, size_t bytes)
{
	struct reach reach = memory_find(buffer, bytes);

	if (reach.id && !memory_base(w, reach.id))
		reach.id = 0;
	return reach;
}

static struct reach zero_copy_find_send(struct window *w, const struct window_run *run)
{
	bool has_blocks = run->pattern == COLL_REDUCE_SCATTER || run->pattern == COLL_SCATTER ||
			  run->pattern == COLL_ALL_TO_ALL;

	return zero_copy_reach_find(w, run->args.send,
				    has_blocks ? end_of_blocks(w, run, SEND_SIDE)
					       : run->own * run->unit);
}

static struct reach zero_copy_find_recv(struct window *w, const struct window_run *run)
{
	return zero_copy_reach_find(w, run->args.recv,
				    run->pattern == COLL_GATHER ? end_of_blocks(w, run, RECV_SIDE)
								: run->own * run->unit);
}

/* A root whose own block is where it belongs, so that it has nothing to move for itself. */
static bool zero_copy_reach_is_free(const struct window *w, const struct window_run *run)
{
	const uint8_t *send = run->args.send, *recv = run->args.recv;

	if (run->args.root != w->rank || !run->own)
		return run->args.root == w->rank;
	if (run->pattern == COLL_SCATTER)
		send += block_of(run, SEND_SIDE, w->rank).first * run->unit;
	if (run->pattern == COLL_GATHER)
		recv += block_of(run, RECV_SIDE, w->rank).first * run->unit;
	return send == recv;
}

bool reach_publish(struct window *w, const struct window_run *run, struct line_buffers *buffers)
{
	struct use use = zero_copy_use_of(run, w->rank), shared = zero_copy_shared_of(run, w->rank);
	struct reach send = {0, 0}, recv = {0, 0};

	if (run->scalar)
		return false;
	if (run->args.collective == COLL_ALL_TO_ALLV && buffers->sends == SENDS_NOTHING)
		return true;
	if (use.send || shared.send)
		send = zero_copy_find_send(w, run);
	if (use.send && !send.id)
		return false;
	if (use.recv || shared.recv)
		recv = use.send && run->args.recv == run->args.send ? send
								    : zero_copy_find_recv(w, run);
	if (use.recv && !recv.id)
		return false;
	buffers->send_id = send.id;
	buffers->send_offset = send.offset;
	buffers->recv_id = recv.id;
	buffers->recv_offset = recv.offset;
	buffers->is_free = zero_copy_reach_is_free(w, run);
	/* A rank that only sends, to a root that may be reachable, guesses by its own buffer. */
	return use.send || use.recv || send.id;
}

/* Where this process sees a buffer. An allocation is usable when the processes that have it include
 * all of this window's. All processes that have it know that, and a process that has it not is not
 * among them; so every rank comes to the same answer. */
static uint8_t *zero_copy_find_buffer(struct window *w, uint64_t id, uint64_t offset)
{
	uint8_t *base = id ? memory_base(w, id) : NULL;
	return base ? base + offset : NULL;
}

/* Whether the root and the others share the work: see above. A core reads what another has
 * just written sooner than it overwrites that, above all what is still in the other's first-level
 * cache. So short blocks are left to the ranks that read them, but in a gather. And where ranks
 * share cores, the root's core works for others meanwhile. */
static bool zero_copy_reach_pays(const struct window *w, const struct window_run *run, bool is_free)
{
	size_t bytes = run->largest * run->unit, each = bytes / (size_t)w->size;

	if (run->pattern == COLL_GATHER)
		return is_free && (!w->geometry.shares_cores || bytes >= SHARED_LEAST);
	if (run->pattern == COLL_SCATTER)
		return is_free && !w->geometry.shares_cores && bytes >= SHARED_LEAST;
	if (w->geometry.shares_cores)
		return is_free && each >= SHARED_LONG && bytes <= SHARED_MOST / (size_t)w->size;
	return each >= (is_free ? SHARED_LEAST : 2 * SHARED_LONG);
}

bool reach_may_share(struct window *w, const struct window_run *run,
		     const struct line_buffers *root)
{
	uint64_t id = run->pattern == COLL_GATHER ? root->recv_id : root->send_id;

	return !run->scalar && id && memory_base(w, id) &&
	       zero_copy_reach_pays(w, run, root->is_free);
}

/* False: all ranks must stage. A rank whose buffers no other rank uses may not have posted its
 * line. */
static bool zero_copy_reach_find_peer(struct window *w, struct window_run *run, int rank)
{
	struct use use = zero_copy_use_of(run, rank), shared = {false, false};
	struct line_buffers buffers;

	if (run->is_shared)
		shared = zero_copy_shared_of(run, rank);
	if (!use.send && !use.recv && !shared.send && !shared.recv)
		return true;
	buffers = line_buffers_of(w, run, rank);
	if (run->args.collective == COLL_ALL_TO_ALLV && buffers.sends == SENDS_NOTHING)
		return true;
	if (use.send || shared.send)
		w->scratch.peer_send[rank] =
			zero_copy_find_buffer(w, buffers.send_id, buffers.send_offset);
	if (use.recv || shared.recv)
		w->scratch.peer_recv[rank] =
			zero_copy_find_buffer(w, buffers.recv_id, buffers.recv_offset);
	if ((shared.send && !w->scratch.peer_send[rank]) ||
	    (shared.recv && !w->scratch.peer_recv[rank]))
		run->is_shared = false;
	return (!use.send || w->scratch.peer_send[rank]) &&
	       (!use.recv || w->scratch.peer_recv[rank]);
}

/* With all ranks' lines: whether every buffer is reachable. The same on every rank. Sets
 * run->is_shared. */
static bool zero_copy_reach_all(struct window *w, struct window_run *run)
{
	struct line_buffers root;

	if (is_from_root(run->pattern) || run->pattern == COLL_GATHER) {
		root = line_buffers_of(w, run, run->args.root);
		run->is_shared = reach_may_share(w, run, &root);
	}
	for (int rank = 0; rank < w->size; rank++) {
		if (!zero_copy_reach_find_peer(w, run, rank))
			return false;
	}
	return true;
}

static const struct window_path path; /* at the end */

/* The most that one step moves, so that advance never takes long. */
#define STEP_BYTES (256u << 10)

/* Of a block of count elements, those that the root moves: the last, in whole lines. */
static size_t zero_copy_help_with(const struct window *w, const struct window_run *run,
				  size_t count)
{
	size_t line = units_of(WINDOW_ALIGN, run);
	return run->is_shared ? count / (size_t)w->size / line * line : 0;
}

/* The root takes the first share: what it has written last may still be in its first-level cache,
 * from where others get it slowly, but so would it write what they have written last. */
static int zero_copy_turn_of(const struct window *w, const struct window_run *run)
{
	int turn = w->rank - run->args.root;
	return turn < 0 ? turn + w->size : turn;
}

/* This rank's part, in elements: its share, or as much of each block as of all. */
static struct range zero_copy_own_share(const struct window *w, struct window_run *run)
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
			return share_of(w, run, run->args.count, zero_copy_turn_of(w, run));
		return (struct range){0, run->own};
	default:
		if (run->is_shared && run->args.root == w->rank)
			return (struct range){0, zero_copy_help_with(w, run, run->largest)};
		return (struct range){0, run->own - zero_copy_help_with(w, run, run->own)};
	}
}

bool zero_copy_begin(struct window *w, struct window_run *run)
{
	struct range own;

	if (run->scalar || !zero_copy_reach_all(w, run))
		return false;
	own = zero_copy_own_share(w, run);
	run->path = &path;
	run->pieces = 1; /* one generation, of a slot that stays empty */
	run->each = units_of(STEP_BYTES, run);
	run->steps = (uint32_t)((own.count + run->each - 1) / run->each) + 2;
	return true;
}

static void zero_copy_reduce_part(struct window *w, struct window_run *run, struct range part)
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

static const uint8_t *zero_copy_send_at(const struct window *w, const struct window_run *run,
					int rank, size_t element)
{
	const uint8_t *send = rank == w->rank ? run->args.send : w->scratch.peer_send[rank];
	return send + element * run->unit;
}

/* all_gather, all_to_all */
static void zero_copy_blocks(struct window *w, const struct window_run *run, struct range part)
{
	for (int i = 1; i <= w->size; i++) {
		int rank = rank_after(w, i);
		struct range block = block_of(run, RECV_SIDE, rank);
		size_t from = run->pattern == COLL_ALL_GATHER ? 0 : place_at(w, run, rank);
		if (block.count)
			window_zero_copy(w, run,
					 (uint8_t *)run->args.recv + block.first * run->unit,
					 zero_copy_send_at(w, run, rank, from), block.count, part);
	}
}

/* A broadcast's part, to all ranks. */
static void zero_copy_to_all(struct window *w, const struct window_run *run, struct range part)
{
	const uint8_t *src = zero_copy_send_at(w, run, run->args.root, 0);

	for (int i = 1; i <= w->size; i++) {
		int rank = rank_after(w, i);
		uint8_t *dst = rank == w->rank ? run->args.recv : w->scratch.peer_recv[rank];
		window_zero_copy(w, run, dst, src, run->own, part);
	}
}

/* The root's part of each other rank's block. */
static void zero_copy_for_others(struct window *w, const struct window_run *run, struct range part)
{
	bool is_gather = run->pattern == COLL_GATHER;

	for (int rank = 0; rank < w->size; rank++) {
		struct range block = block_of(run, is_gather ? RECV_SIDE : SEND_SIDE, rank);
		size_t count = zero_copy_help_with(w, run, block.count), from = block.count - count;
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

static void zero_copy_to_root(struct window *w, const struct window_run *run, struct range part)
{
	int root = run->args.root;
	uint8_t *recv = root == w->rank ? run->args.recv : w->scratch.peer_recv[root];

	window_zero_copy(w, run, recv + place_at(w, run, root) * run->unit, run->args.send,
			 run->own, part);
}

static void zero_copy_move_part(struct window *w, struct window_run *run, struct range part)
{
	int root = run->args.root;

	if (run->is_shared && run->pattern == COLL_BROADCAST) {
		zero_copy_to_all(w, run, part);
		return;
	}
	if (run->is_shared && root == w->rank) {
		zero_copy_for_others(w, run, part);
		return;
	}
	switch (run->pattern) {
	case COLL_ALL_GATHER:
	case COLL_ALL_TO_ALL:
		zero_copy_blocks(w, run, part);
		break;
	case COLL_GATHER:
		zero_copy_to_root(w, run, part);
		break;
	case COLL_BROADCAST:
		window_zero_copy(w, run, run->args.recv, zero_copy_send_at(w, run, root, 0),
				 run->own, part);
		break;
	case COLL_SCATTER:
		window_zero_copy(w, run, run->args.recv,
				 zero_copy_send_at(w, run, root, place_at(w, run, root)), run->own,
				 part);
		break;
	default:
		zero_copy_reduce_part(w, run, part);
	}
}

/* Whether rank uses this rank's buffers. */
static bool zero_copy_uses_ours(const struct window *w, const struct window_run *run, int rank)
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
	struct need need = {WORD_TAKEN, 0, some ? zero_copy_uses_ours : NULL};

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
	own = zero_copy_own_share(w, run);
	part = part_of(own.count, done, run->each);
	part.first += own.first;
	zero_copy_move_part(w, run, part);
	weave_run(&w->weave);
	return board_failure_while_reading(&w->board);
}

static const struct window_path path = {"zero copy", zero_copy_need, zero_copy_step};
