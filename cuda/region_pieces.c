/* Parts of cuMemCreate. Each rank that maps one holds it by its own mapping, so the rank whose
 * memory it is gives it back when it likes. Other processes get a descriptor; where none comes
 * through, as between containers, they use a fabric handle, if the GPU has those. */
#include "cuda/region_way.h"

#include "core/status.h"

#include <string.h>

static CUmemAllocationProp prop_of(const struct cuda_device *device,
				   CUmemAllocationHandleType types)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes = types,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal}};

	prop.allocFlags.gpuDirectRDMACapable = device->pieces.reaches_adapters;
	return prop;
}

static tutti_status region_pieces_create(struct region_memory *m, size_t bytes,
					 CUmemAllocationHandleType types, CUresult *error)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmemAllocationProp prop = prop_of(m->device, types);
	size_t unit;

	*error = cuda->mem_get_allocation_granularity(&unit, &prop,
						      CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
	if (*error == CUDA_SUCCESS) {
		unit = unit > m->device->pieces.unit ? unit : m->device->pieces.unit;
		m->bytes = (bytes + unit - 1) / unit * unit;
		m->types = types;
		*error = cuda->mem_create(&m->handle, m->bytes, &prop, 0);
	}
	if (*error == CUDA_ERROR_OUT_OF_MEMORY)
		return fail(TUTTI_ERR_MEMORY, "CUDA device %d has no %zu bytes left",
			    m->device->ordinal, bytes);
	if (cuda_is_refused(*error))
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "CUDA device %d makes no memory that other processes map by handles "
			    "of type %u",
			    m->device->ordinal, types);
	return cuda_status(*error, "mem_create");
}

/* A device may offer fabric handles, and refuse them to this process: without an IMEX channel. */
static tutti_status create_any(struct region_memory *m, size_t bytes)
{
	CUmemAllocationHandleType types = m->device->pieces.types,
				  plain = types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	CUresult error;
	tutti_status status = region_pieces_create(m, bytes, types, &error);

	if (cuda_is_refused(error) && plain && plain != types)
		status = region_pieces_create(m, bytes, plain, &error);
	return status;
}

/* As peer access does for cuMemAlloc's memory: kernels of this process's other GPUs may use it. A
 * GPU for which that fails finds out when it does. */
static void let_others_in(const struct region_memory *m)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdevice own, other;

	if (cuda->device_get(&own, m->device->ordinal) != CUDA_SUCCESS)
		return;
	for (int i = 0; i < cuda_device_count(); i++) {
		CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, i},
					  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
		int can = 0;
		if (cuda->device_get(&other, i) == CUDA_SUCCESS &&
		    cuda->device_can_access_peer(&can, other, own) == CUDA_SUCCESS && can)
			cuda->mem_set_access(m->address, m->bytes, &access, 1);
	}
}

static tutti_status region_pieces_make(struct region_memory *m, size_t bytes)
{
	struct cuda_mapping here;

	TRY(create_any(m, bytes));
	tutti_status status = cuda_mapping_make(&here, m->device, m->handle, m->bytes, 0);
	if (status != TUTTI_OK) {
		cuda_driver()->mem_release(m->handle);
		return status;
	}
	m->address = here.address;
	let_others_in(m);
	return TUTTI_OK;
}

static void region_pieces_end(struct region_memory *m)
{
	struct cuda_mapping here = {m->address, m->bytes};

	cuda_mapping_end(&here);
	cuda_driver()->mem_release(m->handle);
}

static void region_pieces_describe(const struct region_memory *m, struct cuda_region *region,
				   int *fd)
{
	CUmemFabricHandle fabric;

	region->local = m->handle;
	cuda_export(m->handle, m->types, fd, &fabric, &region->has_fabric);
	memcpy(region->handle, fabric.data, sizeof region->handle);
}

static tutti_status region_pieces_map(struct cuda_mapping *here, const struct cuda_device *device,
				      const struct cuda_region *region, struct region_source source)
{
	CUmemGenericAllocationHandle handle = region->local;

	if (!source.is_here)
		TRY(cuda_import(&handle, source.fd, region->has_fabric ? region->handle : NULL));
	tutti_status status = cuda_mapping_make(here, device, handle, region->bytes, 0);
	if (!source.is_here)
		cuda_driver()->mem_release(handle);
	return status;
}

const struct region_way region_by_pieces = {.number = 2,
					    .make = region_pieces_make,
					    .end = region_pieces_end,
					    .describe = region_pieces_describe,
					    .map = region_pieces_map,
					    .unmap = cuda_mapping_end};
