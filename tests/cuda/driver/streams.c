/* Streams as programs see them. */
#include "capture.h"
#include "tests/cuda/driver/capture.h"
#include "tests/cuda/driver/stream.h"

#include <stdlib.h>

/* A thread's own default streams, one of each context that it used. They go when it ends. */
static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;

static void destroy_own(void *streams)
{
	CUstream *own = streams;

	pthread_mutex_lock(&driver_lock);
	for (int i = 0; i < MAX_GPUS; i++)
		if (own[i])
			stream_destroy(own[i]);
	pthread_mutex_unlock(&driver_lock);
	free(own);
}

static void make_key(void)
{
	if (pthread_key_create(&own_key, destroy_own) != 0)
		abort();
}

static CUstream own_stream(CUcontext context)
{
	pthread_once(&own_once, make_key);
	CUstream *own = pthread_getspecific(own_key);
	if (own == NULL) {
		own = must_alloc(MAX_GPUS * sizeof *own);
		pthread_setspecific(own_key, own);
	}
	if (own[context->gpu] == NULL)
		own[context->gpu] = stream_create(context, 0);
	return own[context->gpu];
}

CUresult stream_of(CUstream handle, CUstream *stream)
{
	CUresult error;
	CUcontext context;

	TRY(context_working(&context));
	pthread_mutex_lock(&driver_lock);
	if (handle == NULL || handle == CU_STREAM_LEGACY)
		*stream = context->legacy;
	else if (handle == CU_STREAM_PER_THREAD)
		*stream = own_stream(context);
	else
		*stream = handle;
	error = (*stream)->is_destroyed ? CUDA_ERROR_INVALID_HANDLE : (*stream)->context->error;
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult stream_enqueue(CUstream stream, const struct op *op)
{
	bool is_captured;

	pthread_mutex_lock(&driver_lock);
	CUresult error = capture_add(stream, op, &is_captured);
	if (error == CUDA_SUCCESS && !is_captured)
		stream_add(stream, op, NULL);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
	CUcontext context;

	(void)priority;
	TRY(context_working(&context));
	if (stream == NULL || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	*stream = stream_create(context, flags);
	pthread_mutex_unlock(&driver_lock);
	return CUDA_SUCCESS;
}

/* Returns at once; the stream ends when its work has ended. */
CUresult cuStreamDestroy_v2(CUstream stream)
{
	CUresult error = CUDA_SUCCESS;

	TRY(driver_enter());
	if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver_lock);
	error = stream->context->error;
	capture_leave(stream);
	stream_destroy(stream);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
	CUstream stream;

	TRY(driver_enter());
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return context_current(context);
	stream = handle;
	if (stream_capture_is_invalid(stream)) /* seen on an H200 */
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	*context = stream->context;
	return CUDA_SUCCESS;
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (flags == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = stream->flags;
	return CUDA_SUCCESS;
}

CUresult cuStreamQuery(CUstream handle)
{
	CUstream stream;
	CUresult error;

	TRY(stream_of(handle, &stream));
	TRY(capture_forbids_sync(stream));
	pthread_mutex_lock(&driver_lock);
	error = stream->tail ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuStreamSynchronize(CUstream handle)
{
	CUstream stream;
	CUresult error;

	TRY(stream_of(handle, &stream));
	TRY(capture_forbids_sync(stream));
	pthread_mutex_lock(&driver_lock);
	CUcontext context = stream->context;
	if (stream->tail) {
		struct task *last = task_hold(stream->tail);
		task_wait(last);
		task_drop(last);
	}
	error = context->error;
	pthread_mutex_unlock(&driver_lock);
	return error;
}
