/* Which buffers of the ranks a zero-copy call uses, and whether all ranks reach them. A rank says
 * in its line where its own buffers are. All ranks decide alike, from all lines. */
#include "collectives/window/window_internal.h"

#include "collectives/window/allocations.h"
#include "collectives/window/blocks.h"

/* Bytes: of a block, and of a rank's share of a broadcast; see reach_pays(). */
#define SHARED_LEAST ((size_t)128 << 10)
#define SHARED_LONG  ((size_t)512 << 10)
#define SHARED_MOST  ((size_t)64 << 20) /* of a broadcast's outputs, where ranks share cores */

/* Buffers of a rank. */
struct use {
	bool send, recv;
};

/* The buffers of rank that the others use. */
static struct use use_of(const struct window_run *run, int rank)
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
static struct use shared_of(const struct window_run *run, int rank)
{
	bool is_other = run->args.root != rank && block_of(run, SEND_SIDE, rank).count > 0;

	return (struct use){is_other && run->pattern == COLL_GATHER,
			    run->pattern == COLL_BROADCAST ||
				    (is_other && run->pattern == COLL_SCATTER)};
}

bool reach_lends(const struct window_run *run, int rank)
{
	struct use use = use_of(run, rank), shared = shared_of(run, rank);
	return use.send || use.recv || (run->is_shared && (shared.send || shared.recv));
}

static struct reach reach_find(struct window *w, const void *buffer, size_t bytes)
{
	struct reach reach = memory_find(buffer, bytes);

	if (reach.id && !memory_base(w, reach.id))
		reach.id = 0;
	return reach;
}

static struct reach find_send(struct window *w, const struct window_run *run)
{
	bool has_blocks = run->pattern == COLL_REDUCE_SCATTER || run->pattern == COLL_SCATTER ||
			  run->pattern == COLL_ALL_TO_ALL;

	return reach_find(w, run->args.send,
			  has_blocks ? end_of_blocks(w, run, SEND_SIDE) : run->own * run->unit);
}

static struct reach find_recv(struct window *w, const struct window_run *run)
{
	return reach_find(w, run->args.recv,
			  run->pattern == COLL_GATHER ? end_of_blocks(w, run, RECV_SIDE)
						      : run->own * run->unit);
}

/* A root whose own block is where it belongs, so that it has nothing to move for itself. */
static bool reach_is_free(const struct window *w, const struct window_run *run)
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
	struct use use = use_of(run, w->rank), shared = shared_of(run, w->rank);
	struct reach send = {0, 0}, recv = {0, 0};

	if (run->scalar)
		return false;
	if (run->args.collective == COLL_ALL_TO_ALLV && buffers->sends == SENDS_NOTHING)
		return true;
	if (use.send || shared.send)
		send = find_send(w, run);
	if (use.send && !send.id)
		return false;
	if (use.recv || shared.recv)
		recv = use.send && run->args.recv == run->args.send ? send : find_recv(w, run);
	if (use.recv && !recv.id)
		return false;
	buffers->send_id = send.id;
	buffers->send_offset = send.offset;
	buffers->recv_id = recv.id;
	buffers->recv_offset = recv.offset;
	buffers->is_free = reach_is_free(w, run);
	/* A rank that only sends, to a root that may be reachable, guesses by its own buffer. */
	return use.send || use.recv || send.id;
}

/* Where this process sees a buffer. An allocation is usable when the processes that have it include
 * all of this window's. All processes that have it know that, and a process that has it not is not
 * among them; so every rank comes to the same answer. */
static uint8_t *find_buffer(struct window *w, uint64_t id, uint64_t offset)
{
	uint8_t *base = id ? memory_base(w, id) : NULL;
	return base ? base + offset : NULL;
}

/* Whether the root and the others share the work: see zero_copy.c. A core reads what another has
 * just written sooner than it overwrites that, above all what is still in the other's first-level
 * cache. So short blocks are left to the ranks that read them, but in a gather. And where ranks
 * share cores, the root's core works for others meanwhile. */
static bool reach_pays(const struct window *w, const struct window_run *run, bool is_free)
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

	return !run->scalar && id && memory_base(w, id) && reach_pays(w, run, root->is_free);
}

/* False: all ranks must stage. A rank whose buffers no other rank uses may not have posted its
 * line. */
static bool reach_find_peer(struct window *w, struct window_run *run, int rank)
{
	struct use use = use_of(run, rank), shared = {false, false};
	struct line_buffers buffers;

	if (run->is_shared)
		shared = shared_of(run, rank);
	if (!use.send && !use.recv && !shared.send && !shared.recv)
		return true;
	buffers = line_buffers_of(w, run, rank);
	if (run->args.collective == COLL_ALL_TO_ALLV && buffers.sends == SENDS_NOTHING)
		return true;
	if (use.send || shared.send)
		w->scratch.peer_send[rank] = find_buffer(w, buffers.send_id, buffers.send_offset);
	if (use.recv || shared.recv)
		w->scratch.peer_recv[rank] = find_buffer(w, buffers.recv_id, buffers.recv_offset);
	if ((shared.send && !w->scratch.peer_send[rank]) ||
	    (shared.recv && !w->scratch.peer_recv[rank]))
		run->is_shared = false;
	return (!use.send || w->scratch.peer_send[rank]) &&
	       (!use.recv || w->scratch.peer_recv[rank]);
}

bool reach_all(struct window *w, struct window_run *run)
{
	struct line_buffers root;

	if (is_from_root(run->pattern) || run->pattern == COLL_GATHER) {
		root = line_buffers_of(w, run, run->args.root);
		run->is_shared = reach_may_share(w, run, &root);
	}
	for (int rank = 0; rank < w->size; rank++) {
		if (!reach_find_peer(w, run, rank))
			return false;
	}
	return true;
}
