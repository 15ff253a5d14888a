/* tutti_all_gather_each: a broadcast from each rank in turn, rank 0 first. While fn computes on one
 * block the next ones move, at most one for each of the two buffers. Where all ranks reach all
 * blocks fn sees them where they are. docs/parallel.md has the picture. */
#include "train/blocks/block_buffers.h"
#include "train/blocks/block_call.h"
#include "train/blocks/block_reach.h"

#include <stdlib.h>

struct gather {
	struct block_call call;
	void *own;      /* the caller's send, which nobody writes       */
	void *own_recv; /* where the own broadcast may put it again     */
	struct block_buffers buffers;
	size_t counts[2][2]; /* of two ranks, for each block */
	int next;            /* the rank whose broadcast starts next */
	int started;         /* of other ranks                       */
	tutti_work *own_work, *works[BLOCK_BUFFERS];
};

/* The i-th of the other ranks. */
static int other_rank(const struct block_call *c, int i)
{
	return i < c->rank ? i : i + 1;
}

/* The block of rank g->next goes from send, if it is the own one, to recv. Between two ranks an
 * all_gather of this block alone copies it once, where a broadcast through the window does so
 * twice. */
static tutti_status all_gather_each_start(struct gather *g, const void *send, void *recv,
					  tutti_work **work)
{
	struct block_call *c = &g->call;
	int root = g->next;

	c->part.work = work;
	if (c->size != 2)
		return tutti_broadcast(send, recv, c->count, c->dtype, root, c->comm, &c->part);
	g->counts[root][root] = c->count;
	return tutti_all_gatherv(send, recv, g->counts[root], NULL, c->dtype, c->comm, &c->part);
}

static tutti_status all_gather_each_start_next(struct gather *g)
{
	int place = g->started % BLOCK_BUFFERS;

	if (g->next == g->call.rank)
		return all_gather_each_start(g, g->own, g->own_recv, &g->own_work);
	g->started++;
	return all_gather_each_start(g, NULL, g->buffers.data[place], &g->works[place]);
}

/* Broadcasts begin in the order of ranks everywhere. Of other ranks' no more than limit begin. */
static bool start_until(struct gather *g, int limit)
{
	struct block_call *c = &g->call;

	for (; g->next < c->size; g->next++) {
		if (g->next != c->rank && g->started == limit)
			break;
		if (!block_call_is_well(c, g->next, all_gather_each_start_next(g)))
			return false;
	}
	return true;
}

/* Goes on when fn has failed, since the other ranks need this one's block and its calls. */
static void broadcast_all(struct gather *g)
{
	struct block_call *c = &g->call;
	bool is_well = start_until(g, BLOCK_BUFFERS);

	if (is_well)
		block_call_fn(c, c->rank, g->own);
	for (int i = 0; is_well && i < c->size - 1; i++) {
		int rank = other_rank(c, i), place = i % BLOCK_BUFFERS;

		is_well = block_call_wait(c, rank, &g->works[place]);
		if (is_well)
			block_call_fn(c, rank, g->buffers.data[place]);
		is_well = is_well && start_until(g, i + 1 + BLOCK_BUFFERS);
	}
	for (int place = 0; place < BLOCK_BUFFERS; place++)
		block_call_wait(c, -1, &g->works[place]);
	block_call_wait(c, c->rank, &g->own_work);
}

/* No rank returns before all have seen its block. */
static void show_all(struct gather *g, const struct block_offer *offers)
{
	struct block_call *c = &g->call;

	block_call_fn(c, c->rank, g->own);
	for (int i = 0; i < c->size - 1; i++) {
		int rank = other_rank(c, i);
		block_call_fn(c, rank, tutti_mem_at(&offers[rank].place, c->bytes, c->comm));
	}
	block_call_is_well(c, -1, tutti_barrier(c->comm, &c->part));
}

/* Algorithms of messages may send the root what it has. */
static void hand_over_all(struct gather *g)
{
	struct block_offer *offers = g->buffers.data[0];
	enum block_way way = block_reach(&g->call, g->own, offers);
	bool is_by_window = way == BLOCKS_BY_WINDOW && !getenv("TUTTI_ALGO");

	g->own_recv = is_by_window ? g->own : g->buffers.spare;
	if (way == BLOCKS_REACHED)
		show_all(g, offers);
	else if (way != BLOCKS_NOT)
		broadcast_all(g);
}

tutti_status tutti_all_gather_each(const void *send, size_t count, tutti_dtype dtype,
				   tutti_block_fn fn, void *arg, tutti_comm *comm,
				   const tutti_call *call)
{
	struct gather g = {.call = {.name = "tutti_all_gather_each",
				    .count = count,
				    .dtype = dtype,
				    .fn = fn,
				    .arg = arg,
				    .comm = comm},
			   .own = (void *)(uintptr_t)send};
	struct block_call *c = &g.call;

	TRY(block_call_begin(c, send, call));
	size_t offers = (size_t)c->size * sizeof(struct block_offer);
	if (block_call_has_memory(
		    c, block_buffers_take(&g.buffers, c->bytes > offers ? c->bytes : offers))) {
		hand_over_all(&g);
		block_buffers_give_back(&g.buffers);
	}
	return kept_error_return(&c->failure);
}
