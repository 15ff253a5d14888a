/* The common parts of tutti_all_gather_each and tutti_reduce_scatter_each: arguments, the caller's
 * function, the collectives that they are made of, and the first failure. */
#ifndef TRAIN_BLOCKS_BLOCK_CALL_H
#define TRAIN_BLOCKS_BLOCK_CALL_H

#include "train/base/base.h"

#include <tutti/parallel.h>

struct block_call {
	const char *name;
	size_t count;
	tutti_dtype dtype;
	tutti_block_fn fn;
	void *arg;
	tutti_comm *comm;
	/* Filled by block_call_begin. */
	int rank, size;
	size_t bytes;     /* of a block                                             */
	tutti_call part;  /* of each collective: timeout and label are the caller's */
	bool has_begun;   /* one of them was started                                */
	struct kept_error failure; /* the first: of fn, or of a collective       */
};

/* buffer is the caller's. INVALID, UNSUPPORTED: nothing was sent. */
tutti_status block_call_begin(struct block_call *c, const void *buffer, const tutti_call *call);

/* Without memory (status) comm is aborted, so that the other ranks do not wait. */
bool block_call_has_memory(struct block_call *c, tutti_status status);

/* Lets fn see, or fill, the block of a rank. After a failure it is called no more: false. */
bool block_call_fn(struct block_call *c, int rank, void *data);

/* Of a collective about the block of a rank, -1 for all: whether it went well. A failure is noted;
 * where it is this rank's alone, comm is aborted, so that the others do not wait for it. */
bool block_call_is_well(struct block_call *c, int rank, tutti_status status);
/* The same of the end of its work. NULL is none, and well. */
bool block_call_wait(struct block_call *c, int rank, tutti_work **work);

#endif
