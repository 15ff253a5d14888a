/* The GPUs of this process. A device is opened when its memory is first used and stays open to the
 * process's end, with its primary context, which is the CUDA runtime's, too. */
#ifndef CUDA_DEVICE_H
#define CUDA_DEVICE_H

#include "core/words/export.h"

#include "cuda/driver.h"
#include "cuda/kernels/table.h"

#include <stdbool.h>

#define CUDA_DEVICES_MAX 64
#define CUDA_END_MS      10000u /* after a failure: for what runs on a device to end */

/* The kernels, by name: CUDA_KERNEL_reduce, ... */
#define CUDA_KERNEL_NUMBER(name, threads) CUDA_KERNEL_##name,
enum cuda_kernel { CUDA_KERNELS(CUDA_KERNEL_NUMBER) CUDA_KERNEL_COUNT };
#undef CUDA_KERNEL_NUMBER

/* Abilities of a device with memory that is made and mapped apart (cuMemCreate). */
struct cuda_pieces {
	CUmemAllocationHandleType types; /* by which other processes may map it; 0: no pieces */
	bool reaches_adapters;           /* it may be asked for that RDMA adapters reach it   */
	bool has_multicast;
	size_t unit; /* of memory for multicast; else 0 */
};

struct cuda_device {
	int ordinal;
	CUcontext context;
	CUlibrary library;
	int multiprocessors;
	bool has_mps; /* kernels of other processes run beside ours (Multi-Process Service) */
	/* Of adapters' writes into its memory: 0 not at all, ... OWNER or more. */
	int writes_ordering;
	CUfunction kernels[CUDA_KERNEL_COUNT];
	struct cuda_pieces pieces;
	int blocks_at_once[CUDA_KERNEL_COUNT]; /* that the device holds, of a kernel */
};

/* How many there are; 0 without a driver, or while the caller has not initialised CUDA. */
int cuda_device_count(void);
/* DEVICE, MEMORY; UNSUPPORTED: this build has no kernels for it. Any thread. */
tutti_status cuda_device_open(struct cuda_device **device, int ordinal);
/* The device whose memory ptr is. */
tutti_status cuda_device_of(struct cuda_device **device, const void *ptr);
/* Whether other processes can open it by an IPC handle: that of pools, and what is mapped in
 * pieces, has none. */
bool cuda_has_ipc_handle(CUdeviceptr pointer);
/* The legacy one, or the thread's: of whichever device is current. */
static inline bool cuda_stream_is_default(CUstream stream)
{
	return !stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}
/* The device that stream belongs to. The default streams: the one whose context is current in this
 * thread, else that of ptr. INVALID: the stream's context is no primary one. */
tutti_status cuda_device_of_stream(struct cuda_device **device, CUstream stream, const void *ptr)
	TUTTI_PRIVATE(cuda_device_of_stream);
/* The id of the capture that stream takes part in, or 0. INVALID: that one is invalid. Of a default
 * stream between the two below. */
tutti_status cuda_capture_of(CUstream stream, uint64_t *id);
/* The same from outside of the stream's context. near: as for cuda_device_of_stream. */
tutti_status cuda_capture_of_any(CUstream stream, const void *near, uint64_t *id);

/* Between the two the device's context is this thread's, and calls that stream captures of other
 * threads forbid are allowed: none of ours goes to their streams. */
struct cuda_visit {
	CUstreamCaptureMode mode;
};
tutti_status cuda_enter(const struct cuda_device *device, struct cuda_visit *visit)
	TUTTI_PRIVATE(cuda_enter);
void cuda_leave(struct cuda_visit *visit) TUTTI_PRIVATE(cuda_leave);

/* Starts a kernel of so many blocks; args is its one parameter. Between enter and leave. */
tutti_status cuda_launch(const struct cuda_device *device, enum cuda_kernel kernel,
                         unsigned blocks, CUstream stream, const void *args)
	TUTTI_PRIVATE(cuda_launch);

#endif
