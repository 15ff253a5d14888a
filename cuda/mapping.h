/* Memory that a handle of the driver's stands for (cuMemCreate), at an address of this process. */
#ifndef CUDA_MAPPING_H
#define CUDA_MAPPING_H

#include "cuda/device.h"

#include <stdint.h>

struct cuda_mapping {
	CUdeviceptr address; /* 0: there is none */
	size_t bytes;
};

/* The device may read and write it. The handle stays the caller's; a mapping keeps the memory
 * without it. DEVICE, MEMORY. Between cuda_enter and cuda_leave, as the other one. */
tutti_status cuda_mapping_make(struct cuda_mapping *mapping, const struct cuda_device *device,
                               CUmemGenericAllocationHandle handle, size_t bytes,
                               size_t alignment);
/* Nothing that runs uses it any more. */
void cuda_mapping_end(struct cuda_mapping *mapping);

/* By those types: *fd, the caller's, or -1; *fabric, if *has_fabric. */
void cuda_export(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType types, int *fd,
                 CUmemFabricHandle *fabric, uint32_t *has_fabric);
/* The memory of a descriptor (-1: none), or of a fabric handle (NULL: none) where that fails; the
 * caller's. UNSUPPORTED: neither gives it. */
tutti_status cuda_import(CUmemGenericAllocationHandle *handle, int fd, const uint8_t *fabric);

/* The type of handle was refused for want of rights or of support, not for want of memory. */
bool cuda_is_refused(CUresult error);

#endif
