/* Memory that a rank's channels need: its segment, on its GPU, and its record, in pinned memory.
 * It is used again by later communicators, and never freed: other processes may still map it. */
#ifndef CUDA_SEGMENT_H
#define CUDA_SEGMENT_H

#include "cuda/device.h"
#include "cuda/kernels/channel.h"
#include "cuda/turn_page.h"

/* A rank that may read the staging until its own page says that it is over, or is another's. */
struct cuda_reader {
	const struct turn_page *page;
	uint64_t token;
};

struct cuda_segment {
	struct cuda_segment *next;     /* of those that are free                        */
	const struct cuda_device *device;
	size_t bytes;
	CUdeviceptr memory, regions;   /* regions: CHANNEL_REGION_WORDS words          */
	struct channel_host *host;     /* its record ...                                */
	CUdeviceptr host_address;      /* ... as the device sees it                     */
	CUipcMemHandle handle;
	struct cuda_turn_page page;    /* NULL: it could not be made                    */
	CUdeviceptr staging;           /* for calls by turns: memory of its own; or 0   */
	size_t staging_bytes;
	CUipcMemHandle staging_handle;
	struct cuda_reader readers[CHANNEL_RANKS]; /* page NULL: no rank               */
};

/* Zero-filled, of at least so many bytes, with regions of CHANNEL_RANKS ranks. DEVICE, MEMORY. Any
 * thread. */
tutti_status cuda_segment_take(struct cuda_segment **segment, const struct cuda_device *device,
                               size_t bytes);
/* Allocates its staging, of so many bytes, where it has none. In the device's context. */
tutti_status cuda_segment_stage(struct cuda_segment *segment, size_t bytes);
/* This rank reads no staging of others any more. */
void cuda_segment_end_turns(struct cuda_segment *segment);
/* For others to take; or kept as it is, for kernels that are still to run. */
void cuda_segment_give(struct cuda_segment *segment);
void cuda_segment_keep(struct cuda_segment *segment);

#endif
