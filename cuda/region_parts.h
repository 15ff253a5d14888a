/* The parts of regions that this process has made: their memory, how others map it, and a multicast
 * object of it. */
#ifndef CUDA_REGION_PARTS_H
#define CUDA_REGION_PARTS_H

#include "cuda/device.h"
#include "cuda/regions.h"

#include <stdbool.h>
#include <stdint.h>

/* Memory that a handle of the driver's stands for (cuMemCreate), at an address of this process. */
struct cuda_mapping {
	CUdeviceptr address; /* 0: there is none */
	size_t bytes;
};

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

/* How a rank's part of a region is made, described to the others, and mapped by them. There are two
 * ways; a device has one, and the others map a part in the way in which it was made. All between
 * cuda_enter and cuda_leave of the device. */
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

/* A multicast object of the ranks' GPUs, to which each binds its part of a region: what is stored
 * at its address goes to all of them, and what is loaded is the sum over all (NVLS). The ranks make
 * it in steps, between which they agree: one creates and the others import it; each adds its GPU;
 * when all are added, each binds; when all are bound, kernels may use it. A step before the
 * agreement would wait in the driver, without end. */
struct cuda_multicast {
	CUmemGenericAllocationHandle handle; /* 0: there is none */
	bool is_bound;
	struct cuda_mapping here;
};

/* All between cuda_enter and cuda_leave, by memory's device. An error leaves what there is, which
 * cuda_multicast_end ends. */
tutti_status cuda_multicast_create(struct cuda_multicast *multicast,
                                   const struct region_memory *memory, int devices);
/* *fd: the caller's, or -1. */
void cuda_multicast_describe(const struct cuda_multicast *multicast,
                             const struct region_memory *memory, struct cuda_region *region,
			     int *fd);
/* By the region of the rank that has created it. */
tutti_status cuda_multicast_import(struct cuda_multicast *multicast,
                                   const struct cuda_region *region, int fd);
tutti_status cuda_multicast_add(const struct cuda_multicast *multicast,
				const struct region_memory *memory);
/* And maps it. */
tutti_status cuda_multicast_bind(struct cuda_multicast *multicast,
				 const struct region_memory *memory);
void cuda_multicast_end(struct cuda_multicast *multicast, const struct region_memory *memory);

/* The next thing to do with a part, together with the other ranks. */
enum region_step { REGION_MAP, REGION_BIND, REGION_USE, REGION_DONE };

struct region_part {
	struct region_part *next;
	const struct cuda_channels *channels; /* NULL: they are gone, or the part is free */
	struct region_memory memory;
	struct cuda_multicast multicast;
	uint32_t number; /* of the region */
	bool is_used;
	bool is_lost;    /* kernels that do not end may still use it: for ever            */
	uint64_t due_ns; /* not used any more, and to be given back at that time; or 0    */
	enum region_step step;
};

/* With the smallest number that this rank has free; as cuda_region_alloc. Between cuda_enter and
 * cuda_leave. */
tutti_status region_part_take(const struct cuda_channels *channels, size_t bytes, bool is_plain,
                              struct region_part **part);
/* The part that is not complete yet, of which there is one at a time; or NULL. */
struct region_part *region_part_incomplete(const struct cuda_channels *channels);
/* Kernels of a call that has failed may be there that do not end. */
bool region_may_still_run(const struct cuda_channels *channels);

#endif
