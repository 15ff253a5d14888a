/* The blocking call of a window, in its caller's thread: the fast way. */
#include "collectives/engine/engine_internal.h"

#include "collectives/control/control.h"
#include "core/clock.h"

/* A blocking call, and its entry in the trace. Reading a clock costs as much as a short call. So a
 * call that does not wait gets its entry at its end, without a time, and every TRACE_TIMED-th short
 * call gets times, so that the others lie between known times. A call that waits gets its entry
 * when the wait begins. */
struct window_call {
	struct engine *e;
	struct window_run *run;
	struct trace_mark mark;
	uint64_t since_ns;
};

static void note_in_trace(struct window_call *c)
{
	if (!c->e->config.trace || c->mark.entry)
		return;
	c->mark = trace_call(c->e->config.trace, &c->run->args, TRACE_BY_WINDOW, 0);
	trace_began(&c->mark);
}

static void note_end(struct window_call *c, tutti_status status)
{
	if (__builtin_expect(status != TUTTI_OK, 0))
		note_in_trace(c);
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

	note_in_trace(c);
	if (e->works.newest || e->loose || engine_has_started(e))
		engine_pass(e, false);
	if (!c->since_ns)
		c->since_ns = now;
	if (now - c->since_ns >= MS_TO_NS(SLOW_MS))
		window_tell(e, c->run, &c->mark, now);
}

static struct task_spec window_spec(const struct call_args *args, int timeout_ms)
{
	return (struct task_spec){.kind = &window_tasks,
				  .args = *args,
				  .memory = &memory_host,
				  .name = collective_name(args->collective),
				  .algorithm = "window",
				  .timeout_ms = timeout_ms};
}

static __attribute__((cold)) void window_run_failed(struct engine *e, const struct window_run *run,
						    int timeout_ms, tutti_status status)
{
	if (!e->failure.stop) {
		struct tutti_work named = {.engine = e,
					   .stage = WORK_RUNS,
					   .holds = WORK_HOLDS_WINDOW_RUN,
					   .as.window_run = *run,
					   .spec = window_spec(&run->args, timeout_ms)};
		engine_window_failed(e, &named, status);
	}
	engine_clean_up(e);
}

/* Behind the calls of the window that are queued. */
static tutti_status queue_call(struct engine *e, const struct call_args *args, int timeout_ms)
{
	struct task_spec spec = window_spec(args, timeout_ms);

	if (e->config.trace)
		spec.trace = trace_call(e->config.trace, args, TRACE_BY_WINDOW, 0);
	return engine_run(e, &spec);
}

tutti_status engine_run_window(struct engine *e, const struct call_args *args, int timeout_ms)
{
	struct window_run run;
	struct window_call call = {.e = e, .run = &run};

	engine_lock(e);
	if (__builtin_expect(e->works.window_head || e->failure.stop, 0)) {
		engine_release_lock(e);
		return queue_call(e, args, timeout_ms);
	}
	window_begin(e->config.window, &run, args);
	if (trace_is_timed(args))
		note_in_trace(&call);
	tutti_status status = window_drive(e->config.window, &run, (uint64_t)timeout_ms * 1000000u,
					   &e->failure.stop, while_waiting, &call);
	note_end(&call, status);
	if (__builtin_expect(status != TUTTI_OK, 0)) {
		window_run_failed(e, &run, timeout_ms, status);
		status = engine_status(e);
	}
	engine_unlock(e);
	return status;
}
