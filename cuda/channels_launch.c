/* Calls of channels as kernels in streams: one after the other, whatever the streams. */
#include "cuda/channels_internal.h"
#include "cuda/regions.h"
#include "cuda/turns.h"

#include "core/status.h"
#include "core/memory/memory.h"

#include <assert.h>
#include <string.h>

tutti_status cuda_channels_check_buffer(const struct cuda_channels *c, const void *ptr)
{
	const struct cuda_driver *cuda = cuda_driver();
	int ordinal = -1;

	if (!ptr)
		return TUTTI_OK;
	CUDA_TRY(pointer_get_attribute, &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		 (CUdeviceptr)(uintptr_t)ptr);
	if (ordinal == c->device->ordinal)
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID,
		    "a buffer is memory of CUDA device %d, and rank %d of this communicator has "
		    "device %d",
		    ordinal, c->named, c->device->ordinal);
}

tutti_status cuda_channels_place(const struct cuda_channels *c, const void *ptr, uint64_t *place)
{
	CUdeviceptr pointer = (CUdeviceptr)(uintptr_t)ptr;

	*place = CHANNEL_NOWHERE;
	if (!ptr || cuda_region_find(c, ptr, place))
		return TUTTI_OK;
	/* Peers reach cuMemAlloc's memory; that of pools only where its owner has said so. */
	if (c->is_one_process && (cuda_has_ipc_handle(pointer) || cuda_region_holds(ptr)))
		*place = channel_place(0, pointer);
	return TUTTI_OK;
}

tutti_status cuda_channels_check_stream(const struct cuda_channels *c, void *stream)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUcontext context;
	uint64_t capture;

	if (cuda_stream_is_default(stream))
		return TUTTI_OK; /* the device's own */
	TRY(cuda_capture_of(stream, &capture));
	CUDA_TRY(stream_get_ctx, stream, &context);
	if (context == c->device->context)
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID,
		    "call.stream is not of the primary context of CUDA device %d, which rank %d "
		    "of this communicator has",
		    c->device->ordinal, c->named);
}

/* Behind the rank's latest call. In a capture only calls of the same one are before it: those of
 * other graphs, and those outside, are ordered by the program that launches the graph. */
static tutti_status channels_launch_follow_latest(struct cuda_channels *c, CUstream stream,
						  uint64_t capture)
{
	const struct cuda_driver *cuda = cuda_driver();

	if (capture == 0 && c->has_latest)
		CUDA_TRY(stream_wait_event, stream, c->latest, 0);
	if (capture != 0 && capture == c->capture)
		CUDA_TRY(stream_wait_event, stream, c->captured, 0);
	return TUTTI_OK;
}

static tutti_status channels_launch_note_latest(struct cuda_channels *c, CUstream stream,
						uint64_t capture)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(event_record, capture ? c->captured : c->latest, stream);
	c->has_latest |= capture == 0;
	c->capture = capture ? capture : c->capture;
	return TUTTI_OK;
}

/* The stream of our own, behind what the caller's has now. */
static tutti_status channels_launch_fork_from(struct cuda_channels *c, CUstream stream)
{
	const struct cuda_driver *cuda = cuda_driver();

	CUDA_TRY(event_record, c->fork, stream);
	CUDA_TRY(stream_wait_event, c->stream, c->fork, 0);
	return TUTTI_OK;
}

static void channels_launch_fill_in(const struct cuda_channels *c, struct channel_args *a)
{
	for (int r = 0; r < c->size; r++)
		a->segments[r] = (void *)(uintptr_t)c->segments[r];
	a->host = (struct channel_host *)(uintptr_t)c->segment->host_address;
	a->regions = (const uint64_t *)(uintptr_t)c->segment->regions;
	a->staging_bytes = c->staging;
	a->size = (uint32_t)c->size;
	a->rank = (uint32_t)c->rank;
	a->is_one_gpu = c->is_one_gpu;
}

/* The arguments of each kernel begin with those of its channel, or with lines that do. */
_Static_assert(offsetof(struct packets_args, channel) == 0, "packets_args begins so");
_Static_assert(offsetof(struct lines_args, channel) == 0, "lines_args begins so");
_Static_assert(offsetof(struct messages_args, channel) == 0, "messages_args begins so");
_Static_assert(offsetof(struct turn_args, lines) == 0, "turn_args begins so");

static tutti_status channels_launch_put(struct cuda_channels *c,
					const struct cuda_channels_launch *l, CUstream stream)
{
	return l->kernel == CUDA_KERNEL_turn
		       ? cuda_turns_launch(c, l, stream)
		       : cuda_launch(c->device, l->kernel, l->blocks, stream, l->args);
}

static tutti_status channels_launch_start(struct cuda_channels *c,
					  const struct cuda_channels_launch *l, CUstream stream,
					  uint64_t capture)
{
	assert(l->blocks <= c->count); /* more might never be resident: cuda/residency.h */
	channels_launch_fill_in(c, l->args);
	TRY(channels_launch_follow_latest(c, stream, capture));
	TRY(channels_launch_put(c, l, stream));
	return channels_launch_note_latest(c, stream, capture);
}

/* A captured call has no end that a later one could wait for, so it stays in the caller's stream: a
 * graph whose streams do not come together again is invalid. */
static tutti_status channels_launch_kernel(struct cuda_channels *c,
					   const struct cuda_channels_launch *l, void **used,
					   bool *is_captured)
{
	uint64_t capture;

	TRY(cuda_capture_of(l->stream, &capture));
	*is_captured = capture != 0;
	*used = l->in_stream || *is_captured ? l->stream : c->stream;
	if (*used != l->stream)
		TRY(channels_launch_fork_from(c, l->stream));
	return channels_launch_start(c, l, *used, capture);
}

tutti_status cuda_channels_launch(struct cuda_channels *c, const struct cuda_channels_launch *l,
				  void **used, bool *is_captured)
{
	struct cuda_visit visit;

	TRY(cuda_enter(c->device, &visit));
	tutti_status status = channels_launch_kernel(c, l, used, is_captured);
	cuda_leave(&visit);
	return status;
}
