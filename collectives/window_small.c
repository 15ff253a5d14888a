/* Calls whose data fits the ranks' lines: everybody posts it with the line, and reads it off all
 * the others'. One wait in all. Up to LINE_PAYLOAD bytes it is one transfer of one cache line per
 * pair. */
#include "collectives/window_internal.h"

#include "memory/dtype.h"
#include "memory/reduce.h"

/* What this rank puts in its line. */
static size_t contribution(const struct window *w, const struct call_args *args, size_t bytes)
{
	switch (args->collective) {
	case COLL_REDUCE_SCATTER:
		return bytes * (size_t)w->size;
	case COLL_BROADCAST:
	case COLL_ALL_REDUCE:
	case COLL_ALL_GATHER:
		return bytes;
	default:
		return 0;
	}
}

bool small_fits(const struct window *w, const struct call_args *args, size_t bytes)
{
	return contribution(w, args, bytes) <= w->small_bytes;
}

void small_write(struct window *w, const struct window_run *run, struct line *line)
{
	size_t bytes = contribution(w, &run->args, run->bytes);

	if (run->args.collective == COLL_BROADCAST && run->args.root != w->rank)
		return;
	if (bytes)
		memcpy(line_payload(line, bytes), run->args.send, bytes);
}

/* recv = the ranks' blocks, block bytes long and offset bytes into their payloads, reduced. */
static void small_reduce(struct window *w, const struct window_run *run, size_t offset,
			 size_t bytes)
{
	void *recv = run->args.recv;

	for (int rank = 0; rank < w->size; rank++) {
		struct line *line = line_of(w, run->number, rank);
		w->src[rank] = (uint8_t *)line_payload(line, bytes) + offset;
	}
	reduce(&recv, 1, w->src, w->size, run->args.count, run->args.dtype, run->args.op, w->size);
}

static void small_gather(struct window *w, const struct window_run *run)
{
	for (int rank = 0; rank < w->size; rank++)
		memcpy((uint8_t *)run->args.recv + (size_t)rank * run->bytes,
		       line_payload(line_of(w, run->number, rank), run->bytes), run->bytes);
}

void small_finish(struct window *w, const struct window_run *run)
{
	const struct call_args *args = &run->args;
	size_t bytes = run->bytes;

	if (!bytes)
		return;
	switch (args->collective) {
	case COLL_ALL_REDUCE:
		small_reduce(w, run, 0, bytes);
		break;
	case COLL_REDUCE_SCATTER:
		small_reduce(w, run, (size_t)w->rank * bytes, bytes * (size_t)w->size);
		break;
	case COLL_ALL_GATHER:
		small_gather(w, run);
		break;
	case COLL_BROADCAST:
		if (w->rank != args->root || args->recv != args->send)
			memcpy(args->recv, line_payload(line_of(w, run->number, args->root), bytes),
			       bytes);
		break;
	default:
		break;
	}
}
