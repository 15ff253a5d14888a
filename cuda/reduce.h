/* The memory kind's operations that are kernels of ours. Each starts one on stream, between
 * cuda_enter and cuda_leave. */
#ifndef CUDA_REDUCE_H
#define CUDA_REDUCE_H

#include "cuda/device.h"
#include "core/memory/memory.h"

tutti_status cuda_reduce(const struct cuda_device *device, CUstream stream,
                         const struct memory_io *io);
tutti_status cuda_finish(const struct cuda_device *device, CUstream stream,
                         const struct memory_io *io);
tutti_status cuda_scale(const struct cuda_device *device, CUstream stream,
                        const struct memory_io *io);

#endif
