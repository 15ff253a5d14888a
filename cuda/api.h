/* CUDA's driver API, as much as Tutti uses, in our own declarations: the library builds without
 * CUDA's headers. Names and values are CUDA's; tests/cuda/test_api.c compares them with cuda.h. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include "cuda/functions.h"
#include "cuda/values.h"

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;
typedef void (*CUhostFn)(void *data);

/* Enumerations whose values are listed below. */
typedef unsigned CUresult;
typedef unsigned CUdevice_attribute, CUdevice_P2PAttribute, CUpointer_attribute;
typedef unsigned CUflushGPUDirectRDMAWritesTarget, CUflushGPUDirectRDMAWritesScope;
typedef unsigned CUmemRangeHandleType, CUmemAllocationHandleType, CUmemAllocationType;
typedef unsigned CUmemAllocationGranularity_flags, CUmemLocationType, CUmemAccess_flags;
typedef unsigned CUmulticastGranularity_flags;
typedef unsigned CUstreamCaptureStatus, CUstreamCaptureMode;
typedef unsigned CUjit_option, CUlibraryOption, CUstreamBatchMemOpType;

typedef struct CUuuid_st {
	char bytes[16];
} CUuuid;

typedef struct CUipcMemHandle_st {
	char reserved[64];
} CUipcMemHandle;

typedef struct CUmemFabricHandle_st {
	unsigned char data[64];
} CUmemFabricHandle;

typedef struct CUmemLocation_st {
	CUmemLocationType type;
	int id;
} CUmemLocation;

typedef struct CUmemAllocationProp_st {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;

typedef struct CUmemAccessDesc_st {
	CUmemLocation location;
	CUmemAccess_flags flags;
} CUmemAccessDesc;

typedef struct CUmulticastObjectProp_st {
	unsigned numDevices;
	size_t size;
	unsigned long long handleTypes, flags;
} CUmulticastObjectProp;

/* Of the operations only waits and writes are declared. */
typedef union CUstreamBatchMemOpParams_union {
	CUstreamBatchMemOpType operation;
	struct {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		union {
			uint32_t value;
			uint64_t value64;
		};
		unsigned flags;
		CUdeviceptr alias; /* the driver's */
	} waitValue;
	struct {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		union {
			uint32_t value;
			uint64_t value64;
		};
		unsigned flags;
		CUdeviceptr alias;
	} writeValue;
	uint64_t pad[6];
} CUstreamBatchMemOpParams;

#define CUDA_VALUE(name, value) name = value,
enum { CUDA_VALUES(CUDA_VALUE) };
#undef CUDA_VALUE

#define CUDA_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type);
CUDA_SIZES(CUDA_SIZE)
#undef CUDA_SIZE

/* The default streams, where a stream is expected; NULL means the legacy one, too. */
#define CU_STREAM_LEGACY     ((CUstream)0x1)
#define CU_STREAM_PER_THREAD ((CUstream)0x2)

#endif
