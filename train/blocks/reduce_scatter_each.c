/* tutti_reduce_scatter_each: a reduction to each rank in turn, rank 0 first. While fn computes this
 * rank's contribution to one block, those to the two before are on their way. docs/parallel.md has
 * the picture. */
#include "train/blocks/block_buffers.h"
#include "train/blocks/block_call.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <string.h>

struct scatter {
	struct block_call call;
	void *recv;
	tutti_op op;
	struct block_buffers buffers;
	tutti_work *works[BLOCK_BUFFERS];
};

/* Refused before fn is called: the first reduce comes after it. */
static tutti_status reduce_scatter_each_check_op(const struct scatter *s)
{
	const struct block_call *c = &s->call;

	if (!op_is_known(s->op))
		return fail_invalid("%s: there is no operation %d, or it was destroyed", c->name,
				    (int)s->op);
	if (!op_fits(s->op, c->dtype))
		return fail_invalid("%s: operation %s does not work on %s", c->name, op_name(s->op),
				    dtype_name(c->dtype));
	return TUTTI_OK;
}

/* A rank whose fn has failed sends zeros: the others hear of it at the end. */
static bool reduce_block(struct scatter *s, int rank)
{
	struct block_call *c = &s->call;
	void *data = s->buffers.data[rank % BLOCK_BUFFERS];

	if (!block_call_fn(c, rank, data))
		memset(data, 0, c->bytes);
	c->part.work = &s->works[rank % BLOCK_BUFFERS];
	return block_call_is_well(c, rank,
				  tutti_reduce(data, rank == c->rank ? s->recv : NULL, c->count,
					       c->dtype, s->op, rank, c->comm, &c->part));
}

/* Blocks are reduced in the order of ranks everywhere. */
static bool reduce_all(struct scatter *s)
{
	struct block_call *c = &s->call;
	bool is_well = true;

	for (int rank = 0; is_well && rank < c->size; rank++)
		is_well =
			block_call_wait(c, rank - BLOCK_BUFFERS, &s->works[rank % BLOCK_BUFFERS]) &&
			reduce_block(s, rank);
	for (int rank = c->size; rank < c->size + BLOCK_BUFFERS; rank++)
		is_well &=
			block_call_wait(c, rank - BLOCK_BUFFERS, &s->works[rank % BLOCK_BUFFERS]);
	return is_well;
}

/* Where all collectives went well, all ranks are told whose fn has failed. */
static void reduce_scatter_each_agree(struct block_call *c)
{
	struct kept_error own = c->failure;

	c->failure = kept_error_of(error_agree(c->comm, kept_error_return(&own)));
}

tutti_status tutti_reduce_scatter_each(void *recv, size_t count, tutti_dtype dtype, tutti_op op,
				       tutti_block_fn fn, void *arg, tutti_comm *comm,
				       const tutti_call *call)
{
	struct scatter s = {.call = {.name = "tutti_reduce_scatter_each",
				     .count = count,
				     .dtype = dtype,
				     .fn = fn,
				     .arg = arg,
				     .comm = comm},
			    .recv = recv,
			    .op = op};

	TRY(block_call_begin(&s.call, recv, call));
	TRY(reduce_scatter_each_check_op(&s));
	if (block_call_has_memory(&s.call, block_buffers_take(&s.buffers, s.call.bytes))) {
		if (reduce_all(&s))
			reduce_scatter_each_agree(&s.call);
		block_buffers_give_back(&s.buffers);
	}
	return kept_error_return(&s.call.failure);
}
