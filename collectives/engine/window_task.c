/* Asynchronous calls of the window, and blocking ones behind them: a queue that any thread which
 * makes progress moves. */
#include "collectives/engine/engine_internal.h"

#include <assert.h>
#include <stdio.h>

/* Posting a line copies this much at the most. */
#define POST_IN_SUBMIT 4096u

void window_task_post(struct engine *e, struct tutti_work *work, const struct call_args *args)
{
	window_begin(e->config.window, &work->window, args);
	work->has_begun = true;
}

static void start(struct engine *e, struct tutti_work *work)
{
	struct call_args args = work->spec.args;
	if (work->bounce.send) {
		args.send = work->bounce.send;
		args.recv = work->bounce.recv;
	}
	window_task_post(e, work, &args);
}

static tutti_status begin(struct engine *e, struct tutti_work *work)
{
	assert(e->config.window);
	TRY(bounce_prepare(e, work, (struct bounce_needs){.copies = true}));
	work->next_window = NULL;
	*e->works.window_tail = work;
	e->works.window_tail = &work->next_window;
	/* The sooner its line is posted the sooner the other ranks get on. */
	if (!work->has_begun && e->works.window_head == work && work->stage == WORK_RUNS &&
	    work->spec.send_bytes + work->spec.recv_bytes <= POST_IN_SUBMIT)
		start(e, work);
	return TUTTI_OK;
}

/* One operation of the window at a time: the head of the queue. */
bool window_task_advance(struct engine *e, bool is_eager)
{
	struct tutti_work *work = e->works.window_head;
	bool moved = false;

	if (!work || work->stage != WORK_RUNS)
		return false;
	if (!work->has_begun)
		start(e, work);
	tutti_status status = (is_eager ? window_advance_eagerly
					: window_advance)(e->config.window, &work->window, &moved);
	return window_task_advanced(e, work, status) || moved;
}

bool window_task_advanced(struct engine *e, struct tutti_work *work, tutti_status status)
{
	if (status == TUTTI_IN_PROGRESS) {
		trace_began_late(&work->spec.trace);
		return false;
	}
	if (status != TUTTI_OK && status != work->window.outcome) {
		engine_window_failed(e, work, status);
		return true;
	}
	if (!(e->works.window_head = work->next_window)) {
		e->works.window_tail = &e->works.window_head;
		engine_disarm(e); /* the next submit wakes the helper */
	}
	if (status == TUTTI_OK)
		engine_work_ended(e, work);
	else
		engine_work_failed(e, work, status);
	return true;
}

bool window_task_awaits(struct engine *e, struct window_awaited *awaited)
{
	struct tutti_work *work = e->works.window_head;

	return !e->failure.stop && work && work->has_begun && !e->works.by_message && !e->loose &&
	       window_awaits(e->config.window, &work->window, awaited);
}

static int explain(struct engine *e, const struct tutti_work *work, char *text, size_t text_bytes)
{
	char ranks[200], progress[200];

	if (!work->has_begun) {
		snprintf(text, text_bytes, "for earlier calls");
		return -1;
	}
	snprintf(text, text_bytes, "for %s; %s",
		 window_explain(e->config.window, &work->window, ranks, sizeof ranks),
		 window_progress_text(&work->window, progress, sizeof progress));
	return window_waits_for(e->config.window, &work->window);
}

/* The ranks have agreed on it, and go on. */
static void why(const struct tutti_work *work, char *text, size_t text_bytes)
{
	window_outcome_text(work->engine->config.window, &work->window, text, text_bytes);
}

const struct task_kind window_tasks = {
	.begin = begin, .explain = explain, .words = collective_words, .why = why};
