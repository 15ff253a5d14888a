/* How a rank's part of a region is made, described to the others, and mapped by them. There are two
 * ways; a device has one, and the others map a part in the way in which it was made. */
#ifndef CUDA_REGION_WAY_H
#define CUDA_REGION_WAY_H

#include "cuda/mapping.h"
#include "cuda/regions.h"

struct region_memory {
	const struct region_way *way;
	const struct cuda_device *device;
	CUdeviceptr address;
	size_t bytes; /* at least what was asked for           */
	/* Of pieces. */
	CUmemGenericAllocationHandle handle;
	CUmemAllocationHandleType types; /* by which others may have it */
};

/* Where another rank's part was found: in this process, or by a descriptor (-1: none came). */
struct region_source {
	bool is_here;
	int fd;
};

/* All between cuda_enter and cuda_leave of the device. */
struct region_way {
	uint32_t number; /* in messages                                                   */
	bool is_kept;    /* memory is never given back, since others may still map it     */
	/* MEMORY, DEVICE; UNSUPPORTED: the other way may do. */
	tutti_status (*make)(struct region_memory *memory, size_t bytes);
	/* Without mappings of others, of which those of pieces keep it. */
	void (*end)(struct region_memory *memory);
	/* *fd: for the other processes, the caller's; or -1. */
	void (*describe)(const struct region_memory *memory, struct cuda_region *region, int *fd);
	/* UNSUPPORTED: this process cannot reach it, by this way. */
	tutti_status (*map)(struct cuda_mapping *here, const struct cuda_device *device,
			    const struct cuda_region *region, struct region_source source);
	void (*unmap)(struct cuda_mapping *here);
};

extern const struct region_way region_by_ipc, region_by_pieces;

#endif
