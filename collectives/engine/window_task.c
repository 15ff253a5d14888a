/* Calls of the window as a kind of task: those that are queued. They are a queue that any thread
 * which makes progress moves. */
#include "collectives/engine/engine_internal.h"

#include <assert.h>
#include <stdio.h>

/* Posting a line copies this much at the most. */
#define POST_IN_SUBMIT 4096u

void window_task_post(struct engine *e, struct tutti_work *work, const struct call_args *args)
{
	assert(work->bounce.preparing == 0); /* the run takes the place of its io */
	work->holds = WORK_HOLDS_WINDOW_RUN;
	window_begin(e->config.window, work_window_run(work), args);
}

static void window_task_start(struct engine *e, struct tutti_work *work)
{
	struct call_args args = work->spec.args;
	if (work->bounce.copies) {
		args.send = work->bounce.copies->send;
		args.recv = work->bounce.copies->recv;
	}
	window_task_post(e, work, &args);
}

static tutti_status window_task_begin(struct engine *e, struct tutti_work *work)
{
	assert(e->config.window);
	TRY(bounce_prepare(e, work, (struct bounce_needs){.copies = true}));
	work->next_window = NULL;
	*e->works.window_tail = work;
	e->works.window_tail = &work->next_window;
	/* The sooner its line is posted the sooner the other ranks get on. */
	if (!work_has_begun(work) && e->works.window_head == work && work->stage == WORK_RUNS &&
	    work->spec.send_bytes + work->spec.recv_bytes <= POST_IN_SUBMIT)
		window_task_start(e, work);
	return TUTTI_OK;
}

bool window_task_advanced(struct engine *e, struct tutti_work *work, tutti_status status)
{
	if (status == TUTTI_IN_PROGRESS) {
		trace_began_late(&work->spec.trace);
		return false;
	}
	if (status != TUTTI_OK && status != work_window_run(work)->outcome) {
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

/* One operation of the window at a time: the head of the queue. */
bool window_task_advance(struct engine *e, bool is_eager)
{
	struct tutti_work *work = e->works.window_head;
	bool moved = false;

	if (!work || work->stage != WORK_RUNS)
		return false;
	if (!work_has_begun(work))
		window_task_start(e, work);
	tutti_status status = (is_eager ? window_advance_eagerly : window_advance)(
		e->config.window, work_window_run(work), &moved);
	return window_task_advanced(e, work, status) || moved;
}

bool window_task_awaits(struct engine *e, struct window_awaited *awaited)
{
	struct tutti_work *work = e->works.window_head;

	return !e->failure.stop && work && work_has_begun(work) && !e->works.by_message &&
	       !e->loose && window_awaits(e->config.window, work_window_run(work), awaited);
}

static int window_task_explain(struct engine *e, const struct tutti_work *work, char *text,
			       size_t text_bytes)
{
	char ranks[200], progress[200];

	if (!work_has_begun(work)) {
		snprintf(text, text_bytes, "for earlier calls");
		return -1;
	}
	const struct window_run *run = work_window_run(work);
	snprintf(text, text_bytes, "for %s; %s",
		 window_explain(e->config.window, run, ranks, sizeof ranks),
		 window_progress_text(run, progress, sizeof progress));
	return window_waits_for(e->config.window, run);
}

/* The ranks have agreed on it, and go on. */
static void window_task_why(const struct tutti_work *work, char *text, size_t text_bytes)
{
	window_outcome_text(work->engine->config.window, work_window_run(work), text, text_bytes);
}

const struct task_kind window_tasks = {.begin = window_task_begin,
				       .explain = window_task_explain,
				       .words = collective_words,
				       .why = window_task_why};

void window_task_fill(struct task_spec *spec, const struct engine *e, const struct call_args *args)
{
	spec->kind = &window_tasks;
	spec->memory = &memory_host;
	spec->is_ordered = false;
	spec->args = *args;
	spec->name = collective_name(args->collective);
	spec->algorithm = "window";
	spec->send_bytes = spec->recv_bytes = 0;
	if (!trace_is_short(args)) {
		spec->send_bytes = layout_extent(args, e->config.rank, e->config.size, SEND_SIDE);
		spec->recv_bytes = layout_extent(args, e->config.rank, e->config.size, RECV_SIDE);
	}
	spec->copies_send = false;
	spec->p2p.side = P2P_NONE;
	spec->done = NULL;
}

/* Every holder of the engine's lock needs this, so nothing here takes the lock. */
void window_task_enlist(struct engine *e, struct tutti_work *work, const struct call_args *args)
{
	window_task_fill(&work->spec, e, args);
	work_begin_life(e, work, true);
	window_tasks.begin(e, work);
}

void engine_enlist(struct engine *e)
{
	struct tutti_work *work = e->works.alone;

	window_task_enlist(e, work, &work_window_run(work)->args);
	/* Partner: helper_has_works, which looks at it before async_works. */
	e->works.alone = NULL;
}
