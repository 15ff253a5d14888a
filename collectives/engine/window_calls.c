/* Calls of the window, which run in one of three ways:
 *
 *   blocking  in its caller's thread, with its run on the stack; it gets no work
 *   alone     with a handle, short, and beside nothing else in flight: its line is posted, and its
 *             work is filled in when another call or another thread takes the engine's lock. Most
 *             are over before
 *   queued    a task like any other (window_task.c): behind earlier calls of the window, long, with
 *             a callback, or of memory that must be copied first
 *
 * The first two are there for their time: for 4 B on 2 ranks a blocking call takes 0.13 us, one
 * that is alone 0.16, and a queued one 0.17 (docs/measurements/async_calls.md). All three end in
 * the same functions of the window, and fail in engine_window_failed. */
#include "collectives/control/control.h"
#include "collectives/engine/engine_internal.h"
#include "collectives/engine/helper.h"
#include "core/clock.h"

#include <assert.h>

static bool window_alone_is_plain(const struct engine *e, const struct call_args *args)
{
	return !args->counts[SEND_SIDE] && !args->is_grouped && (unsigned)args->op < OPS_BUILT_IN &&
	       e->help.is_attached && !e->config.now_ns;
}

/* The other ranks wait for its line, so that goes first. */
static void window_alone_begin(struct engine *e, struct tutti_work *work,
			       const struct call_args *args)
{
	window_task_post(e, work, args);
	work->submitted_ns = engine_coarse_now(e);
	/* Partner: the helper, as in helper_wake. */
	e->works.alone = work;
}

struct tutti_work *engine_submit_alone(struct engine *e, const struct call_args *args,
				       int timeout_ms)
{
	struct tutti_work *work = NULL;

	if (!window_alone_is_plain(e, args) || !engine_trylock(e))
		return NULL;
	if (!e->works.newest && !e->failure.stop && !e->failure.report_state &&
	    e->links.queues[TUTTI_MEMORY_HOST] && (work = work_new(e))) {
		if (trace_is_short(args))
			window_alone_begin(e, work, args);
		work->spec.timeout_ms = timeout_ms;
		work->spec.trace = (struct trace_mark){0};
		if (e->config.trace)
			work->spec.trace =
				trace_call(e->config.trace, args, TRACE_BY_WINDOW, TRACE_IS_ASYNC);
		if (trace_is_timed(args))
			trace_began(&work->spec.trace);
		if (!trace_is_short(args))
			window_task_enlist(e, work, args);
	}
	engine_unlock(e);
	if (work)
		helper_call_for(e, false);
	return work;
}

/* The lock's holder has the engine's reference to work, and this thread the caller's. */
static void window_alone_ended(struct engine *e, struct tutti_work *work)
{
	const struct trace_mark *mark = &work->spec.trace;

	if (!trace_ended_at_once(mark, &work_window_run(work)->args))
		trace_ended_late(mark, false);
	atomic_store_explicit(&e->help.ended, e->help.ended + 1, memory_order_relaxed);
	atomic_store_explicit(&e->works.alone, NULL, memory_order_release);
	assert(atomic_load_explicit(&work->refs, memory_order_relaxed) == 2);
	atomic_store_explicit(&work->refs, 1, memory_order_relaxed);
}

static bool window_alone_end_if_over(struct engine *e, struct tutti_work *work)
{
	bool moved;
	tutti_status status =
		window_advance_eagerly(e->config.window, work_window_run(work), &moved);

	if (status == TUTTI_OK) {
		window_alone_ended(e, work);
		return true;
	}
	engine_enlist(e);
	window_task_advanced(e, work, status);
	return false;
}

bool window_call_end(struct tutti_work *work)
{
	struct engine *e = work->engine;
	bool is_over = false;

	if (work->parts || pthread_mutex_trylock(&e->lock) != 0)
		return false;
	engine_set_holder(e);
	if (e->works.alone == work) {
		is_over = window_alone_end_if_over(e, work);
	} else if (e->works.window_head == work && e->works.newest == work && !work->next &&
		   !e->loose && window_task_advance(e, true)) {
		engine_finish_ended(e);
		is_over = atomic_load(&work->is_done) && work->status == TUTTI_OK;
	}
	engine_unlock(e);
	/* Until here the work keeps the engine, which another thread may be destroying. */
	if (is_over)
		work_release(work);
	return is_over;
}

/* A blocking call of the window, and its entry in the trace. Reading a clock costs as much as a
 * short call. So a call that does not wait gets its entry at its end, without a time, and every
 * TRACE_TIMED-th short call gets times, so that the others lie between known times. A call that
 * waits gets its entry when the wait begins. */
struct window_call {
	struct engine *e;
	struct window_run *run;
	struct trace_mark mark;
	uint64_t since_ns;
};

static void window_call_note(struct window_call *c)
{
	if (!c->e->config.trace || c->mark.entry)
		return;
	c->mark = trace_call(c->e->config.trace, &c->run->args, TRACE_BY_WINDOW, 0);
	trace_began(&c->mark);
}

static void window_call_note_end(struct window_call *c, tutti_status status)
{
	if (__builtin_expect(status != TUTTI_OK, 0))
		window_call_note(c);
	if (c->mark.entry)
		trace_ended(&c->mark, status != TUTTI_OK);
	else if (c->e->config.trace)
		trace_short(c->e->config.trace, &c->run->args);
}

static void window_call_waits(void *arg)
{
	struct window_call *c = arg;
	struct engine *e = c->e;
	uint64_t now = clock_now_ns();

	window_call_note(c);
	if (e->works.newest || e->loose || engine_has_started(e))
		engine_pass(e, false);
	if (!c->since_ns)
		c->since_ns = now;
	if (now - c->since_ns >= MS_TO_NS(SLOW_MS))
		window_tell(e, c->run, &c->mark, now);
}

static __attribute__((cold)) void window_call_failed(struct engine *e, const struct window_run *run,
						     int timeout_ms, tutti_status status)
{
	if (!e->failure.stop) {
		struct tutti_work named = {.engine = e,
					   .stage = WORK_RUNS,
					   .holds = WORK_HOLDS_WINDOW_RUN,
					   .as.window_run = *run,
					   .spec.timeout_ms = timeout_ms};
		window_task_fill(&named.spec, e, &run->args);
		engine_window_failed(e, &named, status);
	}
	engine_clean_up(e);
}

tutti_status engine_run_window(struct engine *e, const struct call_args *args, int timeout_ms)
{
	struct window_run run;
	struct window_call call = {.e = e, .run = &run};

	engine_lock(e);
	if (__builtin_expect(e->works.window_head || e->failure.stop, 0)) {
		engine_release_lock(e);
		return TUTTI_IN_PROGRESS;
	}
	window_begin(e->config.window, &run, args);
	if (trace_is_timed(args))
		window_call_note(&call);
	tutti_status status = window_drive(e->config.window, &run, (uint64_t)timeout_ms * 1000000u,
					   &e->failure.stop, window_call_waits, &call);
	window_call_note_end(&call, status);
	if (__builtin_expect(status != TUTTI_OK, 0)) {
		window_call_failed(e, &run, timeout_ms, status);
		status = engine_status(e);
	}
	engine_unlock(e);
	return status;
}
