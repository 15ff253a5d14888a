/* Streams that wait for the end of a work, at a gate that work_finish opens. */
#include "collectives/engine/engine_internal.h"

#include "core/callback.h"

#include <stdio.h>

/* Whether the stream waits for a kernel's end, and for nothing that the host does. */
static bool ends_in_stream(const struct tutti_work *work, const struct memory_kind *kind)
{
	return work->spec.kind->end_of && work->spec.memory == kind;
}

/* Of the kind's memory, or NULL. */
static const void *work_stream_buffer_of(const struct tutti_work *work,
					 const struct memory_kind *kind)
{
	const struct call_args *args = &work->spec.args;

	if (work->spec.memory != kind)
		return NULL;
	return args->recv ? args->recv : args->send;
}

/* Whether the stream is one in which a program's copy would keep the engine from its work. In a
 * callback nothing waits. */
static bool waits_here(const struct tutti_work *work, const struct memory_kind *kind, void *stream)
{
	return !ends_in_stream(work, kind) && !callback_in_done &&
	       kind->stream_blocks_others(stream, work_stream_buffer_of(work, kind));
}

/* A failure opens the gate, too: no stream waits for what cannot come. */
static tutti_status wait_at_gate(struct tutti_work *work, const struct memory_kind *kind,
				 void *stream)
{
	if (atomic_load_explicit(&work->is_done, memory_order_acquire))
		return TUTTI_OK;
	if (ends_in_stream(work, kind))
		return kind->stream_join(work->spec.kind->end_of(work), stream,
					 work_stream_buffer_of(work, kind));
	if (!work->gate.kind)
		TRY(kind->gate_take(&work->gate));
	return kind->gate_wait(&work->gate, stream, work_stream_buffer_of(work, kind));
}

static tutti_status work_stream_wait_for_one(struct tutti_work *work,
					     const struct memory_kind *kind, void *stream)
{
	struct engine *e = work->engine;

	/* Partner: end, in work.c. Its engine may be gone. */
	if (atomic_load_explicit(&work->is_done, memory_order_acquire))
		return TUTTI_OK;
	if (waits_here(work, kind, stream)) {
		work_await(work);
		return TUTTI_OK;
	}
	engine_lock(e);
	tutti_status status = wait_at_gate(work, kind, stream);
	engine_unlock(e);
	return status;
}

tutti_status work_wait_stream(struct tutti_work *work, const struct memory_kind *kind, void *stream)
{
	if (!work->parts)
		return work_stream_wait_for_one(work, kind, stream);
	for (size_t i = 0; i < work->parts->count; i++)
		TRY(work_stream_wait_for_one(work->parts->part[i], kind, stream));
	return TUTTI_OK;
}

void engine_fail_stream(struct engine *e, tutti_status status, const char *name)
{
	char text[ERROR_BYTES];

	snprintf(text, sizeof text, "rank %d: %s: its stream cannot be made to wait: %.380s",
		 e->config.rank, name, last_error());
	engine_fail(e, status, text);
}
