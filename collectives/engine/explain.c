/* Text for the trace and for error messages: what a slow operation waits for. */
#include "collectives/engine/engine_internal.h"

#include "collectives/control/control.h"

#include <stdio.h>
#include <string.h>

#define TELL_NS 20000000u /* between two looks at one wait: the missing ranks may change */

int work_explain(struct engine *e, const struct tutti_work *work, char *text, size_t text_bytes)
{
	if (work->stage == WORK_PREPARES) {
		snprintf(text, text_bytes, "for staging in %s memory", work->spec.memory->name);
		return -1;
	}
	return work->spec.kind->explain(e, work, text, text_bytes);
}

static void tell_trace(struct engine *e, const struct trace_mark *mark, int rank, const char *text)
{
	struct trace_wait wait = {.ticks = ticks_now(trace_clock), .rank = rank};
	uint64_t issued = atomic_load_explicit(&e->config.trace->issued, memory_order_relaxed);

	wait.index = issued - (uint32_t)((uint32_t)issued - mark->index);
	memcpy(wait.text, text, strlen(text) + 1);
	trace_waits(e->config.trace, &wait);
}

static bool is_due(struct engine *e, const struct trace_mark *mark, uint64_t now)
{
	if (!e->config.trace || !mark->entry || now - e->watch.told_ns < TELL_NS)
		return false;
	e->watch.told_ns = now;
	return true;
}

/* Asks which ranks have not come. False: their answers are still to come. An answer of 30 s ago is
 * no answer, so each time begins with another question. */
static bool ask_for_absent(struct engine *e, uint64_t sequence, uint64_t now)
{
	struct engine_watch *w = &e->watch;

	if (!w->absent_ns)
		control_ask(e->config.control, NO_CALL, 0);
	w->absent_ns = w->absent_ns ? w->absent_ns : now;
	if (now - w->absent_ns < MS_TO_NS(ANSWERS_MS) &&
	    control_ask(e->config.control, sequence, 0))
		return false;
	w->absent_ns = 0;
	return true;
}

/* Tells the user of a call that makes a communicator, once it has waited long. rank: that this one
 * waits for, which may itself be waiting for those that have not come. */
static void say_absent(struct engine *e, const struct call_args *args, int rank, uint64_t now)
{
	struct engine_watch *w = &e->watch;
	char absent[128] = "";

	if (w->join != args->sequence + 1) {
		w->join = args->sequence + 1;
		w->wait = (struct long_wait){0};
		w->absent_ns = 0;
	}
	if (!w->absent_ns && !long_wait_is_due(&w->wait, now))
		return;
	if (e->config.control) {
		if (!ask_for_absent(e, args->sequence, now))
			return;
		control_missing(e->config.control, args->sequence, absent, sizeof absent);
	}
	if (!absent[0])
		snprintf(absent, sizeof absent, "rank %d", rank);
	long_wait_say("%s in tutti_%s", absent, collective_name(args->collective));
}

void work_tell(struct engine *e, const struct tutti_work *work, uint64_t now)
{
	const struct trace_mark *mark = &work->spec.trace;
	char text[sizeof((struct trace_wait *)0)->text];

	if (is_due(e, mark, now))
		tell_trace(e, mark, work_explain(e, work, text, sizeof text), text);
}

void join_tell(struct engine *e, const struct tutti_work *work, uint64_t now)
{
	char text[200];

	say_absent(e, &work->spec.args, work_explain(e, work, text, sizeof text), now);
}

void window_tell(struct engine *e, struct window_run *run, const struct trace_mark *mark,
		 uint64_t now)
{
	char ranks[200], text[sizeof((struct trace_wait *)0)->text];

	if (call_is_join(&run->args))
		say_absent(e, &run->args, window_waits_for(e->config.window, run), now);
	if (!is_due(e, mark, now))
		return;
	snprintf(text, sizeof text, "for %s",
		 window_explain(e->config.window, run, ranks, sizeof ranks));
	tell_trace(e, mark, window_waits_for(e->config.window, run), text);
}
