/* The calls that put work in a stream, but for kernels. */
#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/dma_buf.h"
#include "tests/cuda/driver/region.h"
#include "tests/cuda/driver/stream.h"

#define MOST_BATCHED 255 /* operations */

/* Whether the memory is neither a device's nor pinned. */
static bool is_pageable(CUdeviceptr address)
{
	return region_find(address) == NULL && !region_is_reserved(address);
}

/* A real driver (580.159, on an H200) has other threads' calls wait while one copies to or from
 * pageable memory in the legacy default stream, and so while that stream waits for something that
 * another thread is to do. */
static void wait_for_pageable(struct task *task, bool is_legacy)
{
	if (is_legacy) {
		pthread_mutex_unlock(&driver_lock);
		driver_hold();
		pthread_mutex_lock(&driver_lock);
	}
	task_wait(task);
	if (is_legacy)
		driver_let_go();
}

/* A copy to or from pageable memory has ended when the call returns, unless it is captured. */
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream handle)
{
	struct op op = {.kind = OP_COPY, .to = to, .from = from, .bytes = bytes};
	bool is_captured;
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (bytes == 0)
		return CUDA_SUCCESS;
	if (to == 0 || from == 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	CUcontext context = stream->context;
	CUresult error = capture_add(stream, &op, &is_captured);
	if (error == CUDA_SUCCESS)
		dma_buf_count_copy(to, from, bytes);
	if (error == CUDA_SUCCESS && !is_captured) {
		struct task *task = task_hold(stream_add(stream, &op, NULL));
		if (is_pageable(to) || is_pageable(from)) {
			wait_for_pageable(task, stream == context->legacy);
			error = context->error;
		}
		task_drop(task);
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream handle)
{
	struct op op = {.kind = OP_SET, .to = to, .value = value, .bytes = bytes};
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (bytes == 0)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&driver_lock);
	bool is_known = !is_pageable(to);
	pthread_mutex_unlock(&driver_lock);
	return is_known ? stream_enqueue(stream, &op) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult enqueue_word(CUstream handle, const struct op *op)
{
	CUstream stream;

	TRY(stream_of(handle, &stream));
	pthread_mutex_lock(&driver_lock);
	bool is_known = !is_pageable(op->to);
	pthread_mutex_unlock(&driver_lock);
	if (!is_known || op->to % (op->kind == OP_WAIT_64 ? 8 : 4) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_enqueue(stream, op);
}

CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr address, uint32_t value,
				unsigned flags)
{
	struct op op = {.kind = OP_WAIT, .to = address, .value = value, .flags = flags};

	if (flags > CU_STREAM_WAIT_VALUE_AND)
		return CUDA_ERROR_NOT_SUPPORTED;
	return enqueue_word(handle, &op);
}

static CUresult enqueue_batched(CUstream handle, const CUstreamBatchMemOpParams *p)
{
	struct op wait = {.kind = OP_WAIT_64,
			  .to = p->waitValue.address,
			  .value64 = p->waitValue.value64,
			  .flags = p->waitValue.flags};

	switch (p->operation) {
	case CU_STREAM_MEM_OP_WRITE_VALUE_32:
		return cuStreamWriteValue32_v2(handle, p->writeValue.address, p->writeValue.value,
					       p->writeValue.flags);
	case CU_STREAM_MEM_OP_WAIT_VALUE_32:
		return cuStreamWaitValue32_v2(handle, p->waitValue.address, p->waitValue.value,
					      p->waitValue.flags);
	default:
		return wait.flags > CU_STREAM_WAIT_VALUE_AND ? CUDA_ERROR_NOT_SUPPORTED
							     : enqueue_word(handle, &wait);
	}
}

static bool is_batched(CUstreamBatchMemOpType operation)
{
	return operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
	       operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
	       (operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 && settings.has_wide_waits);
}

/* Operations in their order. Real drivers refuse all of them or none, too. */
CUresult cuStreamBatchMemOp_v2(CUstream handle, unsigned count, CUstreamBatchMemOpParams *ops,
			       unsigned flags)
{
	CUresult error = CUDA_SUCCESS;

	TRY(driver_enter());
	if (ops == NULL || count == 0 || count > MOST_BATCHED || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		if (!is_batched(ops[i].operation))
			return CUDA_ERROR_NOT_SUPPORTED;
	for (unsigned i = 0; error == CUDA_SUCCESS && i < count; i++)
		error = enqueue_batched(handle, &ops[i]);
	return error;
}

CUresult cuStreamWriteValue32_v2(CUstream handle, CUdeviceptr address, uint32_t value,
				 unsigned flags)
{
	struct op op = {.kind = OP_WRITE, .to = address, .value = value};

	if (flags != CU_STREAM_WRITE_VALUE_DEFAULT)
		return CUDA_ERROR_NOT_SUPPORTED;
	return enqueue_word(handle, &op);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data)
{
	struct op op = {.kind = OP_HOST, .function = function, .data = data};
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (function == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	return stream_enqueue(stream, &op);
}
