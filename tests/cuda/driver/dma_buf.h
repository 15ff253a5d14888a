/* Dma-bufs, and what tests ask about them. */
#ifndef TESTS_CUDA_DMA_BUF_H
#define TESTS_CUDA_DMA_BUF_H

#include "tests/cuda/driver/region.h"

/* Since the process began. A test finds fake_cuda_count in the library. */
struct fake_cuda_counts {
	unsigned long long host_copies; /* bytes copied between host and device memory */
	unsigned exports, flushes, ordered;
};
__attribute__((visibility("default"))) struct fake_cuda_counts fake_cuda_count(void);

/* All with the lock. */
void dma_buf_count_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes);
/* Where in the file of a device's memory so many bytes at offset lie; false: in several places. */
bool dma_buf_place(int gpu, size_t offset, size_t bytes, size_t *place);
/* An allocation that was exported goes: its whole pages stay with the dma-bufs. */
void dma_buf_leave(struct region *region);

#endif
