/* A multicast object of the ranks' GPUs, to which each binds its part of a region: what is stored
 * at its address goes to all of them, and what is loaded is the sum over all (NVLS). The ranks make
 * it in steps, between which they agree: one creates and the others import it; each adds its GPU;
 * when all are added, each binds; when all are bound, kernels may use it. A step before the
 * agreement would wait in the driver, without end. */
#ifndef CUDA_MULTICAST_H
#define CUDA_MULTICAST_H

#include "cuda/region_way.h"

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

#endif
