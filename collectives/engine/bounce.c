/* Memory that the CPU may not touch: a task's scratch in it, or host copies of the caller's
 * buffers, asked for before the task runs and given back when it has ended. */
#include "collectives/engine/engine_internal.h"

#include <stdlib.h>

static void bounce_done(struct engine *e, struct engine_io *io);
static void bounce_failed(struct engine *e, struct engine_io *io);
static const struct io_owner bounce_owner = {.done = bounce_done, .failed = bounce_failed};

static void post(struct engine *e, struct tutti_work *work, struct engine_io *io, enum memory_op op)
{
	struct memory_queue *q = e->links.queues[work->spec.memory->id];
	io->owner = &bounce_owner;
	io->work = work;
	io->op.op = op;
	q->kind->post(q, &io->op, &e->links.done);
}

static void post_copy(struct engine *e, struct tutti_work *work, struct engine_io *io, void *dst,
		      const void **src)
{
	io->op.dst = dst;
	io->op.src = src;
	io->op.n_src = 1;
	post(e, work, io, MEMORY_COPY);
}

/* The window and p2p touch host memory only. Calls on other memory use host copies, so all ranks
 * take the same path. */
tutti_status bounce_prepare(struct engine *e, struct tutti_work *work)
{
	struct bounce *s = &work->bounce;
	const struct task_spec *spec = &work->spec;

	s->send = malloc(spec->send_bytes + spec->recv_bytes + 1);
	if (!s->send)
		return fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for %zu bytes of host copies",
			    e->config.rank, spec->name, spec->send_bytes + spec->recv_bytes);
	s->recv = s->send + spec->send_bytes;
	s->in_src = spec->args.send;
	s->out_src = s->recv;
	s->in.op.count = spec->send_bytes;
	s->out.op.count = spec->recv_bytes;
	bool has_gaps = spec->args.counts[RECV_SIDE] && spec->recv_bytes;
	s->preparing = (spec->send_bytes != 0) + has_gaps;
	if (s->preparing)
		work->stage = WORK_PREPARES;
	if (spec->send_bytes)
		post_copy(e, work, &s->in, s->send, &s->in_src);
	if (has_gaps) { /* bytes between the blocks keep their values */
		s->gaps_src = spec->args.recv;
		s->gaps.op.count = spec->recv_bytes;
		post_copy(e, work, &s->gaps, s->recv, &s->gaps_src);
	}
	return TUTTI_OK;
}

void bounce_take_scratch(struct engine *e, struct tutti_work *work, size_t bytes)
{
	struct engine_io *io = &work->bounce.scratch_io;

	io->op.io.bytes = bytes;
	post(e, work, io, MEMORY_ALLOC);
}

static void bounce_failed(struct engine *e, struct engine_io *io)
{
	engine_fail_in(e, io->work, io->op.io.status, tutti_status_string(io->op.io.status));
}

static void bounce_done(struct engine *e, struct engine_io *io)
{
	struct tutti_work *work = io->work;
	if (work->stage == WORK_CLEANS_UP) { /* its scratch is freed, or its result is copied out */
		work->next_ended = e->works.ended;
		e->works.ended = work;
		return;
	}
	if (work->bounce.preparing && --work->bounce.preparing)
		return;
	if (io == &work->bounce.scratch_io)
		work->bounce.scratch = io->op.io.buf;
	work->stage = WORK_RUNS;
	if (work->spec.kind->prepared)
		work->spec.kind->prepared(e, work);
}

void engine_work_ended(struct engine *e, struct tutti_work *work)
{
	struct bounce *s = &work->bounce;
	work->stage = WORK_CLEANS_UP;
	if (s->scratch) {
		s->scratch_io.op.io.buf = s->scratch;
		post(e, work, &s->scratch_io, MEMORY_FREE);
	} else if (s->send && work->spec.recv_bytes && work->own_status == TUTTI_OK) {
		post_copy(e, work, &s->out, work->spec.args.recv, &s->out_src);
	} else {
		work->next_ended = e->works.ended;
		e->works.ended = work;
	}
}

void engine_work_failed(struct engine *e, struct tutti_work *work, tutti_status status)
{
	work->own_status = status;
	engine_work_ended(e, work);
}
