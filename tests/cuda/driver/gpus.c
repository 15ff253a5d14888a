/* What the driver says about itself and its devices. */
#include "tests/cuda/driver/driver.h"

#include <stdio.h>
#include <string.h>

#define VERSION 13000

static bool is_gpu(int gpu)
{
	return gpu >= 0 && gpu < settings.gpus;
}

CUresult cuDriverGetVersion(int *version)
{
	if (version == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*version = VERSION; /* before cuInit, too */
	return CUDA_SUCCESS;
}

static const char *error_name(CUresult error)
{
	switch (error) {
#define CASE(name)                                                                                 \
	case name:                                                                                 \
		return #name;
		CASE(CUDA_SUCCESS)
		CASE(CUDA_ERROR_INVALID_VALUE)
		CASE(CUDA_ERROR_OUT_OF_MEMORY)
		CASE(CUDA_ERROR_NOT_INITIALIZED)
		CASE(CUDA_ERROR_NO_DEVICE)
		CASE(CUDA_ERROR_INVALID_DEVICE)
		CASE(CUDA_ERROR_INVALID_CONTEXT)
		CASE(CUDA_ERROR_MAP_FAILED)
		CASE(CUDA_ERROR_ECC_UNCORRECTABLE)
		CASE(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
		CASE(CUDA_ERROR_INVALID_HANDLE)
		CASE(CUDA_ERROR_ILLEGAL_STATE)
		CASE(CUDA_ERROR_NOT_FOUND)
		CASE(CUDA_ERROR_NOT_READY)
		CASE(CUDA_ERROR_ILLEGAL_ADDRESS)
		CASE(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
		CASE(CUDA_ERROR_CONTEXT_IS_DESTROYED)
		CASE(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
		CASE(CUDA_ERROR_LAUNCH_FAILED)
		CASE(CUDA_ERROR_NOT_PERMITTED)
		CASE(CUDA_ERROR_NOT_SUPPORTED)
		CASE(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
		CASE(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
		CASE(CUDA_ERROR_STREAM_CAPTURE_MERGE)
		CASE(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
		CASE(CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
		CASE(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
		CASE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT)
		CASE(CUDA_ERROR_CAPTURED_EVENT)
		CASE(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
		CASE(CUDA_ERROR_UNKNOWN)
	default:
		return NULL;
	}
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
	*name = error_name(error);
	return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
	return cuGetErrorName(error, text);
}

CUresult cuDeviceGetCount(int *count)
{
	TRY(driver_enter());
	if (count == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*count = settings.gpus;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	TRY(driver_enter());
	if (device == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (!is_gpu(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
	TRY(driver_enter());
	if (!is_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)bytes, "Shared memory");
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
	TRY(driver_enter());
	if (!is_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	memset(uuid, 0, sizeof *uuid);
	snprintf(uuid->bytes, sizeof uuid->bytes, "fake gpu %02u", (unsigned)device % 100);
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
	TRY(driver_enter());
	if (!is_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = settings.memory;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
	TRY(driver_enter());
	if (!is_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
		*value = (int)settings.sms;
		break;
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
		*value = 2048;
		break;
	case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		*value = 2;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
		*value = 9;
		break;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
		*value = 0;
		break;
	case CU_DEVICE_ATTRIBUTE_MPS_ENABLED:
		*value = settings.has_mps;
		break;
	case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
		*value = settings.has_multicast;
		break;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
		*value = settings.has_pieces;
		break;
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
		*value = settings.has_fds;
		break;
	case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
		*value = settings.has_fabric;
		break;
	case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
		*value = settings.has_wide_waits;
		break;
	case CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
		*value = settings.dma_buf > 0 && (size_t)device != settings.lacks_dma_buf;
		break;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
		*value = settings.dma_buf == 2 ? CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST : 0;
		break;
	case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
		*value = settings.dma_buf == 1 ? CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER : 0;
		break;
	case CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = -1;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device)
{
	TRY(driver_enter());
	if (!is_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (bytes < 13)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(id, (size_t)bytes, "0000:%02X:00.0", device + 1);
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer)
{
	TRY(driver_enter());
	if (!is_gpu(device) || !is_gpu(peer))
		return CUDA_ERROR_INVALID_DEVICE;
	*can = device != peer && gpu_can_reach(device, peer); /* 0 for itself, as CUDA has it */
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from,
				 CUdevice to)
{
	TRY(driver_enter());
	if (!is_gpu(from) || !is_gpu(to) || from == to)
		return CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
		*value = 0;
		return CUDA_SUCCESS;
	case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
	case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
		*value = gpu_can_reach(from, to);
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}
