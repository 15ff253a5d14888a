/* Runs plans: issues steps in lane order when what they depend on is done, posts them, and follows
 * the completions. Nothing here waits, allocates or recurses. */
#include "collectives/engine/run.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static size_t slice_length(const struct run *r, uint32_t shape, uint32_t slice)
{
	size_t at = (size_t)slice * r->slice_elements;
	size_t chunk = layout_length(&r->work->spec.layout, shape);

	if (at >= chunk)
		return 0;
	return chunk - at < r->slice_elements ? chunk - at : r->slice_elements;
}

static uint8_t *address(const struct run *r, struct ref ref, uint32_t slice)
{
	if (ref.buf == BUF_TMP) {
		const struct tmp_chunk *t = &r->plan->tmp[ref.chunk];
		return r->tmp[t->pool] +
		       ((size_t)t->index * r->slots + slice % r->slots) * r->slice_stride;
	}
	size_t first = layout_offset(&r->work->spec.layout, (int)ref.buf, ref.chunk,
				     plan_shape_of(r->plan, ref));
	return r->base[ref.buf] + (first + (size_t)slice * r->slice_elements) * r->element;
}

void run_refill(struct run *r, uint32_t slot)
{
	const struct plan *p = r->plan;
	r->left[slot] = p->count;
	for (uint32_t i = 0; i < p->count; i++)
		r->pending[(size_t)i * r->slots + slot] = p->steps[i].deps;
}

static void mark_dirty(struct engine *e, struct lane_run *l)
{
	if (l->is_dirty)
		return;
	l->is_dirty = true;
	l->next_dirty = NULL;
	*e->dirty_tail = l;
	e->dirty_tail = &l->next_dirty;
}

void run_start(struct engine *e, struct run *r)
{
	r->is_started = true;
	for (uint32_t i = 0; i < r->plan->lane_count; i++)
		mark_dirty(e, &r->lanes[i]);
	if (r->plan->count == 0)
		engine_work_ended(e, r->work);
}

static void slice_done(struct engine *e, struct run *r)
{
	while (r->finished < r->slices && r->left[r->finished % r->slots] == 0) {
		run_refill(r, r->finished % r->slots);
		r->finished++;
	}
	if (r->finished == r->slices) {
		engine_work_ended(e, r->work);
		return;
	}
	for (uint32_t i = 0; i < r->plan->lane_count; i++)
		mark_dirty(e, &r->lanes[i]);
}

static void step_done(struct engine *e, struct run *r, uint32_t step, uint32_t slice)
{
	const struct plan *p = r->plan;
	const struct step *s = &p->steps[step];
	uint32_t slot = slice % r->slots;

	for (uint32_t i = s->succ; i < s->succ + s->succs; i++)
		if (--r->pending[(size_t)p->edges[i] * r->slots + slot] == 0)
			mark_dirty(e, &r->lanes[p->steps[p->edges[i]].lane]);
	if (--r->left[slot] == 0)
		slice_done(e, r);
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
	struct memory_queue *q = e->queues[r->work->spec.memory->id];

	io->base.op.dst = address(r, s->dst, io->slice);
	io->base.op.src = io->src;
	io->base.op.n_src = (int)n_src;
	io->base.op.count = slice_length(r, plan_shape_of(r->plan, s->dst), io->slice);
	io->base.op.dtype = r->work->spec.args.dtype;
	io->base.op.reduce_op = r->work->spec.args.op;
	io->base.op.divisor = s->kind == STEP_FINISH || s->ends_average ? r->plan->size : 0;
	io->base.op.op = local_op(s->kind);
	if (s->kind == STEP_COPY)
		io->base.op.count *= r->element;
	q->kind->post(q, &io->base.op, &e->done);
}

/* Neighbouring chunks become one piece. Returns the number of pieces. */
static uint32_t gather_pieces(const struct run *r, const struct step *s, struct step_io *io)
{
	struct tutti_piece *piece = io->pieces;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->refs; i++) {
		struct ref ref = r->plan->refs[s->ref + i];
		size_t bytes = slice_length(r, plan_shape_of(r->plan, ref), io->slice) * r->element;
		uint8_t *at = address(r, ref, io->slice);
		if (bytes == 0)
			continue;
		if (n && (uint8_t *)piece[n - 1].buf + piece[n - 1].bytes == at)
			piece[n - 1].bytes += bytes;
		else
			piece[n++] = (struct tutti_piece){at, bytes};
		io->base.op.io.bytes += bytes;
	}
	return n;
}

static void lay_message(const struct lane_run *l, const struct step *s, struct step_io *io)
{
	const struct run *r = l->run;
	struct tutti_io *t = &io->base.op.io;
	struct ref first = s->kind == STEP_RECV_REDUCE ? s->dst : r->plan->refs[s->ref];

	t->pieces = NULL;
	if (s->kind != STEP_RECV_REDUCE && s->refs > 1) {
		t->bytes = 0;
		t->piece_count = gather_pieces(r, s, io);
		t->buf = io->pieces[0].buf;
		if (t->piece_count > 1)
			t->pieces = io->pieces;
		return;
	}
	t->bytes = slice_length(r, plan_shape_of(r->plan, first), io->slice) * r->element;
	t->buf = s->kind == STEP_RECV_REDUCE ? l->landing + (size_t)(io - l->ios) * r->slice_stride
					     : address(r, first, io->slice);
}

/* The count of a pair is in the tag, so the receiver finds different counts at the first message.
 */
static uint32_t message_tag(const struct run *r, const struct step *s)
{
	uint32_t tag = r->work->spec.args.fingerprint;
	if (!r->work->spec.checks_counts)
		return tag;
	uint32_t shape = plan_shape_of(r->plan, r->plan->refs[s->ref]);
	uint64_t count = layout_length(&r->work->spec.layout, shape) * 0x9e3779b97f4a7c15u;
	return tag ^ (uint32_t)(count >> 32);
}

static void post_remote(struct engine *e, struct lane_run *l, struct step_io *io)
{
	const struct step *s = &l->run->plan->steps[io->step];
	struct tutti_conn *conn = engine_conn(e, s->peer);

	if (!conn)
		return; /* the engine has failed */
	lay_message(l, s, io);
	io->base.op.io.tag = message_tag(l->run, s);
	io->base.op.io.map = NULL;
	if (s->kind == STEP_SEND)
		conn->endpoint->transport->send(conn, &io->base.op.io);
	else
		conn->endpoint->transport->recv(conn, &io->base.op.io);
}

static bool is_empty_message(const struct run *r, const struct step *s, uint32_t slice)
{
	if (r->work->spec.checks_counts && slice == 0)
		return false;
	for (uint32_t i = 0; i < s->refs; i++)
		if (slice_length(r, plan_shape_of(r->plan, r->plan->refs[s->ref + i]), slice))
			return false;
	return true;
}

/* A step without bytes uses no io. Both ends skip the same empty slices. */
static bool is_empty(const struct run *r, const struct step *s, uint32_t slice)
{
	if (s->kind == STEP_SEND || s->kind == STEP_RECV)
		return is_empty_message(r, s, slice);
	if (slice_length(r, plan_shape_of(r->plan, s->dst), slice) == 0)
		return true;
	if (s->kind == STEP_FINISH)
		return r->work->spec.args.op != TUTTI_AVG;
	return s->kind == STEP_COPY &&
	       address(r, s->dst, slice) == address(r, r->plan->refs[s->ref], slice);
}

static void issue_step(struct engine *e, struct lane_run *l, uint32_t step, uint32_t slice)
{
	struct run *r = l->run;
	const struct step *s = &r->plan->steps[step];

	if (is_empty(r, s, slice)) {
		step_done(e, r, step, slice);
		return;
	}
	struct step_io *io = &l->ios[l->posted++ % l->depth];
	io->step = step;
	io->slice = slice;
	io->is_done = io->has_landed = false;
	io->base.op.io.conn = NULL;
	if (s->peer >= 0) {
		post_remote(e, l, io);
		return;
	}
	for (uint32_t k = 0; k < s->refs; k++)
		io->src[k] = address(r, r->plan->refs[s->ref + k], slice);
	post_local(e, r, io, s->refs);
}

/* A round has `interleave` slices. In a round the order is step by step, and slice by slice in a
 * step. */
static void advance_cursor(struct lane_run *l)
{
	const struct run *r = l->run;
	uint32_t in_round =
		r->slices - l->base < r->interleave ? r->slices - l->base : r->interleave;

	if (++l->offset < in_round)
		return;
	l->offset = 0;
	if (++l->index < l->lane->count)
		return;
	l->index = 0;
	l->base += in_round;
	l->is_issued = l->base == r->slices;
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
		mark_dirty(e, s->head);
}

/* Issues steps until one has to wait. A slice starts when the slice that used its slot before has
 * finished on this rank. */
static void issue_lane(struct engine *e, struct lane_run *l)
{
	struct run *r = l->run;

	if (!r->is_started || l->is_issued || (l->stream && l->stream->head != l))
		return;
	while (!l->is_issued && l->posted - l->retired < l->depth && !e->stop) {
		uint32_t slice = l->base + l->offset;
		uint32_t step = r->plan->order[l->lane->first + l->index];
		if (slice >= r->finished + r->slots ||
		    r->pending[(size_t)step * r->slots + slice % r->slots])
			return;
		advance_cursor(l);
		issue_step(e, l, step, slice);
	}
	if (l->is_issued)
		leave_stream(e, l);
}

/* Only the holder of the lock writes. Any thread reads. */
static void add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static void count_traffic(struct engine *e, const struct step_io *io, const struct step *s)
{
	if (s->kind == STEP_SEND) {
		add(&e->messages, 1);
		add(&e->sent_bytes, io->base.op.io.bytes);
	} else if (s->peer >= 0 && !io->has_landed) {
		add(&e->received_bytes, io->base.op.io.bytes);
	}
}

/* At once, while the bytes are in the cache. */
static void reduce_landed(struct engine *e, struct run *r, struct step_io *io)
{
	const struct step *s = &r->plan->steps[io->step];
	io->has_landed = true;
	io->src[0] = address(r, r->plan->refs[s->ref], io->slice);
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
	io->is_done = true;
	while (l->retired != l->posted && l->ios[l->retired % l->depth].is_done)
		l->retired++;
	mark_dirty(e, l);
	step_done(e, r, io->step, io->slice);
}

/* Call records do not contain the counts of a pair, so this rank writes the error message. */
static void counts_differ(struct engine *e, const struct tutti_work *work,
			  const struct tutti_io *io)
{
	char text[ERROR_BYTES];
	int peer = io->conn->peer;
	size_t count = work->spec.args.counts[RECV_SIDE][peer];

	snprintf(text, sizeof text,
		 "The ranks did not make the same call: in %s #%llu rank %d expects %zu elements "
		 "from rank %d, which sends another number or made another call (%.200s)",
		 work->spec.name, (unsigned long long)work->spec.args.sequence, e->config.rank,
		 count, peer, io->conn->error);
	if (!engine_suspect(e, work, peer, TUTTI_ERR_MISMATCH, text))
		engine_set_failure(e, TUTTI_ERR_MISMATCH, FAILURE_NO_RANK, text);
}

/* The message of the connection, then the progress of the run. */
static void connection_lost(struct engine *e, const struct run *r, const struct tutti_io *io)
{
	const char *why = io->conn->error;
	char whole[ERROR_BYTES], progress[200];
	size_t bytes = strlen(why);

	if (bytes > 0 && why[bytes - 1] == '.')
		bytes--;
	snprintf(whole, sizeof whole, "%.*s; %s", bytes < 220 ? (int)bytes : 220, why,
		 run_progress_text(r, progress, sizeof progress));
	engine_lost(e, r->work, io->conn->peer, io->status, whole);
}

static void step_failed(struct engine *e, struct engine_io *own)
{
	const struct tutti_io *io = &own->op.io;
	const struct run *r = ((struct step_io *)own)->lane->run;

	if (!io->conn || io->conn->status == TUTTI_OK)
		engine_fail_in(e, r->work, io->status, tutti_status_string(io->status));
	else if (io->status == TUTTI_ERR_MISMATCH && r->work->spec.checks_counts)
		counts_differ(e, r->work, io);
	else
		connection_lost(e, r, io);
}

const struct io_owner step_owner = {.done = step_ended, .failed = step_failed};

bool run_issue(struct engine *e)
{
	struct lane_run *l = e->dirty;

	if (!l)
		return false;
	if (!(e->dirty = l->next_dirty))
		e->dirty_tail = &e->dirty;
	l->is_dirty = false;
	issue_lane(e, l);
	return true;
}
