/* Memory that all ranks of some channels map: each rank's part is a region of its own. */
#ifndef CUDA_REGIONS_H
#define CUDA_REGIONS_H

#include "cuda/channels.h"

/* A rank's message to the others about its part. */
struct cuda_region {
	uint8_t handle[64];
	uint64_t address; /* in its process                                    */
	uint32_t number;  /* of the region on that rank; 0: it has none         */
	uint32_t unused;
};

/* This rank's part: bytes of its GPU's memory, zero-filled. MEMORY: none, or CHANNEL_REGIONS - 1
 * parts are there; DEVICE. */
tutti_status cuda_region_alloc(struct cuda_channels *channels, size_t bytes, void **ptr,
                               struct cuda_region *region);
/* Maps the parts of all ranks, by rank. */
tutti_status cuda_region_map(struct cuda_channels *channels, const struct cuda_region *regions);
/* From any thread, also when the channels are gone. The memory is kept for later parts of that
 * size, or of more than half of it: other ranks may still map it. false: ptr is no part. */
bool cuda_region_free(void *ptr);
/* For channels.c and channels_launch.c: its parts have channels no more, and where ptr lies. */
void cuda_regions_forget(const struct cuda_channels *channels);
bool cuda_region_find(const struct cuda_channels *channels, const void *ptr, uint64_t *place);

#endif
