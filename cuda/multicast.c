/* Creating, adding, binding and mapping a multicast object, by the driver's calls. */
#include "cuda/multicast.h"

#include "core/status.h"

#include <string.h>

tutti_status cuda_multicast_create(struct cuda_multicast *m, const struct region_memory *memory,
				   int devices)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmulticastObjectProp prop = {.numDevices = (unsigned)devices,
				      .size = memory->bytes,
				      .handleTypes = memory->types};

	CUDA_TRY(multicast_create, &m->handle, &prop);
	return TUTTI_OK;
}

void cuda_multicast_describe(const struct cuda_multicast *m, const struct region_memory *memory,
			     struct cuda_region *region, int *fd)
{
	CUmemFabricHandle fabric;

	cuda_export(m->handle, memory->types, fd, &fabric, &region->multicast_has_fabric);
	memcpy(region->multicast_handle, fabric.data, sizeof region->multicast_handle);
	region->has_multicast = 1;
}

tutti_status cuda_multicast_import(struct cuda_multicast *m, const struct cuda_region *region,
				   int fd)
{
	return cuda_import(&m->handle, fd,
			   region->multicast_has_fabric ? region->multicast_handle : NULL);
}

tutti_status cuda_multicast_add(const struct cuda_multicast *m, const struct region_memory *memory)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice device;

	CUDA_TRY(device_get, &device, memory->device->ordinal);
	CUDA_TRY(multicast_add_device, m->handle, device);
	return TUTTI_OK;
}

tutti_status cuda_multicast_bind(struct cuda_multicast *m, const struct region_memory *memory)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(multicast_bind_mem, m->handle, 0, memory->handle, 0, memory->bytes, 0);
	m->is_bound = true;
	return cuda_mapping_make(&m->here, memory->device, m->handle, memory->bytes,
				 memory->device->pieces.unit);
}

void cuda_multicast_end(struct cuda_multicast *m, const struct region_memory *memory)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice device;

	cuda_mapping_end(&m->here);
	if (m->is_bound && cuda->device_get(&device, memory->device->ordinal) == CUDA_SUCCESS)
		cuda->multicast_unbind(m->handle, device, 0, memory->bytes);
	if (m->handle)
		cuda->mem_release(m->handle);
	*m = (struct cuda_multicast){.handle = 0};
}
