/* Runs plans: issues steps in lane order when what they depend on is done, posts them, and follows
 * the completions. Nothing there waits, allocates or recurses. Behind that, text for error messages
 * and the trace: the progress of a run, and what it waits for. */
#include "collectives/engine/run.h"

#include "collectives/engine/direct.h"
#include "core/poison.h"
#include "core/rank_list.h"
#include "transport/guarded.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* How many elements a chunk of this shape has in slice. */
static size_t run_length(const struct run *r, uint32_t shape, uint32_t slice)
{
	size_t at = (size_t)slice * r->slice_elements;
	size_t chunk = layout_length(&r->work->spec.layout, shape);

	if (at >= chunk)
		return 0;
	return chunk - at < r->slice_elements ? chunk - at : r->slice_elements;
}

/* Where chunk ref begins in slice. */
static uint8_t *run_address(const struct run *r, struct ref ref, uint32_t slice)
{
	if (ref.buf == BUF_TMP) {
		const struct tmp_chunk *t = &r->plan->tmp[ref.chunk];
		if (t->pool == POOL_FILLED)
			return r->tmp[t->pool] + t->index * r->filled_stride +
			       slice * r->slice_elements * r->element;
		return r->tmp[t->pool] +
		       ((size_t)t->index * r->slots + slice % r->slots) * r->slice_stride;
	}
	size_t first = layout_offset(&r->work->spec.layout, (int)ref.buf, ref.chunk,
				     plan_shape_of(r->plan, ref));
	return r->base[ref.buf] + (first + (size_t)slice * r->slice_elements) * r->element;
}

/* Neighbouring chunks become one piece. Returns the number of pieces. */
static uint32_t run_gather_pieces(const struct run *r, const struct step *s, struct step_io *io)
{
	struct tutti_piece *piece = io->pieces;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->refs; i++) {
		struct ref ref = r->plan->refs[s->ref + i];
		size_t bytes = run_length(r, plan_shape_of(r->plan, ref), io->slice) * r->element;
		uint8_t *at = run_address(r, ref, io->slice);
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

/* The count of a pair is in the tag, so the receiver finds different counts at the first message.
 */
static uint32_t run_message_tag(const struct run *r, const struct step *s)
{
	uint32_t tag = r->work->spec.args.fingerprint;
	if (!r->work->spec.checks_counts)
		return tag;
	uint32_t shape = plan_shape_of(r->plan, r->plan->refs[s->ref]);
	uint64_t count = layout_length(&r->work->spec.layout, shape) * 0x9e3779b97f4a7c15u;
	return tag ^ (uint32_t)(count >> 32);
}

/* NULL for host memory. */
static void *run_map_of(const struct run *r, struct ref ref)
{
	struct direct_map *const *maps = work_task(r->work)->direct.maps;

	if (ref.buf != BUF_TMP)
		return direct_map_of(maps[ref.buf == BUF_IN ? DIRECT_IN : DIRECT_OUT]);
	return r->plan->tmp[ref.chunk].pool != POOL_HOST ? direct_map_of(maps[DIRECT_SCRATCH])
							 : NULL;
}

/* Says what transports are to know of io, the message of step s: where its bytes lie, and its tag.
 */
static void run_lay_message(const struct lane_run *l, const struct step *s, struct step_io *io)
{
	const struct run *r = l->run;
	struct tutti_io *t = &io->base.op.io;
	struct ref first = s->kind == STEP_RECV_REDUCE ? s->dst : r->plan->refs[s->ref];

	t->tag = run_message_tag(r, s);
	t->map = s->kind == STEP_RECV_REDUCE ? NULL : run_map_of(r, first);
	t->asks = r->work->spec.direct_kind &&
		  direct_reaches(r->work->engine, s->peer, r->work->spec.direct_kind);
	t->pieces = NULL;
	if (s->kind != STEP_RECV_REDUCE && s->refs > 1) {
		t->bytes = 0;
		t->piece_count = run_gather_pieces(r, s, io);
		t->buf = io->pieces[0].buf;
		if (t->piece_count > 1)
			t->pieces = io->pieces;
		if (t->bytes == 0)
			t->map = NULL;
		assert(!t->map || !t->pieces || s->kind == STEP_SEND);
		return;
	}
	t->bytes = run_length(r, plan_shape_of(r->plan, first), io->slice) * r->element;
	t->buf = s->kind == STEP_RECV_REDUCE ? l->landing + (size_t)(io - l->ios) * r->slice_stride
					     : run_address(r, first, io->slice);
	if (t->bytes == 0)
		t->map = NULL;
}

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

static enum memory_op run_local_op(enum step_kind kind)
{
	return kind == STEP_COPY     ? MEMORY_COPY
	       : kind == STEP_FINISH ? MEMORY_FINISH
	       : kind == STEP_SCALE  ? MEMORY_SCALE
				     : MEMORY_REDUCE;
}

static void run_post_local(struct engine *e, struct run *r, struct step_io *io, uint32_t n_src)
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
	io->base.op.op = run_local_op(s->kind);
	if (s->kind == STEP_COPY)
		io->base.op.count *= r->element;
	q->kind->post(q, &io->base.op, &e->links.done);
}

static bool run_is_empty_message(const struct run *r, const struct step *s, uint32_t slice)
{
	if (r->work->spec.checks_counts && slice == 0)
		return false;
	for (uint32_t i = 0; i < s->refs; i++)
		if (run_length(r, plan_shape_of(r->plan, r->plan->refs[s->ref + i]), slice))
			return false;
	return true;
}

/* A step without bytes uses no io. Both ends skip the same empty slices. */
static bool run_is_empty(const struct run *r, const struct step *s, uint32_t slice)
{
	if (s->kind == STEP_SEND || s->kind == STEP_RECV)
		return run_is_empty_message(r, s, slice);
	if (run_length(r, plan_shape_of(r->plan, s->dst), slice) == 0)
		return true;
	if (s->kind == STEP_FINISH)
		return r->work->spec.args.op != TUTTI_AVG;
	return s->kind == STEP_COPY &&
	       run_address(r, s->dst, slice) == run_address(r, r->plan->refs[s->ref], slice);
}

/* The next free io of lane l. */
static struct step_io *run_take_io(struct lane_run *l, uint32_t step, uint32_t slice)
{
	struct step_io *io = &l->ios[l->posted++ % l->depth];

	poison(&io->base.op, sizeof io->base.op);
	io->step = step;
	io->slice = slice;
	io->is_done = io->has_landed = false;
	io->base.op.io.conn = NULL;
	return io;
}

static void run_issue_step(struct engine *e, struct lane_run *l, uint32_t step, uint32_t slice)
{
	struct run *r = l->run;
	const struct step *s = &r->plan->steps[step];

	if (run_is_empty(r, s, slice)) {
		run_step_done(e, r, step, slice);
		return;
	}
	struct step_io *io = run_take_io(l, step, slice);
	if (s->peer < 0) {
		for (uint32_t k = 0; k < s->refs; k++)
			io->src[k] = run_address(r, r->plan->refs[s->ref + k], slice);
		run_post_local(e, r, io, s->refs);
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

static void run_leave_stream(struct engine *e, struct lane_run *l)
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
static struct lane_run *run_take_dirty(struct engine *e)
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
	struct lane_run *l = run_take_dirty(e);

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
		run_issue_step(e, l, step, slice);
	}
	if (l->is_issued)
		run_leave_stream(e, l);
	return true;
}

static void run_count_traffic(struct engine *e, const struct step_io *io, const struct step *s)
{
	if (s->kind == STEP_SEND) {
		engine_add_traffic(&e->traffic.messages, 1);
		engine_add_traffic(&e->traffic.sent_bytes, io->base.op.io.bytes);
	} else if (s->peer >= 0 && !io->has_landed) {
		engine_add_traffic(&e->traffic.received_bytes, io->base.op.io.bytes);
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
static void run_reduce_landed(struct engine *e, struct run *r, struct step_io *io)
{
	const struct step *s = &r->plan->steps[io->step];
	io->has_landed = true;
	io->src[0] = run_address(r, r->plan->refs[s->ref], io->slice);
	io->src[1] = io->base.op.io.buf;
	run_post_local(e, r, io, 2);
}

static void run_step_ended(struct engine *e, struct engine_io *own)
{
	struct step_io *io = (struct step_io *)own;
	struct lane_run *l = io->lane;
	struct run *r = l->run;
	const struct step *s = &r->plan->steps[io->step];

	run_count_traffic(e, io, s);
	if (s->kind == STEP_RECV_REDUCE && !io->has_landed) {
		run_reduce_landed(e, r, io);
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

static bool run_lane_waits(const struct lane_run *l, bool sends)
{
	return l->lane->peer >= 0 && l->lane->sends == sends && l->posted != l->retired;
}

/* Lists the peers of the lanes that have something posted, in one direction. Returns how many. */
static int run_list_peers(const struct run *r, bool sends, char *text, size_t text_bytes)
{
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	for (uint32_t i = 0; i < r->plan->lane_count; i++) {
		if (run_lane_waits(&r->lanes[i], sends))
			rank_list_add(&list, r->lanes[i].lane->peer);
	}
	rank_list_end(&list);
	return list.count;
}

/* Finished slices count whole; of slices in flight the finished steps count. */
static void run_count_steps(const struct run *r, uint64_t *done, uint64_t *all)
{
	*all = (uint64_t)r->plan->count * r->slices;
	*done = (uint64_t)r->plan->count * r->finished;
	for (uint32_t s = r->finished; s < r->slices && s < r->finished + r->slots; s++)
		*done += r->plan->count - r->left[s % r->slots];
}

/* The first lane that waits, or NULL: to receive, else to send. */
static const struct lane_run *run_waiting_lane(const struct run *r)
{
	for (int sends = 0; sends < 2; sends++)
		for (uint32_t i = 0; i < r->plan->lane_count; i++)
			if (run_lane_waits(&r->lanes[i], sends))
				return &r->lanes[i];
	return NULL;
}

/* How far it is, and what it waits for first. Returns text, as run_peers_text. */
static const char *run_progress_text(const struct run *r, char *text, size_t text_bytes)
{
	const struct lane_run *l = run_waiting_lane(r);
	uint64_t done, all;
	char where[96] = "";

	run_count_steps(r, &done, &all);
	if (!l) {
		snprintf(text, text_bytes, "%llu of %llu steps are done", (unsigned long long)done,
			 (unsigned long long)all);
		return text;
	}
	const struct step_io *io = &l->ios[l->retired % l->depth]; /* its oldest message */
	const struct step *s = &r->plan->steps[io->step];
	const struct tutti_conn *conn = io->base.op.io.conn;
	if (conn)
		snprintf(where, sizeof where, " (%s%s%s)", conn->endpoint->transport->name,
			 conn->where[0] ? " " : "", conn->where);
	snprintf(text, text_bytes,
		 "%llu of %llu steps are done, next is chunk %u, slice %u %s rank %d%s",
		 (unsigned long long)done, (unsigned long long)all,
		 s->kind == STEP_RECV_REDUCE ? s->dst.chunk : r->plan->refs[s->ref].chunk,
		 io->slice, s->kind == STEP_SEND ? "to" : "from", s->peer, where);
	return text;
}

static const char *run_peers_text(const struct run *r, char *text, size_t text_bytes)
{
	char peers[200];
	int n = run_list_peers(r, false, peers, sizeof peers);
	const char *what = "for";
	if (n == 0) {
		n = run_list_peers(r, true, peers, sizeof peers);
		what = "to send to";
	}
	if (n == 0)
		snprintf(text, text_bytes, "for earlier calls");
	else
		snprintf(text, text_bytes, "%s %s", what, peers);
	return text;
}

int run_explain(struct engine *e, const struct tutti_work *work, char *text, size_t text_bytes)
{
	const struct run *r = work_task(work)->run;
	const struct lane_run *l = run_waiting_lane(r);
	char peers[212], progress[200]; /* peers: run_peers_text puts words before 200 bytes */
	(void)e;

	snprintf(text, text_bytes, "%s; %s", run_peers_text(r, peers, sizeof peers),
		 run_progress_text(r, progress, sizeof progress));
	return l ? l->lane->peer : -1;
}

/* Call records do not contain the counts of a pair, so this rank writes the error message. */
static void run_counts_differ(struct engine *e, const struct tutti_work *work,
			      const struct tutti_io *io)
{
	char text[ERROR_BYTES];
	int peer = io->conn->peer;
	size_t count = work->spec.args.counts[RECV_SIDE][peer];
	char call[100];

	snprintf(text, sizeof text,
		 "The ranks did not make the same call: in %s rank %d expects %zu elements "
		 "from rank %d, which sends another number or made another call (%.200s)",
		 collective_words(work, call, sizeof call), e->config.rank, count, peer,
		 io->conn->error);
	if (!engine_suspect(e, work, peer, TUTTI_ERR_MISMATCH, text))
		engine_set_failure(e, TUTTI_ERR_MISMATCH, FAILURE_NO_RANK, text);
}

/* The message of the connection, then the progress of the run. */
static void run_connection_lost(struct engine *e, const struct run *r, const struct tutti_io *io)
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

/* Mostly because its connection did. */
static void run_step_failed(struct engine *e, struct engine_io *own)
{
	const struct tutti_io *io = &own->op.io;
	const struct run *r = ((struct step_io *)own)->lane->run;

	if (!io->conn || io->conn->status == TUTTI_OK)
		engine_fail_in(e, r->work, io->status,
			       engine_queue_error(e, r->work->spec.memory, io->status));
	else if (io->status == TUTTI_ERR_MISMATCH && r->work->spec.checks_counts)
		run_counts_differ(e, r->work, io);
	else
		run_connection_lost(e, r, io);
}

const struct io_owner run_step_owner = {.done = run_step_ended, .failed = run_step_failed};
