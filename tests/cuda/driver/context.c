/* Primary contexts, and the current one of each thread. */
#include "tests/cuda/driver/region.h"
#include "tests/cuda/driver/stream.h"

#include <stdlib.h>

#define DEPTH 16

static _Thread_local struct {
	CUcontext stack[DEPTH];
	int n;
} current;

CUresult context_current(CUcontext *context)
{
	TRY(driver_enter());
	if (current.n == 0 || current.stack[current.n - 1] == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	*context = current.stack[current.n - 1];
	return CUDA_SUCCESS;
}

CUresult context_working(CUcontext *context)
{
	CUresult error;

	TRY(context_current(context));
	pthread_mutex_lock(&driver_lock);
	error = (*context)->retained ? (*context)->error : CUDA_ERROR_CONTEXT_IS_DESTROYED;
	pthread_mutex_unlock(&driver_lock);
	return error;
}

void context_fail(CUcontext context, CUresult error)
{
	if (context->error == CUDA_SUCCESS)
		context->error = error;
	region_forget(); /* so that kernels that spin notice */
	pthread_cond_broadcast(&driver_failed);
}

void context_wait(CUcontext context)
{
	size_t n = 0;

	for (CUstream s = context->streams; s; s = s->next)
		n++;
	struct task **last = must_alloc(n * sizeof *last);
	n = 0;
	for (CUstream s = context->streams; s; s = s->next)
		if (s->tail)
			last[n++] = task_hold(s->tail);
	for (; n > 0; n--) {
		task_wait(last[n - 1]);
		task_drop(last[n - 1]);
	}
	free(last);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	TRY(driver_enter());
	if (device < 0 || device >= settings.gpus)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&driver_lock);
	contexts[device].retained++;
	if (contexts[device].legacy == NULL)
		contexts[device].legacy = stream_create(&contexts[device], 0);
	*context = &contexts[device];
	pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

/* The last release ends the context: its memory is freed, and the error goes. */
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult error = CUDA_SUCCESS;

	TRY(driver_enter());
	if (device < 0 || device >= settings.gpus)
		return CUDA_ERROR_INVALID_DEVICE;
	CUcontext context = &contexts[device];
	pthread_mutex_lock(&driver_lock);
	if (context->retained == 0) {
		error = CUDA_ERROR_INVALID_CONTEXT;
	} else if (--context->retained == 0) {
		context_wait(context);
		memory_free_all(context);
		context->error = CUDA_SUCCESS;
		context->peers = 0;
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	TRY(driver_enter());
	if (context == NULL)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (current.n == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	current.stack[current.n++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	CUcontext popped;

	TRY(context_current(&popped));
	current.n--;
	if (context)
		*context = popped;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	CUcontext context;

	TRY(context_current(&context));
	*device = context->gpu;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	TRY(driver_enter());
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*context = current.n ? current.stack[current.n - 1] : NULL;
	return CUDA_SUCCESS;
}

/* Replaces the top of the stack; NULL takes it away. */
CUresult cuCtxSetCurrent(CUcontext context)
{
	TRY(driver_enter());
	if (current.n > 0)
		current.n--;
	if (context)
		current.stack[current.n++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags)
{
	CUresult error = CUDA_SUCCESS;
	CUcontext context;

	TRY(context_working(&context));
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (peer == NULL || peer == context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!gpu_can_reach(context->gpu, peer->gpu))
		return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	TRY(fault_here(FAULT_PEER));
	pthread_mutex_lock(&driver_lock);
	if (context->peers >> peer->gpu & 1U)
		error = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	context->peers |= 1U << peer->gpu;
	pthread_mutex_unlock(&driver_lock);
	return error;
}
