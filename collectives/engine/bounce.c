/* Preparations of a task: the earlier work of its stream ends; for memory that the CPU may not
 * touch it gets host copies of the caller's buffers, or scratch in that memory. They are given back
 * when it has ended. */
#include "collectives/engine/engine_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void bounce_done(struct engine *e, struct engine_io *io);
static void bounce_failed(struct engine *e, struct engine_io *io);
static const struct io_owner bounce_owner = {.done = bounce_done, .failed = bounce_failed};

static struct memory_queue *queue_of(struct engine *e, const struct tutti_work *work)
{
	return e->links.queues[work->spec.memory->id];
}

static void post_on(struct memory_queue *q, struct engine *e, struct tutti_work *work,
		    struct engine_io *io, enum memory_op op)
{
	io->owner = &bounce_owner;
	io->work = work;
	io->op.op = op;
	q->kind->post(q, &io->op, &e->links.done);
}

static void post(struct engine *e, struct tutti_work *work, struct engine_io *io, enum memory_op op)
{
	post_on(queue_of(e, work), e, work, io, op);
}

static void post_copy(struct engine *e, struct tutti_work *work, struct engine_io *io, void *dst,
		      const void **src)
{
	io->op.dst = dst;
	io->op.src = src;
	io->op.n_src = 1;
	post(e, work, io, MEMORY_COPY);
}

static const void *a_buffer(const struct task_spec *spec)
{
	return spec->args.recv ? spec->args.recv : spec->args.send;
}

static void *alloc_copies(struct engine *e, struct tutti_work *work, size_t bytes)
{
	struct memory_queue *q = queue_of(e, work);

	return q->kind->host_alloc ? q->kind->host_alloc(q, bytes, a_buffer(&work->spec))
				   : malloc(bytes);
}

void bounce_free(struct engine *e, struct tutti_work *work)
{
	struct memory_queue *q = queue_of(e, work);

	if (work->bounce.send && q->kind->host_free)
		q->kind->host_free(q, work->bounce.send);
	else
		free(work->bounce.send);
	work->bounce.send = NULL;
}

/* The window and p2p touch host memory only. Calls on other memory use host copies, so all ranks
 * take the same path. */
static tutti_status make_copies(struct engine *e, struct tutti_work *work)
{
	struct bounce *s = &work->bounce;
	const struct task_spec *spec = &work->spec;
	size_t bytes = spec->send_bytes + spec->recv_bytes;

	if (!(s->send = alloc_copies(e, work, bytes + 1)))
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d: %s: no memory for %zu bytes of host copies: %s",
			    e->config.rank, spec->name, bytes,
			    spec->memory->host_alloc ? last_error() : strerror(errno));
	s->recv = s->send + spec->send_bytes;
	return TUTTI_OK;
}

/* Bytes between the blocks of a v-variant keep their values. */
static bool has_gaps(const struct task_spec *spec)
{
	return spec->args.counts[RECV_SIDE] && spec->recv_bytes;
}

/* The stream's earlier work is over: the rest of what is needed. An io may be done at once. */
static void post_rest(struct engine *e, struct tutti_work *work)
{
	struct bounce *s = &work->bounce;
	const struct task_spec *spec = &work->spec;

	if (s->scratch_bytes) {
		s->scratch_io.op.io.bytes = s->scratch_bytes;
		s->scratch_io.op.dst = (void *)(uintptr_t)a_buffer(spec);
		post(e, work, &s->scratch_io, MEMORY_ALLOC);
	}
	if (s->send && spec->send_bytes) {
		s->in_src = spec->args.send;
		s->in.op.count = spec->send_bytes;
		post_copy(e, work, &s->in, s->send, &s->in_src);
	}
	if (s->send && has_gaps(spec)) {
		s->gaps_src = spec->args.recv;
		s->gaps.op.count = spec->recv_bytes;
		post_copy(e, work, &s->gaps, s->recv, &s->gaps_src);
	}
}

tutti_status bounce_prepare(struct engine *e, struct tutti_work *work, struct bounce_needs needs)
{
	struct bounce *s = &work->bounce;
	const struct task_spec *spec = &work->spec;
	bool copies = needs.copies && (spec->memory->id != TUTTI_MEMORY_HOST ||
				       (needs.is_early && spec->stream_kind));

	if (copies)
		TRY(make_copies(e, work));
	s->scratch_bytes = needs.scratch_bytes;
	s->preparing = (spec->stream_kind != NULL) + (s->scratch_bytes != 0);
	if (copies)
		s->preparing += (spec->send_bytes != 0) + has_gaps(spec);
	s->is_early = needs.is_early;
	work->stage = s->preparing && !s->is_early ? WORK_PREPARES : WORK_RUNS;
	if (!spec->stream_kind) {
		post_rest(e, work);
		return TUTTI_OK;
	}
	s->is_held = true;
	s->after_src = a_buffer(spec);
	s->after.op.dst = spec->stream;
	s->after.op.src = &s->after_src;
	post_on(e->links.queues[spec->stream_kind->id], e, work, &s->after, MEMORY_AFTER);
	return TUTTI_OK;
}

tutti_status bounce_copy_late(struct engine *e, struct tutti_work *work)
{
	struct bounce *s = &work->bounce;

	TRY(make_copies(e, work));
	if (work->spec.send_bytes) {
		s->preparing = 1;
		post_rest(e, work);
	}
	return TUTTI_OK;
}

static void bounce_failed(struct engine *e, struct engine_io *io)
{
	const struct tutti_work *work = io->work;
	const struct memory_kind *kind =
		io == &work->bounce.after ? work->spec.stream_kind : work->spec.memory;

	engine_fail_in(e, work, io->op.io.status, engine_queue_error(e, kind, io->op.io.status));
}

/* All that work needed is there. */
static void run(struct engine *e, struct tutti_work *work)
{
	work->stage = WORK_RUNS;
	if (work->spec.kind->prepared)
		work->spec.kind->prepared(e, work);
}

/* Gives back what the task had, and its result to the caller. */
static void clean_up(struct engine *e, struct tutti_work *work)
{
	struct bounce *s = &work->bounce;

	if (s->scratch) {
		s->scratch_io.op.io.buf = s->scratch;
		post(e, work, &s->scratch_io, MEMORY_FREE);
	} else if (s->send && work->spec.recv_bytes && work->own_status == TUTTI_OK) {
		s->out_src = s->recv;
		s->out.op.count = work->spec.recv_bytes;
		post_copy(e, work, &s->out, work->spec.args.recv, &s->out_src);
	} else {
		work->next_ended = e->works.ended;
		e->works.ended = work;
	}
}

static void bounce_done(struct engine *e, struct engine_io *io)
{
	struct tutti_work *work = io->work;
	struct bounce *s = &work->bounce;

	if (s->preparing == 0) { /* its scratch is freed, or its result is copied out */
		work->next_ended = e->works.ended;
		e->works.ended = work;
		return;
	}
	if (io == &s->after) {
		s->is_held = false;
		post_rest(e, work);
	}
	if (io == &s->scratch_io)
		s->scratch = io->op.io.buf;
	if (--s->preparing > 0)
		return;
	if (!s->is_early)
		run(e, work);
	else if (work->stage == WORK_CLEANS_UP)
		clean_up(e, work);
	else if (work->spec.kind->released)
		work->spec.kind->released(e, work);
}

void engine_work_ended(struct engine *e, struct tutti_work *work)
{
	work->stage = WORK_CLEANS_UP;
	if (work->bounce.preparing == 0) /* else its stream's earlier work lasts */
		clean_up(e, work);
}

void engine_work_failed(struct engine *e, struct tutti_work *work, tutti_status status)
{
	work->own_status = status;
	engine_work_ended(e, work);
}
