/* Device memory as a dma-buf: a descriptor by which the kernel gives another device, such as an
 * RDMA adapter, a way to it. */
#ifndef CORE_MEMORY_DMA_BUF_H
#define CORE_MEMORY_DMA_BUF_H

#include <tutti/tutti.h>

#include <stdint.h>

/* The allocation that an address lies in. */
struct memory_extent {
	void *base;
	size_t bytes;
	uint64_t id; /* no later allocation has the same, though it may have the same base */
};

struct memory_dma_buf {
	int fd;          /* the caller closes it                  */
	uint64_t offset; /* of what was asked for, from its start */
};

/* Of so many bytes (at least 1) at ptr, which is of this kind (TUTTI_MEMORY_...). UNSUPPORTED: the
 * kind has none, or its driver; the message says which. Any thread. */
tutti_status memory_dma_buf(struct memory_dma_buf *out, int kind, void *ptr, size_t bytes);

#endif
