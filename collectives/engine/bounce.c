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

static struct memory_queue *bounce_queue_of(struct engine *e, const struct tutti_work *work)
{
	return e->links.queues[work->spec.memory->id];
}

static void bounce_post_on(struct memory_queue *q, struct engine *e, struct engine_io *io)
{
	q->kind->post(q, &io->op, &e->links.done);
}

void work_post_io(struct engine *e, struct tutti_work *work, struct memory_queue *q,
		  const struct io_owner *owner, const struct memory_io *op)
{
	struct engine_io *io = &work_task(work)->io;

	*io = (struct engine_io){.op = *op, .owner = owner, .work = work};
	bounce_post_on(q, e, io);
}

/* Of work's copies; what src points to lives as long. */
static void bounce_post_copy(struct engine *e, struct tutti_work *work, struct engine_io *io,
			     const struct memory_io *op)
{
	*io = (struct engine_io){.op = *op, .owner = &bounce_owner, .work = work};
	io->op.op = MEMORY_COPY;
	io->op.n_src = 1;
	bounce_post_on(bounce_queue_of(e, work), e, io);
}

static const void *bounce_a_buffer(const struct task_spec *spec)
{
	return spec->args.recv ? spec->args.recv : spec->args.send;
}

/* Where the data begin: behind the struct, aligned as the block is. */
#define COPIES_HEAD ((sizeof(struct bounce_copies) + 63) / 64 * 64)

static struct bounce_copies *bounce_alloc_copies(struct engine *e, struct tutti_work *work,
						 size_t bytes)
{
	struct memory_queue *q = bounce_queue_of(e, work);

	bytes += COPIES_HEAD + 1;
	return q->kind->host_alloc ? q->kind->host_alloc(q, bytes, bounce_a_buffer(&work->spec))
				   : malloc(bytes);
}

void bounce_free(struct engine *e, struct tutti_work *work)
{
	struct memory_queue *q = bounce_queue_of(e, work);

	if (work->bounce.copies && q->kind->host_free)
		q->kind->host_free(q, work->bounce.copies);
	else
		free(work->bounce.copies);
	work->bounce.copies = NULL;
}

/* The window and p2p touch host memory only. Calls on other memory use host copies, so all ranks
 * take the same path. */
static tutti_status bounce_make_copies(struct engine *e, struct tutti_work *work)
{
	const struct task_spec *spec = &work->spec;
	size_t bytes = spec->send_bytes + spec->recv_bytes;
	struct bounce_copies *c = bounce_alloc_copies(e, work, bytes);

	if (!c)
		return fail(TUTTI_ERR_MEMORY,
			    "rank %d: %s: no memory for %zu bytes of host copies: %s",
			    e->config.rank, spec->name, bytes,
			    spec->memory->host_alloc ? last_error() : strerror(errno));
	c->send = (uint8_t *)c + COPIES_HEAD;
	c->recv = c->send + spec->send_bytes;
	work->bounce.copies = c;
	return TUTTI_OK;
}

/* Bytes between the blocks of a v-variant keep their values. */
static bool bounce_has_gaps(const struct task_spec *spec)
{
	return spec->args.counts[RECV_SIDE] && spec->recv_bytes;
}

static void bounce_fill_copies(struct engine *e, struct tutti_work *work)
{
	struct bounce_copies *c = work->bounce.copies;
	const struct task_spec *spec = &work->spec;

	c->in_src = spec->args.send;
	c->gaps_src = spec->args.recv;
	if (spec->send_bytes)
		bounce_post_copy(e, work, &c->in,
				 &(struct memory_io){.dst = c->send,
						     .src = &c->in_src,
						     .count = spec->send_bytes});
	if (bounce_has_gaps(spec))
		bounce_post_copy(e, work, &c->gaps,
				 &(struct memory_io){.dst = c->recv,
						     .src = &c->gaps_src,
						     .count = spec->recv_bytes});
}

/* The stream's earlier work is over: the rest of what is needed. An io may be done at once. */
static void bounce_post_rest(struct engine *e, struct tutti_work *work)
{
	size_t scratch_bytes = work->bounce.scratch_bytes;

	if (scratch_bytes)
		work_post_io(e, work, bounce_queue_of(e, work), &bounce_owner,
			     &(struct memory_io){
				     .op = MEMORY_ALLOC,
				     .io.bytes = scratch_bytes,
				     .dst = (void *)(uintptr_t)bounce_a_buffer(&work->spec)});
	if (work->bounce.copies)
		bounce_fill_copies(e, work);
}

tutti_status bounce_prepare(struct engine *e, struct tutti_work *work, struct bounce_needs needs)
{
	struct bounce *s = &work->bounce;
	const struct task_spec *spec = &work->spec;
	bool copies = needs.copies && (spec->memory->id != TUTTI_MEMORY_HOST ||
				       (needs.is_early && spec->is_ordered));

	if (copies)
		TRY(bounce_make_copies(e, work));
	s->scratch_bytes = needs.scratch_bytes;
	s->preparing = spec->is_ordered + (s->scratch_bytes != 0);
	if (copies)
		s->preparing += (spec->send_bytes != 0) + bounce_has_gaps(spec);
	s->is_early = needs.is_early;
	work->stage = s->preparing && !s->is_early ? WORK_PREPARES : WORK_RUNS;
	if (!spec->is_ordered) {
		bounce_post_rest(e, work);
		return TUTTI_OK;
	}
	s->is_held = true;
	work_task(work)->io_src = bounce_a_buffer(spec);
	work_post_io(e, work, e->links.queues[TUTTI_MEMORY_CUDA], &bounce_owner,
		     &(struct memory_io){.op = MEMORY_AFTER,
					 .dst = spec->stream,
					 .src = &work_task(work)->io_src});
	return TUTTI_OK;
}

tutti_status bounce_copy_late(struct engine *e, struct tutti_work *work)
{
	struct bounce *s = &work->bounce;

	TRY(bounce_make_copies(e, work));
	if (work->spec.send_bytes) {
		s->preparing = 1;
		bounce_post_rest(e, work);
	}
	return TUTTI_OK;
}

static void bounce_failed(struct engine *e, struct engine_io *io)
{
	const struct tutti_work *work = io->work;
	const struct memory_kind *kind =
		io->op.op == MEMORY_AFTER ? memory_kind(TUTTI_MEMORY_CUDA) : work->spec.memory;

	engine_fail_in(e, work, io->op.io.status, engine_queue_error(e, kind, io->op.io.status));
}

/* All that work needed is there. */
static void bounce_run(struct engine *e, struct tutti_work *work)
{
	work->stage = WORK_RUNS;
	if (work->spec.kind->prepared)
		work->spec.kind->prepared(e, work);
}

/* Works end in this order, and their callbacks are called in it. */
static void bounce_work_ends(struct engine *e, struct tutti_work *work)
{
	work->next_ended = NULL;
	*e->works.ended_tail = work;
	e->works.ended_tail = &work->next_ended;
}

/* Gives back what the task had, and its result to the caller. */
static void bounce_clean_up(struct engine *e, struct tutti_work *work)
{
	const struct bounce *s = &work->bounce;
	struct bounce_copies *c = s->copies;

	if (s->scratch) {
		work_post_io(e, work, bounce_queue_of(e, work), &bounce_owner,
			     &(struct memory_io){.op = MEMORY_FREE,
						 .io.buf = s->scratch,
						 .io.bytes = s->scratch_bytes});
	} else if (c && work->spec.recv_bytes && work->own_status == TUTTI_OK) {
		c->out_src = c->recv;
		bounce_post_copy(e, work, &c->out,
				 &(struct memory_io){.dst = work->spec.args.recv,
						     .src = &c->out_src,
						     .count = work->spec.recv_bytes});
	} else {
		bounce_work_ends(e, work);
	}
}

static void bounce_done(struct engine *e, struct engine_io *io)
{
	struct tutti_work *work = io->work;
	struct bounce *s = &work->bounce;
	enum memory_op op = io->op.op;

	if (s->preparing == 0) { /* its scratch is freed, or its result is copied out */
		bounce_work_ends(e, work);
		return;
	}
	if (op == MEMORY_ALLOC)
		s->scratch = io->op.io.buf;
	if (op == MEMORY_AFTER) { /* from here on io may be another one */
		s->is_held = false;
		bounce_post_rest(e, work);
	}
	if (--s->preparing > 0)
		return;
	if (!s->is_early)
		bounce_run(e, work);
	else if (work->stage == WORK_CLEANS_UP)
		bounce_clean_up(e, work);
	else if (work->spec.kind->released)
		work->spec.kind->released(e, work);
}

void engine_work_ended(struct engine *e, struct tutti_work *work)
{
	work->stage = WORK_CLEANS_UP;
	if (work->bounce.preparing == 0) /* else its stream's earlier work lasts */
		bounce_clean_up(e, work);
}

void engine_work_failed(struct engine *e, struct tutti_work *work, tutti_status status)
{
	work->own_status = status;
	engine_work_ended(e, work);
}
