/* Whether all ranks reach all blocks where they are, in memory of tutti_mem_alloc: then nothing is
 * copied. */
#ifndef TRAIN_BLOCKS_BLOCK_REACH_H
#define TRAIN_BLOCKS_BLOCK_REACH_H

#include "train/blocks/block_call.h"

/* Of a rank's block, told to all. */
struct block_offer {
	tutti_mem_place place; /* {0}: not all reach it */
	uint64_t count, dtype;
};

enum block_way {
	BLOCKS_REACHED,  /* all blocks, from all ranks               */
	BLOCKS_BY_WINDOW, /* ranks share memory; blocks do not lie there */
	BLOCKS_BY_MESSAGES,
	BLOCKS_NOT, /* asking has failed, as c says */
};

/* All ranks get the same answer, by an all_gather where they share memory. offers: room for one of
 * each rank. When it returns a reached block is complete. */
enum block_way block_reach(struct block_call *c, const void *own, struct block_offer *offers);

#endif
