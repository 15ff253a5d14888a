/* Events as programs see them. */
#include "tests/cuda/driver/event.h"

#include "tests/cuda/driver/capture.h"

#include <stdatomic.h>
#include <stdlib.h>

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
	CUcontext context;

	TRY(context_working(&context));
	if (event == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*event = must_alloc(sizeof **event);
	(*event)->context = context;
	(*event)->flags = flags;
	return CUDA_SUCCESS;
}

/* Threads that wait for its task hold the task. */
CUresult cuEventDestroy_v2(CUevent event)
{
	TRY(driver_enter());
	if (event == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver_lock);
	task_drop(event->task);
	pthread_mutex_unlock(&driver_lock);
	free(event->nodes);
	free(event);
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream handle)
{
	struct op nothing = {.kind = OP_NOTHING};
	bool is_captured;
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (event == NULL || event->context != stream->context)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver_lock);
	CUresult error = capture_record(stream, event, &is_captured);
	if (error == CUDA_SUCCESS) {
		task_drop(event->task);
		event->task = NULL;
		if (!is_captured)
			event->task = task_hold(stream_add(stream, &nothing, NULL));
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
	struct op nothing = {.kind = OP_NOTHING};
	bool is_captured;
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (event == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	CUresult error = capture_wait(stream, event, &is_captured);
	if (error == CUDA_SUCCESS && !is_captured && event->task)
		stream_add(stream, &nothing, event->task);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

/* Whether the CPU may ask for the event's state. */
static CUresult check(CUevent event)
{
	TRY(driver_enter());
	if (event == NULL)
		return CUDA_ERROR_INVALID_HANDLE;
	TRY(capture_forbids_event(event));
	return CUDA_SUCCESS;
}

static atomic_uint queries;

/* For tests: how often events were asked. */
__attribute__((visibility("default"))) unsigned fake_cuda_queries(void);
unsigned fake_cuda_queries(void)
{
	return atomic_load(&queries);
}

CUresult cuEventQuery(CUevent event)
{
	CUresult error;

	atomic_fetch_add(&queries, 1);
	TRY(check(event));
	pthread_mutex_lock(&driver_lock);
	error = event->context->error;
	if (error == CUDA_SUCCESS && event->task && !event->task->is_done)
		error = CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuEventSynchronize(CUevent event)
{
	CUresult error;

	TRY(check(event));
	pthread_mutex_lock(&driver_lock);
	CUcontext context = event->context;
	if (event->task) {
		struct task *task = task_hold(event->task); /* it may be recorded anew meanwhile */
		task_wait(task);
		task_drop(task);
	}
	error = context->error;
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to)
{
	CUresult error = CUDA_SUCCESS;

	TRY(check(from));
	TRY(check(to));
	if ((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&driver_lock);
	const struct task *a = from->task, *b = to->task;
	if (a == NULL || b == NULL) {
		error = CUDA_ERROR_INVALID_HANDLE;
	} else if (!a->is_done || !b->is_done) {
		error = CUDA_ERROR_NOT_READY;
	} else {
		double seconds = (double)(b->ended.tv_sec - a->ended.tv_sec);
		double ns = (double)(b->ended.tv_nsec - a->ended.tv_nsec);
		*ms = (float)(seconds * 1e3 + ns * 1e-6);
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}
