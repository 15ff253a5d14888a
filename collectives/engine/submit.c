/* The way in: a call becomes a work, its plan or window operation begins, and on the way out
 * whatever was needed for it is given back. */
#include "collectives/engine/run.h"

#include "core/clock.h"
#include "memory/ops.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAITS_PER_LOOK 16

static tutti_status open_queue(struct engine *e, const struct memory_kind *kind)
{
	return e->queues[kind->id] ? TUTTI_OK : kind->open(&e->queues[kind->id]);
}

static void post_memory(struct engine *e, struct tutti_work *work, struct engine_io *io,
			enum memory_op op)
{
	struct memory_queue *q = e->queues[work->spec.memory->id];
	io->owner = IO_WORK;
	io->work = work;
	io->op.op = op;
	q->kind->post(q, &io->op, &e->done);
}

static void post_bounce(struct engine *e, struct tutti_work *work, struct engine_io *io, void *dst,
			const void **src)
{
	io->op.dst = dst;
	io->op.src = src;
	io->op.n_src = 1;
	post_memory(e, work, io, MEMORY_COPY);
}

/* A window call on such memory goes through host copies, so that all ranks still take one path. */
static tutti_status prepare_bounce(struct engine *e, struct tutti_work *work)
{
	struct bounce *b = &work->bounce;
	const struct job_spec *spec = &work->spec;

	b->send = malloc(spec->send_bytes + spec->recv_bytes + 1);
	if (!b->send)
		return fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for %zu bytes of staging",
			    e->config.rank, spec->name, spec->send_bytes + spec->recv_bytes);
	b->recv = b->send + spec->send_bytes;
	b->in_src = spec->args.send;
	b->out_src = b->recv;
	b->in.op.count = spec->send_bytes;
	b->out.op.count = spec->recv_bytes;
	bool has_gaps = spec->args.counts[RECV_SIDE] && spec->recv_bytes;
	b->preparing = (spec->send_bytes != 0) + has_gaps;
	if (b->preparing)
		work->stage = WORK_PREPARES;
	if (spec->send_bytes)
		post_bounce(e, work, &b->in, b->send, &b->in_src);
	if (has_gaps) { /* what lies between the blocks goes back as it was */
		b->gaps_src = spec->args.recv;
		b->gaps.op.count = spec->recv_bytes;
		post_bounce(e, work, &b->gaps, b->recv, &b->gaps_src);
	}
	return TUTTI_OK;
}

void engine_io_done(struct engine *e, struct engine_io *io)
{
	struct tutti_work *work = io->work;
	if (work->stage == WORK_CLEANS_UP) { /* given back, or copied out */
		work->next_ended = e->ended;
		e->ended = work;
		return;
	}
	if (work->bounce.preparing && --work->bounce.preparing)
		return;
	work->stage = WORK_RUNS;
	if (work->run) {
		work->run->tmp[POOL_KIND] = io->op.io.buf;
		run_start(e, work->run);
	} else if (work->message) {
		p2p_prepared(e, work);
	}
}

static tutti_status begin_plan(struct engine *e, struct tutti_work *work)
{
	TRY(run_create(e, work));
	struct run *r = work->run;
	size_t bytes = (size_t)r->plan->pool_chunks[POOL_KIND] * r->slots * r->slice_stride;
	if (bytes == 0) {
		work->stage = WORK_RUNS;
		run_start(e, r);
		return TUTTI_OK;
	}
	r->kind_memory = (struct engine_io){.op.io.bytes = bytes};
	post_memory(e, work, &r->kind_memory, MEMORY_ALLOC);
	return TUTTI_OK;
}

static tutti_status begin_window(struct engine *e, struct tutti_work *work)
{
	assert(e->config.window);
	work->stage = WORK_RUNS;
	if (work->spec.memory->id != TUTTI_MEMORY_HOST)
		TRY(prepare_bounce(e, work));
	work->next_window = NULL;
	*e->window_tail = work;
	e->window_tail = &work->next_window;
	return TUTTI_OK;
}

static tutti_status begin_p2p(struct engine *e, struct tutti_work *work)
{
	work->stage = WORK_RUNS;
	if (work->spec.memory->id != TUTTI_MEMORY_HOST)
		TRY(prepare_bounce(e, work));
	return p2p_begin(e, work);
}

static tutti_status begin(struct engine *e, struct tutti_work *work)
{
	if (work->spec.plan)
		return begin_plan(e, work);
	return work->spec.p2p.side ? begin_p2p(e, work) : begin_window(e, work);
}

void engine_work_ended(struct engine *e, struct tutti_work *work)
{
	struct bounce *b = &work->bounce;
	work->stage = WORK_CLEANS_UP;
	if (work->run && work->run->tmp[POOL_KIND]) {
		struct engine_io *io = &work->run->kind_memory;
		io->op.io.buf = work->run->tmp[POOL_KIND];
		post_memory(e, work, io, MEMORY_FREE);
	} else if (b->send && work->spec.recv_bytes) {
		post_bounce(e, work, &b->out, work->spec.args.recv, &b->out_src);
	} else {
		work->next_ended = e->ended;
		e->ended = work;
	}
}

static bool is_full(const struct engine *e)
{
	return e->work_count >= ENGINE_WORKS_MAX && !e->groups && !e->stop;
}

/* A full queue makes room by progress, within the time of the call that wants it. */
static void make_room(struct engine *e, const struct job_spec *spec)
{
	struct wait w;

	if (__builtin_expect(!is_full(e), 1))
		return;
	wait_begin(&w, e->config.policy);
	e->outside = spec;
	e->outside_since_ns = engine_now(e);
	uint64_t deadline_ns = e->outside_since_ns + (uint64_t)spec->timeout_ms * 1000000u;
	while (is_full(e)) {
		if (engine_now(e) >= deadline_ns) {
			engine_fail_outside(e);
		} else if (!engine_pass(e) && !wait_again(&w)) {
			engine_unlock(e);
			engine_sleep(e);
			pthread_mutex_lock(&e->lock);
		}
	}
	e->outside = NULL;
}

/* The caller's counts and offsets are gone when an asynchronous call has returned. */
static tutti_status keep_tables(struct engine *e, struct tutti_work *work)
{
	struct call_args *a = &work->spec.args;
	size_t n = (size_t)e->config.size, *to;
	if (!a->counts[SEND_SIDE])
		return TUTTI_OK;
	if (work->table_room < 4 * n) {
		if (!(to = realloc(work->tables, 4 * n * sizeof *to)))
			return fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for %zu counts",
				    e->config.rank, work->spec.name, 4 * n);
		work->tables = to;
		work->table_room = 4 * n;
	}
	to = work->tables;
	for (int side = 0; side < 2; side++, to += 2 * n) {
		memcpy(to, a->counts[side], n * sizeof *to);
		memcpy(to + n, a->offsets[side], n * sizeof *to);
		a->counts[side] = to;
		a->offsets[side] = to + n;
		work->spec.layout.counts[side] = to;
		if (work->spec.layout.offsets[side])
			work->spec.layout.offsets[side] = to + n;
	}
	return TUTTI_OK;
}

static tutti_status new_work(struct engine *e, const struct job_spec *spec,
			     struct tutti_work **work)
{
	TRY(open_queue(e, spec->memory));
	*work = work_new(e);
	return *work ? TUTTI_OK
		     : fail(TUTTI_ERR_MEMORY, "rank %d: no memory for a call", e->config.rank);
}

/* Under the lock. The call has its sequence number: where it fails here, other ranks would wait for
 * it in vain, so the communicator fails. */
static tutti_status submit(struct engine *e, const struct job_spec *spec, bool is_async,
			   struct tutti_work **out)
{
	struct tutti_work *work;
	make_room(e, spec);
	if (e->has_notice && !e->stop)
		engine_act_on_notice(e);
	if (e->stop)
		return engine_status(e);
	tutti_status status = new_work(e, spec, &work);
	if (status != TUTTI_OK) {
		engine_fail(e, status, last_error());
		return status;
	}
	work->spec = *spec;
	op_hold(spec->args.op);
	work->is_async = is_async;
	work->deadline_ns = engine_now(e) + (uint64_t)spec->timeout_ms * 1000000u;
	work->next = e->works;
	if (e->works)
		e->works->prev = work;
	e->works = work;
	e->work_count++;
	if (is_async)
		atomic_fetch_add(&e->async_works, 1);
	status = keep_tables(e, work);
	if (status == TUTTI_OK)
		status = begin(e, work);
	if (status != TUTTI_OK) {
		work->spec.done = NULL; /* its caller learns it from the return value, once */
		engine_fail(e, status, last_error());
		engine_clean_up(e);
		work_release(work);
		return status;
	}
	engine_settle(e);
	*out = work;
	return TUTTI_OK;
}

/* Alone on host memory a call ends as it is submitted: no thread is started for that. */
static bool needs_helper(const struct engine *e, const struct job_spec *spec)
{
	return !e->config.now_ns && !e->is_helped &&
	       (e->config.size > 1 || spec->done || spec->p2p.side ||
		spec->memory->id != TUTTI_MEMORY_HOST);
}

tutti_status engine_submit(struct engine *e, const struct job_spec *spec, struct tutti_work **work)
{
	if (needs_helper(e, spec)) {
		tutti_status attached = helper_attach(e);
		if (attached != TUTTI_OK) { /* other ranks will wait for this call in vain */
			engine_fail(e, attached, last_error());
			return attached;
		}
	}
	pthread_mutex_lock(&e->lock);
	tutti_status status = submit(e, spec, true, work);
	engine_unlock(e);
	if (status == TUTTI_OK && !e->config.now_ns)
		helper_wake();
	return status;
}

/* A blocking call of the window, and how it is noted in the trace. A clock takes as long as a short
 * call's own work. So one that finds everybody there is noted when it is over, without a time; one
 * that waits is noted then, and now and then one is all the same, so that the others lie between
 * known times. */
struct window_call {
	struct engine *e;
	struct window_run *run;
	struct trace_mark mark;
	uint64_t since_ns;
};

#define SLOW_NS 20000000u /* from here on the trace says what is waited for         */

static void note(struct window_call *c)
{
	if (!c->e->config.trace || c->mark.entry)
		return;
	c->mark = trace_call(c->e->config.trace, &c->run->args, TRACE_BY_WINDOW, 0);
	trace_began(&c->mark);
}

static void note_end(struct window_call *c, tutti_status status)
{
	if (__builtin_expect(status != TUTTI_OK, 0))
		note(c);
	if (c->mark.entry)
		trace_ended(&c->mark, status != TUTTI_OK);
	else if (c->e->config.trace)
		trace_short(c->e->config.trace, &c->run->args);
}

static void while_waiting(void *arg)
{
	struct window_call *c = arg;
	struct engine *e = c->e;
	uint64_t now = clock_now_ns();

	note(c);
	if (e->works || e->loose)
		engine_pass(e);
	if (!c->since_ns)
		c->since_ns = now;
	if (now - c->since_ns >= SLOW_NS)
		window_tell(e, c->run, &c->mark, now);
}

static struct job_spec window_spec(const struct call_args *args, int timeout_ms)
{
	return (struct job_spec){.args = *args,
				 .memory = &memory_host,
				 .name = collective_name(args->collective),
				 .algorithm = "window",
				 .timeout_ms = timeout_ms};
}

static __attribute__((cold)) void window_run_failed(struct engine *e, const struct call_args *args,
						    int timeout_ms, tutti_status status)
{
	if (!e->stop) {
		struct tutti_work named = {.spec = window_spec(args, timeout_ms)};
		engine_window_failed(e, &named, status);
	}
	engine_clean_up(e);
}

/* The window's fast driver, when nothing stands before this call. Under the lock. */
static tutti_status drive_window(struct engine *e, const struct call_args *args, int timeout_ms)
{
	struct window_run run;
	struct window_call call = {.e = e, .run = &run};
	window_begin(e->config.window, &run, args);
	if (trace_is_timed(args))
		note(&call);
	tutti_status status = window_drive(e->config.window, &run, (uint64_t)timeout_ms * 1000000u,
					   &e->stop, while_waiting, &call);
	note_end(&call, status);
	if (__builtin_expect(status == TUTTI_OK, 1))
		return TUTTI_OK;
	window_run_failed(e, args, timeout_ms, status);
	return engine_status(e);
}

tutti_status engine_run_window(struct engine *e, const struct call_args *args, int timeout_ms)
{
	pthread_mutex_lock(&e->lock);
	if (__builtin_expect(!e->window_head && !e->stop, 1)) {
		tutti_status status = drive_window(e, args, timeout_ms);
		engine_unlock(e);
		return status;
	}
	pthread_mutex_unlock(&e->lock);
	struct job_spec spec = window_spec(args, timeout_ms);
	if (e->config.trace) {
		spec.trace = trace_call(e->config.trace, args, TRACE_BY_WINDOW, 0);
		trace_began(&spec.trace);
	}
	tutti_status status = engine_run(e, &spec);
	if (status != TUTTI_OK)
		trace_ended_late(&spec.trace, true);
	return status;
}

/* A send that was copied may still be on its way when its call is over: the helper sees to it. */
static tutti_status see_off(struct engine *e)
{
	pthread_mutex_lock(&e->lock);
	if (e->loose && !e->stop)
		engine_pass(e);
	bool is_over = !e->loose || e->config.now_ns;
	engine_unlock(e);
	if (is_over)
		return TUTTI_OK;
	tutti_status status = e->is_helped ? TUTTI_OK : helper_attach(e);
	if (status == TUTTI_OK)
		helper_wake();
	else
		engine_fail(e, status, last_error());
	return status;
}

tutti_status engine_run(struct engine *e, const struct job_spec *spec)
{
	struct tutti_work *work;

	pthread_mutex_lock(&e->lock);
	tutti_status status = submit(e, spec, false, &work);
	engine_unlock(e);
	if (status == TUTTI_OK && e->config.ranks_near_count &&
	    ++e->spread.waits % WAITS_PER_LOOK == 0)
		engine_spread(e);
	if (status == TUTTI_OK)
		status = work_wait(&work, 0);
	if (status == TUTTI_OK && spec->p2p.side)
		status = see_off(e);
	return status;
}
