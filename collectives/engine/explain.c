/* Text for the trace and for error messages: what a slow operation waits for. */
#include "collectives/engine/engine_internal.h"

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

void work_tell(struct engine *e, const struct tutti_work *work, uint64_t now)
{
	const struct trace_mark *mark = &work->spec.trace;
	char text[sizeof((struct trace_wait *)0)->text];

	if (is_due(e, mark, now))
		tell_trace(e, mark, work_explain(e, work, text, sizeof text), text);
}

void window_tell(struct engine *e, struct window_run *run, const struct trace_mark *mark,
		 uint64_t now)
{
	char ranks[200], text[sizeof((struct trace_wait *)0)->text];

	if (!is_due(e, mark, now))
		return;
	snprintf(text, sizeof text, "for %s",
		 window_explain(e->config.window, run, ranks, sizeof ranks));
	tell_trace(e, mark, window_waits_for(e->config.window, run), text);
}
