/* Blocks of memory that a queue has allocated, and uses again. They are given back to the driver
 * only at the end: freeing may wait for kernels, and a kernel may wait for this rank. */
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
