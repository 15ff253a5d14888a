/* The functions of CUDA's driver API that Tutti calls: X(name, symbol, parameters). Symbols carry
 * the version whose parameters these are. They include no header of CUDA's: api.h has the types,
 * and a test compares both with cuda.h where that is installed. */
#ifndef CUDA_FUNCTIONS_H
#define CUDA_FUNCTIONS_H

#define CUDA_FUNCTIONS(X)                                                                          \
	/* The driver and its devices. */                                                          \
	X(init, cuInit, (unsigned flags))                                                          \
	X(driver_get_version, cuDriverGetVersion, (int *version))                                  \
	X(get_error_name, cuGetErrorName, (CUresult error, const char **name))                     \
	X(get_error_string, cuGetErrorString, (CUresult error, const char **text))                 \
	X(device_get_count, cuDeviceGetCount, (int *count))                                        \
	X(device_get, cuDeviceGet, (CUdevice * device, int ordinal))                               \
	X(device_get_name, cuDeviceGetName, (char *name, int bytes, CUdevice device))              \
	X(device_get_uuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                   \
	X(device_total_mem, cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device))                 \
	X(device_get_attribute, cuDeviceGetAttribute,                                              \
	  (int *value, CUdevice_attribute attribute, CUdevice device))                             \
	X(device_get_pci_bus_id, cuDeviceGetPCIBusId, (char *id, int bytes, CUdevice device))      \
	X(device_can_access_peer, cuDeviceCanAccessPeer,                                           \
	  (int *can, CUdevice device, CUdevice peer))                                              \
	X(device_get_p2p_attribute, cuDeviceGetP2PAttribute,                                       \
	  (int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to))               \
	/* Contexts. */                                                                            \
	X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))    \
	X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                    \
	X(ctx_push_current, cuCtxPushCurrent_v2, (CUcontext context))                              \
	X(ctx_pop_current, cuCtxPopCurrent_v2, (CUcontext * context))                              \
	X(ctx_get_current, cuCtxGetCurrent, (CUcontext * context))                                 \
	X(ctx_get_device, cuCtxGetDevice, (CUdevice * device))                                     \
	X(ctx_enable_peer_access, cuCtxEnablePeerAccess, (CUcontext peer, unsigned flags))         \
	/* Memory. */                                                                              \
	X(pointer_get_attribute, cuPointerGetAttribute,                                            \
	  (void *value, CUpointer_attribute attribute, CUdeviceptr pointer))                       \
	X(pointer_set_attribute, cuPointerSetAttribute,                                            \
	  (const void *value, CUpointer_attribute attribute, CUdeviceptr pointer))                 \
	X(mem_alloc, cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                         \
	X(mem_free, cuMemFree_v2, (CUdeviceptr pointer))                                           \
	X(mem_host_alloc, cuMemHostAlloc, (void **pointer, size_t bytes, unsigned flags))          \
	X(mem_free_host, cuMemFreeHost, (void *pointer))                                           \
	X(mem_host_register, cuMemHostRegister_v2, (void *pointer, size_t bytes, unsigned flags))  \
	X(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2,                               \
	  (CUdeviceptr * pointer, void *host, unsigned flags))                                     \
	X(mem_get_handle_for_address_range, cuMemGetHandleForAddressRange,                         \
	  (void *handle, CUdeviceptr pointer, size_t bytes, CUmemRangeHandleType type,             \
	   unsigned long long flags))                                                              \
	X(mem_get_address_range, cuMemGetAddressRange_v2,                                          \
	  (CUdeviceptr * base, size_t *bytes, CUdeviceptr pointer))                                \
	X(flush_gpu_direct_rdma_writes, cuFlushGPUDirectRDMAWrites,                                \
	  (CUflushGPUDirectRDMAWritesTarget target, CUflushGPUDirectRDMAWritesScope scope))        \
	X(memcpy_async, cuMemcpyAsync,                                                             \
	  (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))                       \
	X(memset_d8_async, cuMemsetD8Async,                                                        \
	  (CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream))                    \
	/* Memory that other processes map. */                                                     \
	X(ipc_get_mem_handle, cuIpcGetMemHandle, (CUipcMemHandle * handle, CUdeviceptr pointer))   \
	X(ipc_open_mem_handle, cuIpcOpenMemHandle_v2,                                              \
	  (CUdeviceptr * pointer, CUipcMemHandle handle, unsigned flags))                          \
	X(ipc_close_mem_handle, cuIpcCloseMemHandle, (CUdeviceptr pointer))                        \
	/* Memory in pieces, which a process maps where it likes, and others, too. */              \
	X(mem_get_allocation_granularity, cuMemGetAllocationGranularity,                           \
	  (size_t *bytes, const CUmemAllocationProp *prop,                                         \
	   CUmemAllocationGranularity_flags option))                                               \
	X(mem_create, cuMemCreate,                                                                 \
	  (CUmemGenericAllocationHandle * handle, size_t bytes, const CUmemAllocationProp *prop,   \
	   unsigned long long flags))                                                              \
	X(mem_release, cuMemRelease, (CUmemGenericAllocationHandle handle))                        \
	X(mem_address_reserve, cuMemAddressReserve,                                                \
	  (CUdeviceptr * pointer, size_t bytes, size_t alignment, CUdeviceptr near,                \
	   unsigned long long flags))                                                              \
	X(mem_address_free, cuMemAddressFree, (CUdeviceptr pointer, size_t bytes))                 \
	X(mem_map, cuMemMap,                                                                       \
	  (CUdeviceptr pointer, size_t bytes, size_t offset,                                       \
	   CUmemGenericAllocationHandle handle, unsigned long long flags))                         \
	X(mem_unmap, cuMemUnmap, (CUdeviceptr pointer, size_t bytes))                              \
	X(mem_set_access, cuMemSetAccess,                                                          \
	  (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count))        \
	X(mem_export_to_shareable_handle, cuMemExportToShareableHandle,                            \
	  (void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,         \
	   unsigned long long flags))                                                              \
	X(mem_import_from_shareable_handle, cuMemImportFromShareableHandle,                        \
	  (CUmemGenericAllocationHandle * handle, void *in, CUmemAllocationHandleType type))       \
	/* Streams and events. */                                                                  \
	X(stream_create_with_priority, cuStreamCreateWithPriority,                                 \
	  (CUstream * stream, unsigned flags, int priority))                                       \
	X(stream_destroy, cuStreamDestroy_v2, (CUstream stream))                                   \
	X(stream_get_ctx, cuStreamGetCtx, (CUstream stream, CUcontext *context))                   \
	X(stream_get_flags, cuStreamGetFlags, (CUstream stream, unsigned *flags))                  \
	X(stream_query, cuStreamQuery, (CUstream stream))                                          \
	X(stream_synchronize, cuStreamSynchronize, (CUstream stream))                              \
	X(stream_wait_event, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))  \
	X(stream_wait_value32, cuStreamWaitValue32_v2,                                             \
	  (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags))                  \
	X(stream_batch_mem_op, cuStreamBatchMemOp_v2,                                              \
	  (CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned flags))        \
	X(launch_host_func, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void *data))    \
	X(stream_get_capture_info, cuStreamGetCaptureInfo_v2,                                      \
	  (CUstream stream, CUstreamCaptureStatus *status, uint64_t *id, CUgraph *graph,           \
	   const CUgraphNode **dependencies, size_t *count))                                       \
	X(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode,                  \
	  (CUstreamCaptureMode * mode))                                                            \
	X(event_create, cuEventCreate, (CUevent * event, unsigned flags))                          \
	X(event_destroy, cuEventDestroy_v2, (CUevent event))                                       \
	X(event_record, cuEventRecord, (CUevent event, CUstream stream))                           \
	X(event_query, cuEventQuery, (CUevent event))                                              \
	X(event_synchronize, cuEventSynchronize, (CUevent event))                                  \
	/* Kernels. */                                                                             \
	X(library_load_data, cuLibraryLoadData,                                                    \
	  (CUlibrary * library, const void *code, CUjit_option *jit_options, void **jit_values,    \
	   unsigned jit_count, CUlibraryOption *options, void **values, unsigned count))           \
	X(library_unload, cuLibraryUnload, (CUlibrary library))                                    \
	X(library_get_kernel, cuLibraryGetKernel,                                                  \
	  (CUkernel * kernel, CUlibrary library, const char *name))                                \
	X(kernel_get_function, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))      \
	X(occupancy_max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor,                \
	  (int *blocks, CUfunction function, int threads, size_t shared_bytes))                    \
	X(launch_kernel, cuLaunchKernel,                                                           \
	  (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                 \
	   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,            \
	   CUstream stream, void **parameters, void **extra))

/* Those that a driver of CUDA 12.0 lacks: NULL there. */
#define CUDA_NEWER_FUNCTIONS(X)                                                                    \
	X(multicast_create, cuMulticastCreate,                                                     \
	  (CUmemGenericAllocationHandle * handle, const CUmulticastObjectProp *prop))              \
	X(multicast_add_device, cuMulticastAddDevice,                                              \
	  (CUmemGenericAllocationHandle handle, CUdevice device))                                  \
	X(multicast_bind_mem, cuMulticastBindMem,                                                  \
	  (CUmemGenericAllocationHandle handle, size_t at, CUmemGenericAllocationHandle memory,    \
	   size_t memory_at, size_t bytes, unsigned long long flags))                              \
	X(multicast_unbind, cuMulticastUnbind,                                                     \
	  (CUmemGenericAllocationHandle handle, CUdevice device, size_t at, size_t bytes))         \
	X(multicast_get_granularity, cuMulticastGetGranularity,                                    \
	  (size_t *bytes, const CUmulticastObjectProp *prop,                                       \
	   CUmulticastGranularity_flags option))

/* Others, which perf and the tests call: of programs that make graphs, and the tests' own. */
#define CUDA_PROGRAM_FUNCTIONS(X)                                                                  \
	X(stream_begin_capture, cuStreamBeginCapture_v2,                                           \
	  (CUstream stream, CUstreamCaptureMode mode))                                             \
	X(stream_end_capture, cuStreamEndCapture, (CUstream stream, CUgraph *graph))               \
	X(graph_instantiate, cuGraphInstantiateWithFlags,                                          \
	  (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                           \
	X(graph_launch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                        \
	X(graph_exec_destroy, cuGraphExecDestroy, (CUgraphExec exec))                              \
	X(graph_destroy, cuGraphDestroy, (CUgraph graph))                                          \
	X(ctx_set_current, cuCtxSetCurrent, (CUcontext context))                                   \
	X(mem_get_info, cuMemGetInfo_v2, (size_t *free_bytes, size_t *total))                      \
	X(stream_write_value32, cuStreamWriteValue32_v2,                                           \
	  (CUstream stream, CUdeviceptr address, uint32_t value, unsigned flags))                  \
	X(event_elapsed_time, cuEventElapsedTime, (float *ms, CUevent from, CUevent to))

#endif
