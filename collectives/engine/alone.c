/* An asynchronous call of the window beside which nothing is in flight, most often of a program
 * that soon waits for it. A short one posts its line and is alone: its work is filled in and takes
 * its place among the others when another thread, or another call, takes the engine's lock. Most
 * are over before. */
#include "collectives/engine/helper.h"

#include <assert.h>

static bool alone_is_plain(const struct engine *e, const struct call_args *args)
{
	return !args->counts[SEND_SIDE] && !args->is_grouped && (unsigned)args->op < OPS_BUILT_IN &&
	       e->help.is_attached && !e->config.now_ns;
}

/* The other ranks wait for its line, so that goes first. */
static void begin_alone(struct engine *e, struct tutti_work *work, const struct call_args *args)
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

	if (!alone_is_plain(e, args) || !engine_trylock(e))
		return NULL;
	if (!e->works.newest && !e->failure.stop && !e->failure.report_state &&
	    e->links.queues[TUTTI_MEMORY_HOST] && (work = work_new(e))) {
		if (trace_is_short(args))
			begin_alone(e, work, args);
		work->spec.timeout_ms = timeout_ms;
		work->spec.trace = (struct trace_mark){0};
		if (e->config.trace)
			work->spec.trace =
				trace_call(e->config.trace, args, TRACE_BY_WINDOW, TRACE_IS_ASYNC);
		if (trace_is_timed(args))
			trace_began(&work->spec.trace);
		if (!trace_is_short(args))
			work_enlist(e, work, args);
	}
	engine_unlock(e);
	if (work)
		helper_call_for(e, false);
	return work;
}

/* The lock's holder has the engine's reference to work, and this thread the caller's. */
static void alone_end(struct engine *e, struct tutti_work *work)
{
	const struct trace_mark *mark = &work->spec.trace;

	if (!trace_ended_at_once(mark, &work_window_run(work)->args))
		trace_ended_late(mark, false);
	atomic_store_explicit(&e->help.ended, e->help.ended + 1, memory_order_relaxed);
	atomic_store_explicit(&e->works.alone, NULL, memory_order_release);
	assert(atomic_load_explicit(&work->refs, memory_order_relaxed) == 2);
	atomic_store_explicit(&work->refs, 1, memory_order_relaxed);
}

static bool end_if_over(struct engine *e, struct tutti_work *work)
{
	bool moved;
	tutti_status status =
		window_advance_eagerly(e->config.window, work_window_run(work), &moved);

	if (status == TUTTI_OK) {
		alone_end(e, work);
		return true;
	}
	engine_enlist(e);
	window_task_advanced(e, work, status);
	return false;
}

bool work_end_alone(struct tutti_work *work)
{
	struct engine *e = work->engine;
	bool is_over = false;

	if (work->parts || pthread_mutex_trylock(&e->lock) != 0)
		return false;
	engine_set_holder(e);
	if (e->works.alone == work) {
		is_over = end_if_over(e, work);
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
