/* Operations as copies and kernels, each with an event behind it that says when it has ended. */
#include "cuda/line.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory/dtype.h"
#include "core/memory/memory.h"
#include "core/memory/ops.h"
#include "core/status.h"
#include "cuda/device.h"
#include "cuda/kernels/args.h"
#include "cuda/streams.h"

#include <assert.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The memory kind's operations that are kernels of ours, which reduce and scale; cuda/kernels has
 * what they do. Each starts one on stream, between cuda_enter and cuda_leave. */

/* A block has this to do at the least: 16 bytes a thread, several times. */
#define BLOCK_BYTES (64u << 10)

static unsigned cuda_line_blocks_for(const struct cuda_device *device, enum cuda_kernel kernel,
				     size_t bytes)
{
	size_t blocks = bytes / BLOCK_BYTES + 1, most = (size_t)device->blocks_at_once[kernel];

	return (unsigned)(blocks < most ? blocks : most);
}

static tutti_status cuda_line_reduce_launch(const struct cuda_device *device, CUstream stream,
					    enum cuda_kernel kernel, const struct memory_io *io,
					    const void *args)
{
	size_t bytes = io->count * dtype_bytes(io->dtype);

	if (!io->count)
		return TUTTI_OK;
	return cuda_launch(device, kernel, cuda_line_blocks_for(device, kernel, bytes), stream,
			   args);
}

static tutti_status cuda_reduce_wide(const struct cuda_device *device, CUstream stream,
				     const struct memory_io *io, int divisor)
{
	struct reduce_wide_args args = {.dst = {io->dst},
					.count = io->count,
					.n_dst = 1,
					.n_src = io->n_src,
					.dtype = (int32_t)io->dtype,
					.op = (int32_t)op_kernel(io->reduce_op),
					.divisor = divisor};

	assert(io->n_src <= REDUCE_WIDE_KERNEL_SOURCES);
	memcpy(args.src, io->src, (size_t)io->n_src * sizeof args.src[0]);
	return cuda_line_reduce_launch(device, stream, CUDA_KERNEL_reduce_wide, io, &args);
}

static tutti_status cuda_reduce_sources(const struct cuda_device *device, CUstream stream,
					const struct memory_io *io, const void *const *src,
					int n_src)
{
	struct reduce_args args = {.dst = {io->dst},
				   .count = io->count,
				   .n_dst = 1,
				   .n_src = n_src,
				   .dtype = (int32_t)io->dtype,
				   .op = (int32_t)op_kernel(io->reduce_op),
				   .divisor = io->divisor};

	memcpy(args.src, src, (size_t)n_src * sizeof args.src[0]);
	return cuda_line_reduce_launch(device, stream, CUDA_KERNEL_reduce, io, &args);
}

static tutti_status cuda_reduce(const struct cuda_device *device, CUstream stream,
				const struct memory_io *io)
{
	if (io->n_src > REDUCE_KERNEL_SOURCES)
		return cuda_reduce_wide(device, stream, io, io->divisor);
	return cuda_reduce_sources(device, stream, io, io->src, io->n_src);
}

/* As reduce_finish: an average of one. */
static tutti_status cuda_finish(const struct cuda_device *device, CUstream stream,
				const struct memory_io *io)
{
	const void *src = io->dst;

	if (io->reduce_op != TUTTI_AVG || io->divisor == 0)
		return TUTTI_OK;
	return cuda_reduce_sources(device, stream, io, &src, 1);
}

static tutti_status cuda_scale(const struct cuda_device *device, CUstream stream,
			       const struct memory_io *io)
{
	struct scale_args args = {
		.dst = io->dst, .src = io->src[0], .count = io->count, .dtype = (int32_t)io->dtype};

	memcpy(&args.scalar, op_scalar(io->reduce_op), dtype_bytes(io->dtype));
	return cuda_line_reduce_launch(device, stream, CUDA_KERNEL_scale, io, &args);
}

#define LAZY_LOOK_NS 20000 /* sooner than one that waits for room goes to sleep */

static struct memory_io *cuda_line_memory_io_of(struct tutti_io *io)
{
	return (struct memory_io *)io;
}

/* Other operations do not say it. */
static bool cuda_line_is_lazy(const struct memory_io *io)
{
	return io->op == MEMORY_AFTER && io->is_lazy;
}

tutti_status cuda_line_create(struct cuda_line **out, struct cuda_device *device)
{
	struct cuda_line *line = calloc(1, sizeof *line);
	struct cuda_visit visit;

	if (!line)
		return fail(TUTTI_ERR_MEMORY, "no memory for a stream of CUDA device %d",
			    device->ordinal);
	line->device = device;
	line->tail = &line->head;
	line->after_tail = &line->after;
	tutti_status status = cuda_enter(device, &visit);
	if (status == TUTTI_OK) {
		status = cuda_stream_take(device, &line->stream);
		cuda_leave(&visit);
	}
	if (status != TUTTI_OK) {
		free(line);
		return status;
	}
	*out = line;
	return TUTTI_OK;
}

static tutti_status line_take_event(struct cuda_line *line, CUevent *event)
{
	const struct cuda_driver *cuda = cuda_driver();

	if (line->event_count) {
		*event = line->events[--line->event_count];
		return TUTTI_OK;
	}
	CUDA_TRY(event_create, event, CU_EVENT_DISABLE_TIMING);
	return TUTTI_OK;
}

static void cuda_line_give_event(struct cuda_line *line, CUevent event)
{
	const struct cuda_driver *cuda = cuda_driver();

	if (line->event_count == line->event_room) {
		size_t room = line->event_room ? 2 * line->event_room : 16;
		CUevent *events = realloc(line->events, room * sizeof *events);
		if (!events) {
			cuda->event_destroy(event);
			return;
		}
		line->events = events;
		line->event_room = room;
	}
	line->events[line->event_count++] = event;
}

static tutti_status line_put(struct cuda_line *line, struct memory_io *io)
{
	const struct cuda_driver *cuda = cuda_driver();

	switch (io->op) {
	case MEMORY_COPY:
		if (io->count)
			CUDA_TRY(memcpy_async, (CUdeviceptr)(uintptr_t)io->dst,
				 (CUdeviceptr)(uintptr_t)io->src[0], io->count, line->stream);
		return TUTTI_OK;
	case MEMORY_REDUCE:
		return cuda_reduce(line->device, line->stream, io);
	case MEMORY_FINISH:
		return cuda_finish(line->device, line->stream, io);
	case MEMORY_SCALE:
		return cuda_scale(line->device, line->stream, io);
	case MEMORY_AFTER:
		return TUTTI_OK;
	case MEMORY_ALLOC:
	case MEMORY_FREE:
		break;
	}
	return fail(TUTTI_ERR_INTERNAL, "a stream has no operation %d", (int)io->op);
}

static tutti_status cuda_line_put_with_event(struct cuda_line *line, struct memory_io *io)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUstream stream = io->op == MEMORY_AFTER ? io->dst : line->stream;
	CUevent event;

	TRY(line_put(line, io));
	TRY(line_take_event(line, &event));
	CUresult error = cuda->event_record(event, stream);
	if (error != CUDA_SUCCESS) {
		cuda_line_give_event(line, event);
		return cuda_status(error, "event_record");
	}
	io->ticket = event;
	return TUTTI_OK;
}

tutti_status cuda_line_post(struct cuda_line *line, struct memory_io *io)
{
	struct cuda_visit visit;

	TRY(cuda_enter(line->device, &visit));
	tutti_status status = cuda_line_put_with_event(line, io);
	cuda_leave(&visit);
	if (status != TUTTI_OK)
		return status;
	line->prompt += !cuda_line_is_lazy(io);
	struct tutti_io ***tail = io->op == MEMORY_AFTER ? &line->after_tail : &line->tail;
	io->io.next = NULL;
	**tail = &io->io;
	*tail = &io->io.next;
	return TUTTI_OK;
}

/* Whether it has ended, with a status: else IN_PROGRESS. */
static tutti_status line_ended(struct cuda_line *line, struct tutti_io *io, char *error,
			       size_t error_bytes)
{
	const struct cuda_driver *cuda = cuda_driver();
	CUevent event = cuda_line_memory_io_of(io)->ticket;
	CUresult result = cuda->event_query(event);

	if (result == CUDA_ERROR_NOT_READY)
		return TUTTI_IN_PROGRESS;
	line->prompt -= !cuda_line_is_lazy(cuda_line_memory_io_of(io));
	cuda_line_give_event(line, event);
	tutti_status status = cuda_status(result, "event_query");
	if (status != TUTTI_OK)
		snprintf(error, error_bytes, "work on CUDA device %d has failed: %s",
			 line->device->ordinal, last_error());
	return status;
}

static int cuda_line_finish_in_order(struct cuda_line *line, struct tutti_done *done, char *error,
				     size_t error_bytes)
{
	int count = 0;

	for (struct tutti_io *io; (io = line->head); count++) {
		tutti_status status = line_ended(line, io, error, error_bytes);
		if (status == TUTTI_IN_PROGRESS)
			break;
		if (!(line->head = io->next))
			line->tail = &line->head;
		tutti_done_push(done, io, status);
	}
	return count;
}

/* Streams whose next operation has not ended. Of more than there is room for all are asked. */
struct busy {
	const void *streams[8];
	size_t count;
};

static bool line_is_busy(const struct busy *busy, const void *stream)
{
	size_t i = 0;

	while (i < busy->count && busy->streams[i] != stream)
		i++;
	return i < busy->count;
}

static void cuda_line_add_busy(struct busy *busy, const void *stream)
{
	if (!line_is_busy(busy, stream) &&
	    busy->count < sizeof busy->streams / sizeof *busy->streams)
		busy->streams[busy->count++] = stream;
}

/* Of a stream the next is asked alone: with a hundred calls in flight to ask for each takes longer
 * than the calls. */
static int cuda_line_finish_after(struct cuda_line *line, struct tutti_done *done, char *error,
				  size_t error_bytes)
{
	struct busy busy = {.count = 0};
	int count = 0;

	for (struct tutti_io **at = &line->after, *io; (io = *at);) {
		const void *stream = cuda_line_memory_io_of(io)->dst;
		tutti_status status = line_is_busy(&busy, stream)
					      ? TUTTI_IN_PROGRESS
					      : line_ended(line, io, error, error_bytes);
		if (status == TUTTI_IN_PROGRESS) {
			cuda_line_add_busy(&busy, stream);
			at = &io->next;
			continue;
		}
		if (!(*at = io->next))
			line->after_tail = at;
		tutti_done_push(done, io, status);
		count++;
	}
	return count;
}

/* The driver serves the threads of a process one after the other: one that looks all the time keeps
 * those off that launch. */
static bool cuda_line_must_look(struct cuda_line *line)
{
	uint64_t now_ns;

	if (!line->head && !line->after)
		return false;
	if (line->prompt > 0)
		return true;
	if ((now_ns = clock_now_ns()) < line->look_at_ns)
		return false;
	line->look_at_ns = now_ns + LAZY_LOOK_NS;
	return true;
}

int cuda_line_progress(struct cuda_line *line, struct tutti_done *done, char *error,
		       size_t error_bytes)
{
	struct cuda_visit visit;

	if (!cuda_line_must_look(line) || cuda_enter(line->device, &visit) != TUTTI_OK)
		return 0;
	int count = cuda_line_finish_in_order(line, done, error, error_bytes) +
		    cuda_line_finish_after(line, done, error, error_bytes);
	cuda_leave(&visit);
	return count;
}

/* Nothing of ours on a stream waits for another rank, so this ends soon unless the device hangs. */
static void line_drain(struct cuda_line *line)
{
	const struct cuda_driver *cuda = cuda_driver();
	uint64_t deadline_ns = deadline_after_ms(CUDA_END_MS);

	while (cuda->stream_query(line->stream) == CUDA_ERROR_NOT_READY) {
		if (clock_now_ns() > deadline_ns) {
			log_notice("CUDA device %d does not finish copies of a call that has "
				   "failed: its buffers may still change",
				   line->device->ordinal);
			return;
		}
		sched_yield();
	}
}

static void line_forget(struct cuda_line *line, struct tutti_io *list)
{
	for (; list; list = list->next)
		cuda_line_give_event(line, cuda_line_memory_io_of(list)->ticket);
}

void cuda_line_cancel(struct cuda_line *line)
{
	struct cuda_visit visit;

	if (cuda_enter(line->device, &visit) != TUTTI_OK)
		return;
	line_drain(line);
	line_forget(line, line->head);
	line_forget(line, line->after);
	line->head = line->after = NULL;
	line->prompt = 0;
	line->tail = &line->head;
	line->after_tail = &line->after;
	cuda_leave(&visit);
}

void cuda_line_destroy(struct cuda_line *line)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_visit visit;

	if (!line)
		return;
	cuda_line_cancel(line);
	if (cuda_enter(line->device, &visit) == TUTTI_OK) {
		while (line->event_count)
			cuda->event_destroy(line->events[--line->event_count]);
		cuda_stream_give(line->device, line->stream);
		cuda_leave(&visit);
	}
	free(line->events);
	free(line);
}
