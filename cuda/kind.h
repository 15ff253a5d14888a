/* The memory kind "cuda": memory of this process's GPUs. */
#ifndef CUDA_KIND_H
#define CUDA_KIND_H

#include "core/memory/memory.h"

/* Registers the kind where there is a driver. Once is enough. Any thread. */
void cuda_kind_use(void);

/* For a communicator, which uses the device; and whether its driver offers dma-bufs, without that:
 * UNSUPPORTED says why not. */
tutti_status cuda_dma_buf_offered(int ordinal);

#endif
