/* An address is reserved, the memory is mapped there, and the device gets access. */
#include "cuda/mapping.h"

#include "core/status.h"

#include <string.h>

static tutti_status mapping_map(CUdeviceptr address, const struct cuda_device *device,
				CUmemGenericAllocationHandle handle, size_t bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device->ordinal},
				  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	CUDA_TRY(mem_map, address, bytes, 0, handle, 0);
	tutti_status status =
		cuda_status(cuda->mem_set_access(address, bytes, &access, 1), "mem_set_access");
	if (status != TUTTI_OK)
		cuda->mem_unmap(address, bytes);
	return status;
}

tutti_status cuda_mapping_make(struct cuda_mapping *mapping, const struct cuda_device *device,
			       CUmemGenericAllocationHandle handle, size_t bytes, size_t alignment)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUdeviceptr address;

	CUDA_TRY(mem_address_reserve, &address, bytes, alignment, 0, 0);
	tutti_status status = mapping_map(address, device, handle, bytes);
	if (status != TUTTI_OK) {
		cuda->mem_address_free(address, bytes);
		return status;
	}
	*mapping = (struct cuda_mapping){address, bytes};
	return TUTTI_OK;
}

/* An address from which nothing could be unmapped is not given out again. */
void cuda_mapping_end(struct cuda_mapping *mapping)
{
	const struct cuda_driver *cuda = cuda_driver();

	if (mapping->address && cuda->mem_unmap(mapping->address, mapping->bytes) == CUDA_SUCCESS)
		cuda->mem_address_free(mapping->address, mapping->bytes);
	*mapping = (struct cuda_mapping){0, 0};
}

void cuda_export(CUmemGenericAllocationHandle handle, CUmemAllocationHandleType types, int *fd,
		 CUmemFabricHandle *fabric, uint32_t *has_fabric)
{
	const struct cuda_driver *cuda = cuda_driver();

	*fd = -1;
	if (types & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
	    cuda->mem_export_to_shareable_handle(
		    fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) != CUDA_SUCCESS)
		*fd = -1;
	memset(fabric, 0, sizeof *fabric);
	*has_fabric = types & CU_MEM_HANDLE_TYPE_FABRIC &&
		      cuda->mem_export_to_shareable_handle(
			      fabric, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) == CUDA_SUCCESS;
}

tutti_status cuda_import(CUmemGenericAllocationHandle *handle, int fd, const uint8_t *fabric)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUmemFabricHandle copy;
	CUresult error = CUDA_ERROR_NOT_SUPPORTED;

	if (fd >= 0)
		error = cuda->mem_import_from_shareable_handle(
			handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (error != CUDA_SUCCESS && fabric) {
		memcpy(copy.data, fabric, sizeof copy.data);
		error = cuda->mem_import_from_shareable_handle(handle, &copy,
							       CU_MEM_HANDLE_TYPE_FABRIC);
	}
	if (error == CUDA_SUCCESS)
		return TUTTI_OK;
	if (fd < 0 && !fabric)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "no descriptor of it came, as between network namespaces, and it has "
			    "no fabric handle");
	cuda_status(error, "mem_import_from_shareable_handle");
	return TUTTI_ERR_UNSUPPORTED;
}

bool cuda_is_refused(CUresult error)
{
	return error == CUDA_ERROR_NOT_PERMITTED || error == CUDA_ERROR_NOT_SUPPORTED ||
	       error == CUDA_ERROR_INVALID_DEVICE;
}
