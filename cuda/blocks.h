/* Blocks of memory that a queue takes, and uses again; those of queues that have ended serve later
 * ones. They are not given back to the driver before the process ends: freeing waits for all
 * kernels of a device, and one of another communicator may wait for this rank. */
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
/* All of them, for other queues. */
void cuda_blocks_leave(struct cuda_blocks *blocks);

#endif
