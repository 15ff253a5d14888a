/* The kind's table, and how it knows its memory. */
#include "cuda/kind.h"

#include "core/log.h"
#include "core/status.h"
#include "cuda/device.h"

#include <pthread.h>
#include <stdint.h>

/* Memory that CUDA does not know, and a caller that has not initialised it, give an error. Pinned
 * host memory is the host's. */
static bool cuda_owns(const void *ptr)
{
	unsigned type = 0;
	CUresult error = cuda_driver()->pointer_get_attribute(
		&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)ptr);

	return error == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

static tutti_status cuda_stream_check(void *stream, const void *near)
{
	uint64_t capture;

	return cuda_capture_of_any(stream, near, &capture);
}

static const struct memory_kind cuda_kind = {
	.name = "cuda",
	.id = TUTTI_MEMORY_CUDA,
	.owns = cuda_owns,
	.open = cuda_queue_open,
	.post = cuda_queue_post,
	.progress = cuda_queue_progress,
	.cancel = cuda_queue_cancel,
	.close = cuda_queue_close,
	.dma_buf = cuda_dma_buf,
	.dma_buf_check = cuda_dma_buf_check,
	.extent = cuda_extent,
	.landed = cuda_landed,
	.device_alloc = cuda_device_alloc,
	.device_free = cuda_device_free,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.stream_check = cuda_stream_check,
	.stream_join = cuda_stream_join,
	.stream_blocks_others = cuda_stream_blocks_others,
	.gate_take = cuda_gate_take,
	.gate_wait = cuda_gate_wait,
	.gate_open = cuda_gate_open,
	.is_captured = cuda_is_captured,
	.gate_capture = cuda_gate_capture,
	.captured_free = cuda_captured_free,
};

static void kind_use(void)
{
	if (!cuda_driver())
		log_debug("no device buffers: %s", cuda_driver_missing());
	else if (memory_register(&cuda_kind) != TUTTI_OK)
		log_notice("no device buffers: %s", last_error());
}

void cuda_kind_use(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, kind_use);
}
