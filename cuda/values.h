/* Values of the driver API: X(name, value). No header of CUDA's is needed; see functions.h. */
#ifndef CUDA_VALUES_H
#define CUDA_VALUES_H

#define CUDA_VALUES(X)                                                                             \
	X(CUDA_SUCCESS, 0)                                                                         \
	X(CUDA_ERROR_INVALID_VALUE, 1)                                                             \
	X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                             \
	X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                           \
	X(CUDA_ERROR_DEINITIALIZED, 4)                                                             \
	X(CUDA_ERROR_NO_DEVICE, 100)                                                               \
	X(CUDA_ERROR_INVALID_DEVICE, 101)                                                          \
	X(CUDA_ERROR_INVALID_IMAGE, 200)                                                           \
	X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                         \
	X(CUDA_ERROR_MAP_FAILED, 205)                                                              \
	X(CUDA_ERROR_ALREADY_MAPPED, 208)                                                          \
	X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                       \
	X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                       \
	X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                                 \
	X(CUDA_ERROR_INVALID_HANDLE, 400)                                                          \
	X(CUDA_ERROR_NOT_FOUND, 500)                                                               \
	X(CUDA_ERROR_NOT_READY, 600)                                                               \
	X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                         \
	X(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701)                                                 \
	X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                             \
	X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                    \
	X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                          \
	X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                           \
	X(CUDA_ERROR_NOT_PERMITTED, 800)                                                           \
	X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                           \
	X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                              \
	X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                              \
	X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                                                 \
	X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905)                                                \
	X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                 \
	X(CUDA_ERROR_CAPTURED_EVENT, 907)                                                          \
	X(CUDA_ERROR_UNKNOWN, 999)                                                                 \
	X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                            \
	X(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 39)                                  \
	X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                                              \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                        \
	X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                        \
	X(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES, 100)                   \
	X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                            \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                    \
	X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                        \
	X(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 124)                                              \
	X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128)                                   \
	X(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 132)                                            \
	X(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 134)                                                   \
	X(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1)                                             \
	X(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2)                                             \
	X(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 3)                                      \
	X(CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                                         \
	X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                     \
	X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                       \
	X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                      \
	X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                  \
	X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                     \
	X(CU_MEMORYTYPE_HOST, 1)                                                                   \
	X(CU_MEMORYTYPE_DEVICE, 2)                                                                 \
	X(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)                                                  \
	X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                             \
	X(CU_MEM_HANDLE_TYPE_FABRIC, 8)                                                            \
	X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                        \
	X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                          \
	X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                                 \
	X(CU_MULTICAST_GRANULARITY_MINIMUM, 0)                                                     \
	X(CU_MULTICAST_GRANULARITY_RECOMMENDED, 1)                                                 \
	X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                   \
	X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                                   \
	X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                             \
	X(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                                            \
	X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                          \
	X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                                         \
	X(CU_STREAM_NON_BLOCKING, 1)                                                               \
	X(CU_STREAM_WAIT_VALUE_GEQ, 0)                                                             \
	X(CU_STREAM_WAIT_VALUE_EQ, 1)                                                              \
	X(CU_STREAM_WAIT_VALUE_AND, 2)                                                             \
	X(CU_STREAM_MEM_OP_WAIT_VALUE_32, 1)                                                       \
	X(CU_STREAM_WRITE_VALUE_DEFAULT, 0)                                                        \
	X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                        \
	X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                      \
	X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                                 \
	X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                                        \
	X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                  \
	X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                                       \
	X(CU_EVENT_DEFAULT, 0)                                                                     \
	X(CU_EVENT_DISABLE_TIMING, 2)

/* X(struct, bytes) */
#define CUDA_SIZES(X)                                                                              \
	X(CUuuid, 16)                                                                              \
	X(CUipcMemHandle, 64)                                                                      \
	X(CUmemFabricHandle, 64)                                                                   \
	X(CUmemLocation, 8)                                                                        \
	X(CUmemAllocationProp, 32)                                                                 \
	X(CUmemAccessDesc, 12)                                                                     \
	X(CUmulticastObjectProp, 32)                                                               \
	X(CUstreamBatchMemOpParams, 48)

#endif
