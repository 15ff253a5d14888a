/* The promises of the collectives, block by block. */
#include "execute.h"

static struct content promise_nothing(void)
{
	return (struct content){HOLDS_NOTHING, 0, -1};
}

static struct content promise_block_of(uint32_t block, int rank)
{
	return (struct content){HOLDS_ONE_RANK, block, rank};
}

static struct content promise_before(const struct plan_set *set, int rank, uint32_t chunk)
{
	const struct plan *p = set->of[rank];
	enum collective c = set->algorithm->collective;

	if ((c == COLL_BROADCAST || c == COLL_SCATTER) && rank != set->root)
		return promise_nothing();
	/* A block that goes to one rank has the number of that rank; else it has its owner's. */
	if (c == COLL_ALL_TO_ALL)
		return promise_block_of(chunk, rank);
	return promise_block_of(chunk + p->shape_base[BUF_IN], rank);
}

static struct content promise_after(const struct plan_set *set, int rank, uint32_t chunk)
{
	const struct plan *p = set->of[rank];
	enum collective c = set->algorithm->collective;
	uint32_t split = algorithm_split(set->algorithm, set->size);
	uint32_t block = chunk + p->shape_base[BUF_OUT];

	switch (c) {
	case COLL_ALL_GATHER:
		return promise_block_of(block, (int)(chunk / split));
	case COLL_GATHER:
		return rank == set->root ? promise_block_of(block, (int)(chunk / split))
					 : promise_nothing();
	case COLL_BROADCAST:
	case COLL_SCATTER:
		return promise_block_of(block, set->root);
	case COLL_ALL_TO_ALL:
		return promise_block_of((uint32_t)rank * split + chunk % split,
					(int)(chunk / split));
	case COLL_ALL_REDUCE:
	case COLL_REDUCE_SCATTER:
		return (struct content){HOLDS_ALL_RANKS, block, -1};
	case COLL_REDUCE:
		return rank == set->root ? (struct content){HOLDS_ALL_RANKS, block, -1}
					 : promise_nothing();
	default:
		return promise_nothing();
	}
}

struct content promise_of(const struct plan_set *set, int rank, struct ref r)
{
	return r.buf == BUF_IN ? promise_before(set, rank, r.chunk)
			       : promise_after(set, rank, r.chunk);
}
