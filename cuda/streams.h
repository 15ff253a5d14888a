/* Streams of the library's own. They are kept for later communicators, which take these first: a
 * process has few queues to a GPU, which its streams share in the order of their creation. */
#ifndef CUDA_STREAMS_H
#define CUDA_STREAMS_H

#include "cuda/device.h"

/* Non-blocking and idle. Both between cuda_enter and cuda_leave of the device; any thread. */
tutti_status cuda_stream_take(const struct cuda_device *device, CUstream *stream);
/* Destroys one on which something runs or has failed. NULL is fine. */
void cuda_stream_give(const struct cuda_device *device, CUstream stream);

/* For ranks of this process that share a GPU: says once (TUTTI_LOG=info) that they have few queues
 * to it, unless CUDA's environment gives them as many as there may be. */
void cuda_streams_share(int ordinal);

#endif
