/* Memory that all ranks of some channels map: each rank's part is a region of its own. */
#ifndef CUDA_REGIONS_H
#define CUDA_REGIONS_H

#include "cuda/channels.h"

/* A rank's message to the others about its part. */
struct cuda_region {
	uint8_t handle[64];      /* an IPC or a fabric handle                                  */
	uint64_t address, local; /* in its process: where it lies, and the driver's handle     */
	uint64_t bytes;          /* of the part                                                */
	uint64_t token;          /* of the descriptors that this rank has sent                 */
	uint32_t number;         /* of the region on that rank; 0: it has none                 */
	uint32_t way;            /* in which it was made                                       */
	uint32_t has_fabric;     /* handle is a fabric handle                                  */
	uint32_t goes_on;        /* this rank takes another step before the region is complete */
	/* Of a multicast object, which the node's first rank makes. */
	uint32_t has_multicast;  /* this rank is as far as the last step wants                 */
	uint32_t multicast_has_fabric;
	uint8_t multicast_handle[64];
};

struct cuda_region_wish {
	size_t bytes;
	bool is_plain; /* by IPC handles, though the device may have more */
	bool wants_multicast; /* where all GPUs have it */
};

/* This rank's part: bytes of its GPU's memory, zero-filled. MEMORY: none, or CHANNEL_REGIONS - 1
 * parts are there; DEVICE. UNSUPPORTED: but a plain one may be had. */
tutti_status cuda_region_alloc(struct cuda_channels *channels, const struct cuda_region_wish *wish,
                               void **ptr, struct cuda_region *region);
/* The next step of the latest part, when the regions of all ranks, by rank, say OK to the one
 * before: own, of this rank, changes. Until no rank goes on. After an error, here or at another
 * rank, the part is to be freed. UNSUPPORTED: as above. */
tutti_status cuda_region_step(struct cuda_channels *channels, const struct cuda_region *regions,
                              struct cuda_region *own);
/* From any thread, also when the channels are gone; nothing uses the memory any more. It goes back
 * to the driver (10 s after a failure, if it had multicast), or, by IPC handles, is kept for later
 * parts of that size, or of more than half of it: other ranks may still map it. false: ptr is no
 * part. */
bool cuda_region_free(void *ptr);
/* For channels.c and channels_launch.c: its parts have channels no more; it maps no others' parts
 * any more; where ptr lies. */
void cuda_regions_forget(const struct cuda_channels *channels);
void cuda_regions_unmap(struct cuda_channels *channels);
bool cuda_region_find(const struct cuda_channels *channels, const void *ptr, uint64_t *place);
/* Whether ptr lies in a part of any channels of this process, all of whose GPUs may use it. */
bool cuda_region_holds(const void *ptr);

#endif
