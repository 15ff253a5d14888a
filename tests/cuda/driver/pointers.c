/* What a pointer is. */
#include "tests/cuda/driver/region.h"

static CUresult attribute_of(const struct region *region, CUpointer_attribute attribute,
			     void *value)
{
	switch (attribute) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		*(CUcontext *)value = region->context;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)value =
			region->kind == REGION_HOST ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		*(unsigned long long *)value = region->id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)value = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)value = region->gpu;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned char *)value = region->kind == REGION_ALLOCATED;
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr pointer)
{
	CUresult error = CUDA_ERROR_INVALID_VALUE;

	TRY(driver_enter());
	if (value == NULL)
		return error;
	pthread_mutex_lock(&driver_lock);
	const struct region *region = region_find(pointer);
	if (region)
		error = attribute_of(region, attribute, value);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

/* Of a mapping: all of it, though its memory may be mapped in pieces. */
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
	CUresult error = CUDA_ERROR_NOT_FOUND;

	TRY(driver_enter());
	pthread_mutex_lock(&driver_lock);
	const struct region *region = region_find(pointer);
	if (region) {
		if (base)
			*base = (CUdeviceptr)region->user;
		if (bytes)
			*bytes = region->bytes;
		error = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}
