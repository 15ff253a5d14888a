/* Runs plans: issues steps in lane order when what they depend on is done, posts them, and follows
 * the completions. Nothing here waits, allocates or recurses. */
#include "collectives/engine/run.h"

#include "core/poison.h"
#include "transport/guarded.h"

#include <assert.h>

void run_refill(struct run *r, uint32_t slot)
{
	const struct plan *p = r->plan;
	r->left[slot] = p->count;
	for (uint32_t i = 0; i < p->count; i++)
		r->pending[(size_t)i * r->slots + slot] = p->steps[i].deps;
}

static void run_mark_dirty(struct engine *e, struct lane_run *l)
{
	if (l->is_dirty)
		return;
	l->is_dirty = true;
	l->next_dirty = NULL;
	*e->runs.dirty_tail = l;
	e->runs.dirty_tail = &l->next_dirty;
}

static void run_plan_ended(struct engine *e, const struct run *r)
{
	if (r->work->spec.kind->plan_ended)
		r->work->spec.kind->plan_ended(e, r->work);
	else
		engine_work_ended(e, r->work);
}

void run_start(struct engine *e, struct run *r)
{
	r->is_started = true;
	for (uint32_t i = 0; i < r->plan->lane_count; i++)
		run_mark_dirty(e, &r->lanes[i]);
	if (r->plan->count == 0)
		run_plan_ended(e, r);
}

static void run_slice_done(struct engine *e, struct run *r)
{
	while (r->finished < r->slices && r->left[r->finished % r->slots] == 0) {
		run_refill(r, r->finished % r->slots);
		r->finished++;
	}
	if (r->finished == r->slices) {
		run_plan_ended(e, r);
		return;
	}
	for (uint32_t i = 0; i < r->plan->lane_count; i++)
		run_mark_dirty(e, &r->lanes[i]);
}

static void run_step_done(struct engine *e, struct run *r, uint32_t step, uint32_t slice)
{
	const struct plan *p = r->plan;
	const struct step *s = &p->steps[step];
	uint32_t slot = slice % r->slots;

	for (uint32_t i = s->succ; i < s->succ + s->succs; i++)
		if (--r->pending[(size_t)p->edges[i] * r->slots + slot] == 0)
			run_mark_dirty(e, &r->lanes[p->steps[p->edges[i]].lane]);
	if (--r->left[slot] == 0)
		run_slice_done(e, r);
}

static enum memory_op local_op(enum step_kind kind)
{
	return kind == STEP_COPY     ? MEMORY_COPY
	       : kind == STEP_FINISH ? MEMORY_FINISH
	       : kind == STEP_SCALE  ? MEMORY_SCALE
				     : MEMORY_REDUCE;
}

static void post_local(struct engine *e, struct run *r, struct step_io *io, uint32_t n_src)
{
	const struct step *s = &r->plan->steps[io->step];
	struct memory_queue *q = e->links.queues[r->work->spec.memory->id];

	io->base.op.dst = run_address(r, s->dst, io->slice);
	io->base.op.src = io->src;
	io->base.op.n_src = (int)n_src;
	io->base.op.count = run_length(r, plan_shape_of(r->plan, s->dst), io->slice);
	io->base.op.dtype = r->work->spec.args.dtype;
	io->base.op.reduce_op = r->work->spec.args.op;
	io->base.op.divisor = s->kind == STEP_FINISH || s->ends_average ? r->plan->size : 0;
	io->base.op.op = local_op(s->kind);
	if (s->kind == STEP_COPY)
		io->base.op.count *= r->element;
	q->kind->post(q, &io->base.op, &e->links.done);
}

static bool is_empty_message(const struct run *r, const struct step *s, uint32_t slice)
{
	if (r->work->spec.checks_counts && slice == 0)
		return false;
	for (uint32_t i = 0; i < s->refs; i++)
		if (run_length(r, plan_shape_of(r->plan, r->plan->refs[s->ref + i]), slice))
			return false;
	return true;
}

/* A step without bytes uses no io. Both ends skip the same empty slices. */
static bool is_empty(const struct run *r, const struct step *s, uint32_t slice)
{
	if (s->kind == STEP_SEND || s->kind == STEP_RECV)
		return is_empty_message(r, s, slice);
	if (run_length(r, plan_shape_of(r->plan, s->dst), slice) == 0)
		return true;
	if (s->kind == STEP_FINISH)
		return r->work->spec.args.op != TUTTI_AVG;
	return s->kind == STEP_COPY &&
	       run_address(r, s->dst, slice) == run_address(r, r->plan->refs[s->ref], slice);
}

/* The next free io of lane l. */
static struct step_io *take_io(struct lane_run *l, uint32_t step, uint32_t slice)
{
	struct step_io *io = &l->ios[l->posted++ % l->depth];

	poison(&io->base.op, sizeof io->base.op);
	io->step = step;
	io->slice = slice;
	io->is_done = io->has_landed = false;
	io->base.op.io.conn = NULL;
	return io;
}

static void issue_step(struct engine *e, struct lane_run *l, uint32_t step, uint32_t slice)
{
	struct run *r = l->run;
	const struct step *s = &r->plan->steps[step];

	if (is_empty(r, s, slice)) {
		run_step_done(e, r, step, slice);
		return;
	}
	struct step_io *io = take_io(l, step, slice);
	if (s->peer < 0) {
		for (uint32_t k = 0; k < s->refs; k++)
			io->src[k] = run_address(r, r->plan->refs[s->ref + k], slice);
		post_local(e, r, io, s->refs);
		return;
	}
	struct tutti_conn *conn = engine_conn(e, engine_place(e, r->work, s->peer));
	if (!conn)
		return; /* the engine has failed */
	run_lay_message(l, s, io);
	if (s->kind == STEP_SEND)
		transport_send(conn, &io->base.op.io);
	else
		transport_recv(conn, &io->base.op.io);
}

static void leave_stream(struct engine *e, struct lane_run *l)
{
	struct stream *s = l->stream;
	if (!s)
		return;
	assert(s->head == l);
	if (!(s->head = l->next_in_stream))
		s->tail = &s->head;
	else
		run_mark_dirty(e, s->head);
}

/* The first lane that may get on, taken off the list; or NULL. */
static struct lane_run *take_dirty(struct engine *e)
{
	struct lane_run *l = e->runs.dirty;

	if (!l)
		return NULL;
	if (!(e->runs.dirty = l->next_dirty))
		e->runs.dirty_tail = &e->runs.dirty;
	l->is_dirty = false;
	return l;
}

bool run_issue(struct engine *e)
{
	struct lane_run *l = take_dirty(e);

	if (!l)
		return false;
	const struct run *r = l->run;
	if (!r->is_started || l->is_issued || (l->stream && l->stream->head != l))
		return true;
	while (!l->is_issued && l->posted - l->retired < l->depth && !e->failure.stop) {
		uint32_t slice = cursor_slice(&l->cursor);
		uint32_t step = r->plan->order[l->lane->first + l->cursor.index];
		const uint32_t *pending = &r->pending[(size_t)step * r->slots];
		if (cursor_must_wait(&l->cursor, pending, r->slots, r->finished))
			return true;
		if (cursor_advance(&l->cursor, l->lane->count, r->slices, r->interleave))
			l->is_issued = true;
		issue_step(e, l, step, slice);
	}
	if (l->is_issued)
		leave_stream(e, l);
	return true;
}

/* Only the holder of the lock writes. Any thread reads. */
static void run_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static void count_traffic(struct engine *e, const struct step_io *io, const struct step *s)
{
	if (s->kind == STEP_SEND) {
		run_add(&e->traffic.messages, 1);
		run_add(&e->traffic.sent_bytes, io->base.op.io.bytes);
	} else if (s->peer >= 0 && !io->has_landed) {
		run_add(&e->traffic.received_bytes, io->base.op.io.bytes);
	}
}

/* The bytes of an adapter are there for this kind's operations. */
static bool run_has_come(struct engine *e, const struct run *r, const struct step_io *io)
{
	const struct step *s = &r->plan->steps[io->step];
	const struct memory_kind *kind = r->work->spec.memory;

	if (s->kind != STEP_RECV || !io->base.op.io.map)
		return true;
	tutti_status status = kind->landed(io->base.op.io.buf);
	if (status != TUTTI_OK)
		engine_fail_in(e, r->work, status, last_error());
	return status == TUTTI_OK;
}

/* At once, while the bytes are in the cache. */
static void reduce_landed(struct engine *e, struct run *r, struct step_io *io)
{
	const struct step *s = &r->plan->steps[io->step];
	io->has_landed = true;
	io->src[0] = run_address(r, r->plan->refs[s->ref], io->slice);
	io->src[1] = io->base.op.io.buf;
	post_local(e, r, io, 2);
}

static void step_ended(struct engine *e, struct engine_io *own)
{
	struct step_io *io = (struct step_io *)own;
	struct lane_run *l = io->lane;
	struct run *r = l->run;
	const struct step *s = &r->plan->steps[io->step];

	count_traffic(e, io, s);
	if (s->kind == STEP_RECV_REDUCE && !io->has_landed) {
		reduce_landed(e, r, io);
		return;
	}
	if (!run_has_come(e, r, io))
		return;
	io->is_done = true;
	while (l->retired != l->posted && l->ios[l->retired % l->depth].is_done)
		l->retired++;
	run_mark_dirty(e, l);
	run_step_done(e, r, io->step, io->slice);
}

const struct io_owner step_owner = {.done = step_ended, .failed = run_step_failed};
