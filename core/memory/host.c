/* Host memory: every operation is finished when post returns. Its queue has no state. */
#include "core/status.h"
#include "core/memory/memory.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"

#include <stdlib.h>
#include <string.h>

#define HOST_ALIGNMENT 128 /* two lines: neighbours are fetched in pairs */

static struct memory_queue host_queue = {.kind = &memory_host};

/* All memory that no other kind claims; the registry asks the others first. */
static bool host_owns(const void *ptr)
{
	(void)ptr;
	return true;
}

static tutti_status host_open(struct memory_queue **queue)
{
	*queue = &host_queue;
	return TUTTI_OK;
}

static tutti_status host_alloc(struct memory_io *io)
{
	void *memory;
	size_t bytes = io->io.bytes ? io->io.bytes : 1;

	if (posix_memalign(&memory, HOST_ALIGNMENT, bytes) != 0)
		return fail(TUTTI_ERR_MEMORY, "There is no memory for %zu bytes.", bytes);
	io->io.buf = memory;
	return TUTTI_OK;
}

static tutti_status host_do(struct memory_io *io)
{
	switch (io->op) {
	case MEMORY_ALLOC:
		return host_alloc(io);
	case MEMORY_FREE:
		free(io->io.buf);
		return TUTTI_OK;
	case MEMORY_COPY:
		if (io->count)
			memmove(io->dst, io->src[0], io->count);
		return TUTTI_OK;
	case MEMORY_REDUCE:
		reduce(&io->dst, 1, io->src, io->n_src, io->count, io->dtype, io->reduce_op,
		       io->divisor);
		return TUTTI_OK;
	case MEMORY_FINISH:
		reduce_finish(io->dst, io->count, io->dtype, io->reduce_op, io->divisor);
		return TUTTI_OK;
	case MEMORY_SCALE:
		scale(io->dst, io->src[0], op_scalar(io->reduce_op), io->count, io->dtype);
		return TUTTI_OK;
	case MEMORY_AFTER:
		break; /* it has no streams */
	}
	return fail(TUTTI_ERR_INTERNAL, "Host memory has no operation %d.", (int)io->op);
}

static void host_post(struct memory_queue *queue, struct memory_io *io, struct tutti_done *done)
{
	(void)queue;
	tutti_done_push(done, &io->io, host_do(io));
}

static int host_progress(struct memory_queue *queue, struct tutti_done *done)
{
	(void)queue;
	(void)done;
	return 0;
}

static void host_nothing(struct memory_queue *queue)
{
	(void)queue;
}

const struct memory_kind memory_host = {
	.name = "host",
	.id = TUTTI_MEMORY_HOST,
	.owns = host_owns,
	.open = host_open,
	.post = host_post,
	.progress = host_progress,
	.cancel = host_nothing,
	.close = host_nothing,
};
