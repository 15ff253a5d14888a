/* A queue of the kind: a line for each device that its operations came to, and memory for later
 * use. */
#include "cuda/blocks.h"
#include "cuda/kind.h"
#include "cuda/line.h"

#include "core/status.h"

#include <stdio.h>
#include <stdlib.h>

struct cuda_queue {
	struct memory_queue base;
	struct cuda_line *lines[CUDA_DEVICES_MAX]; /* by ordinal; NULL: not needed yet */
	struct cuda_blocks blocks;
};

static struct cuda_queue *cuda_queue_of(struct memory_queue *queue)
{
	return (struct cuda_queue *)queue;
}

tutti_status cuda_queue_open(struct memory_queue **queue)
{
	struct cuda_queue *q = calloc(1, sizeof *q);

	if (!q)
		return fail(TUTTI_ERR_MEMORY, "no memory for a queue of CUDA operations");
	q->base.kind = memory_kind(TUTTI_MEMORY_CUDA);
	*queue = &q->base;
	return TUTTI_OK;
}

static tutti_status line_on(struct cuda_queue *q, struct cuda_device *device,
			    struct cuda_line **line)
{
	if (!q->lines[device->ordinal])
		TRY(cuda_line_create(&q->lines[device->ordinal], device));
	*line = q->lines[device->ordinal];
	return TUTTI_OK;
}

/* Where it is to run: at its destination, or at the source of a copy to the host. */
static tutti_status device_for(const struct memory_io *io, struct cuda_device **device)
{
	if (io->op == MEMORY_AFTER)
		return cuda_device_of_stream(device, io->dst, io->src[0]);
	if (io->op == MEMORY_COPY && memory_of(io->dst)->id != TUTTI_MEMORY_CUDA)
		return cuda_device_of(device, io->src[0]);
	return cuda_device_of(device, io->dst);
}

static tutti_status queue_post(struct cuda_queue *q, struct memory_io *io)
{
	struct cuda_device *device;
	struct cuda_line *line;

	TRY(device_for(io, &device));
	if (io->op == MEMORY_ALLOC)
		return cuda_blocks_take(&q->blocks, device, false, io->io.bytes, &io->io.buf);
	TRY(line_on(q, device, &line));
	return cuda_line_post(line, io);
}

void cuda_queue_post(struct memory_queue *queue, struct memory_io *io, struct tutti_done *done)
{
	struct cuda_queue *q = cuda_queue_of(queue);
	tutti_status status = TUTTI_OK;

	if (io->op == MEMORY_FREE)
		cuda_blocks_give(&q->blocks, io->io.buf);
	else if ((status = queue_post(q, io)) != TUTTI_OK)
		snprintf(q->base.error, sizeof q->base.error, "%s", last_error());
	if (status != TUTTI_OK || io->op == MEMORY_FREE || io->op == MEMORY_ALLOC)
		tutti_done_push(done, &io->io, status);
}

int cuda_queue_progress(struct memory_queue *queue, struct tutti_done *done)
{
	struct cuda_queue *q = cuda_queue_of(queue);
	int count = 0;

	for (int i = 0; i < CUDA_DEVICES_MAX; i++)
		if (q->lines[i])
			count += cuda_line_progress(q->lines[i], done, q->base.error,
						    sizeof q->base.error);
	return count;
}

void cuda_queue_cancel(struct memory_queue *queue)
{
	struct cuda_queue *q = cuda_queue_of(queue);

	for (int i = 0; i < CUDA_DEVICES_MAX; i++)
		if (q->lines[i])
			cuda_line_cancel(q->lines[i]);
}

void cuda_queue_close(struct memory_queue *queue)
{
	struct cuda_queue *q = cuda_queue_of(queue);

	for (int i = 0; i < CUDA_DEVICES_MAX; i++)
		cuda_line_destroy(q->lines[i]);
	cuda_blocks_leave(&q->blocks);
	free(q);
}

static void *queue_take(struct memory_queue *queue, bool is_host, size_t bytes, const void *near)
{
	struct cuda_queue *q = cuda_queue_of(queue);
	struct cuda_device *device;
	void *ptr = NULL;
	tutti_status status = cuda_device_of(&device, near);

	if (status == TUTTI_OK)
		status = cuda_blocks_take(&q->blocks, device, is_host, bytes, &ptr);
	return status == TUTTI_OK ? ptr : NULL;
}

/* near is memory of the device that is to copy from and to it. */
void *cuda_host_alloc(struct memory_queue *queue, size_t bytes, const void *near)
{
	return queue_take(queue, true, bytes, near);
}

void *cuda_device_alloc(struct memory_queue *queue, size_t bytes, const void *near)
{
	return queue_take(queue, false, bytes, near);
}

void cuda_device_free(struct memory_queue *queue, void *ptr)
{
	cuda_blocks_give(&cuda_queue_of(queue)->blocks, ptr);
}

void cuda_host_free(struct memory_queue *queue, void *ptr)
{
	cuda_blocks_give(&cuda_queue_of(queue)->blocks, ptr);
}

tutti_status cuda_stream_join(const struct memory_io *io, void *stream, const void *near)
{
	const struct cuda_driver *cuda = cuda_driver();
	struct cuda_device *device;
	struct cuda_visit visit;

	TRY(cuda_device_of_stream(&device, stream, near));
	TRY(cuda_enter(device, &visit));
	CUresult error = cuda->stream_wait_event(stream, io->ticket, 0);
	cuda_leave(&visit);
	return cuda_status(error, "stream_wait_event");
}
