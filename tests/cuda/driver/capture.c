/* Which streams are captured into which graph, and what a capture forbids. */
#include "tests/cuda/driver/capture.h"

#include "tests/cuda/driver/graph.h"

#include <stdlib.h>
#include <string.h>

struct capture {
	struct capture *next;
	uint64_t id;
	CUstreamCaptureMode mode;
	bool is_invalid;
	pthread_t thread;
	CUstream origin;
	CUgraph graph;
};

static struct capture *captures;
static uint64_t ids;
static _Thread_local CUstreamCaptureMode thread_mode;

static void set_last(CUstream stream, const CUgraphNode *nodes, size_t n)
{
	CUgraphNode *last = must_alloc(n * sizeof *last);

	if (n)
		memcpy(last, nodes, n * sizeof *last);
	free(stream->last);
	stream->last = last;
	stream->n_last = n;
}

/* The legacy default stream would wait for streams of its context that are being captured. */
static CUresult check_implicit(CUstream stream, bool invalidates)
{
	CUresult error = CUDA_SUCCESS;

	if (stream != stream->context->legacy)
		return CUDA_SUCCESS;
	for (CUstream s = stream->context->streams; s; s = s->next)
		if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
			s->capture->is_invalid |= invalidates;
			error = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return error;
}

bool stream_capture_is_invalid(CUstream stream)
{
	pthread_mutex_lock(&driver_lock);
	bool is_invalid = stream->capture && stream->capture->is_invalid;
	pthread_mutex_unlock(&driver_lock);
	return is_invalid;
}

static CUresult check(CUstream stream)
{
	if (stream->capture && stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	return check_implicit(stream, true);
}

CUresult capture_add(CUstream stream, const struct op *op, bool *is_captured)
{
	TRY(check(stream));
	*is_captured = stream->capture != NULL;
	if (*is_captured) {
		CUgraphNode node = graph_add(stream->capture->graph, op, stream->context,
					     stream->last, stream->n_last);
		set_last(stream, &node, 1);
	}
	return CUDA_SUCCESS;
}

CUresult capture_record(CUstream stream, CUevent event, bool *is_captured)
{
	TRY(check(stream));
	*is_captured = stream->capture != NULL;
	free(event->nodes);
	event->nodes = NULL;
	event->n_nodes = 0;
	event->capture_id = 0;
	if (!*is_captured)
		return CUDA_SUCCESS;
	event->capture_id = stream->capture->id;
	event->n_nodes = stream->n_last;
	event->nodes = must_alloc(event->n_nodes * sizeof *event->nodes);
	for (size_t i = 0; i < event->n_nodes; i++)
		event->nodes[i] = stream->last[i];
	return CUDA_SUCCESS;
}

static struct capture *capture_of(const struct CUevent_st *event)
{
	struct capture *capture = captures;

	while (capture && capture->id != event->capture_id)
		capture = capture->next;
	return capture;
}

/* The stream's next node comes after the event's nodes, too. */
static void join(CUstream stream, const struct CUevent_st *event)
{
	size_t n = stream->n_last;
	CUgraphNode *all = must_alloc((n + event->n_nodes) * sizeof *all);

	for (size_t i = 0; i < n; i++)
		all[i] = stream->last[i];
	for (size_t i = 0; i < event->n_nodes; i++) {
		bool is_new = true;
		for (size_t k = 0; k < n; k++)
			is_new = is_new && all[k] != event->nodes[i];
		if (is_new)
			all[n++] = event->nodes[i];
	}
	set_last(stream, all, n);
	free(all);
}

CUresult capture_wait(CUstream stream, CUevent event, bool *is_captured)
{
	struct capture *of_event;

	TRY(check(stream));
	*is_captured = stream->capture != NULL;
	if (event->capture_id == 0) {
		if (!*is_captured || event->task == NULL)
			return CUDA_SUCCESS;
		stream->capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	of_event = capture_of(event);
	if (of_event == NULL)
		return CUDA_ERROR_CAPTURED_EVENT;
	if (stream == stream->context->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (of_event->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (*is_captured && of_event != stream->capture) {
		stream->capture->is_invalid = of_event->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	*is_captured = true;
	stream->capture = of_event;
	join(stream, event);
	return CUDA_SUCCESS;
}

/* With the lock. */
static CUresult forbids(void)
{
	CUresult error = CUDA_SUCCESS;

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	for (struct capture *c = captures; c; c = c->next) {
		bool is_own = pthread_equal(c->thread, pthread_self());
		if ((is_own && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
		    (!is_own && c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		     thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
			c->is_invalid = true;
			error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	}
	return error;
}

CUresult capture_forbids(void)
{
	pthread_mutex_lock(&driver_lock);
	CUresult error = forbids();
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult capture_forbids_sync(CUstream stream)
{
	pthread_mutex_lock(&driver_lock);
	CUresult error = check(stream);
	if (error == CUDA_SUCCESS && stream->capture) {
		stream->capture->is_invalid = true;
		error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (error == CUDA_SUCCESS)
		error = forbids();
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult capture_forbids_event(CUevent event)
{
	CUresult error;

	pthread_mutex_lock(&driver_lock);
	if (event->capture_id) {
		struct capture *capture = capture_of(event);
		if (capture)
			capture->is_invalid = true;
		error = CUDA_ERROR_CAPTURED_EVENT;
	} else {
		error = forbids();
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	TRY(driver_enter());
	if (mode == NULL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = before;
	return CUDA_SUCCESS;
}

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	CUresult error = CUDA_SUCCESS;
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	if (stream == stream->context->legacy) {
		error = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else if (stream->capture) {
		error = CUDA_ERROR_ILLEGAL_STATE;
	} else {
		struct capture *capture = must_alloc(sizeof *capture);
		*capture = (struct capture){.next = captures,
					    .id = ++ids,
					    .mode = mode,
					    .thread = pthread_self(),
					    .origin = stream,
					    .graph = graph_create()};
		captures = capture;
		stream->capture = capture;
		set_last(stream, NULL, 0);
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}

/* Whether all that was captured comes before the end of the stream in which the capture began. */
static bool is_joined(const struct capture *capture)
{
	for (size_t i = 0; i < capture->graph->n; i++) {
		CUgraphNode node = capture->graph->nodes[i];
		bool is_known = !node->is_last;
		for (size_t k = 0; k < capture->origin->n_last; k++)
			is_known = is_known || capture->origin->last[k] == node;
		if (!is_known)
			return false;
	}
	return true;
}

static void leave(CUstream stream)
{
	stream->capture = NULL;
	set_last(stream, NULL, 0);
}

static CUresult end(struct capture *capture, CUgraph *graph)
{
	CUresult error = CUDA_SUCCESS;
	struct capture **at = &captures;

	if (capture->is_invalid)
		error = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!is_joined(capture))
		error = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	for (int i = 0; i < settings.gpus; i++)
		for (CUstream s = contexts[i].streams; s; s = s->next)
			if (s->capture == capture)
				leave(s);
	while (*at != capture)
		at = &(*at)->next;
	*at = capture->next;
	*graph = error == CUDA_SUCCESS ? capture->graph : NULL;
	if (error != CUDA_SUCCESS)
		graph_free(capture->graph);
	free(capture);
	return error;
}

void capture_leave(CUstream stream)
{
	struct capture *capture = stream->capture;
	CUgraph graph;

	if (capture == NULL)
		return;
	capture->is_invalid = true;
	if (capture->origin == stream)
		end(capture, &graph);
	else
		leave(stream);
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	CUresult error;
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (graph == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	struct capture *capture = stream->capture;
	if (capture == NULL)
		error = CUDA_ERROR_ILLEGAL_STATE;
	else if (capture->origin != stream)
		error = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
		 !pthread_equal(capture->thread, pthread_self()))
		error = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	else
		error = end(capture, graph);
	pthread_mutex_unlock(&driver_lock);
	return error;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *status, uint64_t *id,
				   CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
	CUstream stream;

	TRY(stream_of(handle, &stream));
	if (status == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&driver_lock);
	const struct capture *capture = stream->capture;
	CUresult error = check_implicit(stream, false);
	*status = capture == NULL       ? CU_STREAM_CAPTURE_STATUS_NONE
		  : capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					: CU_STREAM_CAPTURE_STATUS_ACTIVE;
	if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
		if (id)
			*id = capture->id;
		if (graph)
			*graph = capture->graph;
		if (dependencies)
			*dependencies = stream->last;
		if (count)
			*count = stream->n_last;
	}
	pthread_mutex_unlock(&driver_lock);
	return error;
}
