/* Parts of cuMemAlloc, for devices without pieces, and for processes between which no descriptor
 * passes. The driver forbids to free what others may have opened. */
#include "cuda/region_way.h"

#include "core/status.h"

#include <string.h>

static tutti_status region_ipc_make(struct region_memory *m, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUresult error = cuda->mem_alloc(&m->address, bytes);

	if (error == CUDA_ERROR_OUT_OF_MEMORY)
		return fail(TUTTI_ERR_MEMORY, "CUDA device %d has no %zu bytes left",
			    m->device->ordinal, bytes);
	TRY(cuda_status(error, "mem_alloc"));
	m->bytes = bytes;
	return TUTTI_OK;
}

static void region_ipc_end(struct region_memory *m)
{
	cuda_driver()->mem_free(m->address);
}

/* A process alone needs no handle, nor a GPU that has none. */
static void region_ipc_describe(const struct region_memory *m, struct cuda_region *region, int *fd)
{
	CUipcMemHandle handle = {{0}};

	cuda_driver()->ipc_get_mem_handle(&handle, m->address);
	memcpy(region->handle, handle.reserved, sizeof region->handle);
	*fd = -1;
}

static tutti_status region_ipc_map(struct cuda_mapping *here, const struct cuda_device *device,
				   const struct cuda_region *region, struct region_source source)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUipcMemHandle handle;

	(void)device;
	here->address = region->address;
	here->bytes = source.is_here ? 0 : region->bytes;
	if (source.is_here)
		return TUTTI_OK;
	memcpy(handle.reserved, region->handle, sizeof handle.reserved);
	CUDA_TRY(ipc_open_mem_handle, &here->address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	return TUTTI_OK;
}

static void region_ipc_unmap(struct cuda_mapping *here)
{
	if (here->bytes)
		cuda_driver()->ipc_close_mem_handle(here->address);
	*here = (struct cuda_mapping){0, 0};
}

const struct region_way region_by_ipc = {.number = 1,
					 .is_kept = true,
					 .make = region_ipc_make,
					 .end = region_ipc_end,
					 .describe = region_ipc_describe,
					 .map = region_ipc_map,
					 .unmap = region_ipc_unmap};
