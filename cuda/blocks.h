/* Blocks of memory that a queue has allocated, and uses again. When it ends the process's other
 * queues get them, never the driver: freeing waits for all that runs on the device, which may be a
 * call of another communicator, or of another rank, that waits for this one. */
#ifndef CUDA_BLOCKS_H
#define CUDA_BLOCKS_H

#include "cuda/device.h"

struct cuda_block;

struct cuda_blocks {
	struct cuda_block *all;
};

/* Of this device's memory, or pinned memory of the host's. DEVICE, MEMORY. */
tutti_status cuda_blocks_take(struct cuda_blocks *blocks, const struct cuda_device *device,
                              bool is_host, size_t bytes, void **ptr);
void cuda_blocks_give(struct cuda_blocks *blocks, void *ptr);
void cuda_blocks_free(struct cuda_blocks *blocks);

#endif
