/* The buffers of a call that hands blocks over one by one. A thread keeps those of its last call,
 * up to BLOCK_KEPT_BYTES, until it ends: fresh pages cost as much as a copy. A call inside of fn
 * finds none, and has its own. */
#ifndef TRAIN_BLOCKS_BLOCK_BUFFERS_H
#define TRAIN_BLOCKS_BLOCK_BUFFERS_H

#include <tutti/tutti.h>

enum {
	BLOCK_BUFFERS = 2, /* for the blocks that are on their way, or seen by fn */
	BLOCK_ALIGN = 64,
};

#define BLOCK_KEPT_BYTES ((size_t)64 << 20) /* of a thread */

struct block_buffers {
	void *data[BLOCK_BUFFERS]; /* aligned to BLOCK_ALIGN; contents are what was there */
	void *spare;               /* as long; it takes memory when it is written         */
	struct block_memory *memory;
};

/* Each of so many bytes. MEMORY. */
tutti_status block_buffers_take(struct block_buffers *buffers, size_t bytes);
void block_buffers_give_back(struct block_buffers *buffers);

#endif
