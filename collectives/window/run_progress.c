/* How far a run is, and for which ranks it waits. These functions look; none moves a run. */
#include "collectives/window/run_progress.h"

#include "core/rank_list.h"

#include <stdio.h>

static bool has_posted(const struct window *w, uint32_t number, int rank)
{
	uint64_t got = line_header_of(w, number, rank);
	return got != 0 && (int32_t)((uint32_t)got - number) >= 0;
}

bool progress_lacks_room(const struct window *w, const struct window_run *run, int rank)
{
	return run->phase == PHASE_ROOM && rank != w->rank && !has_posted(w, run->room, rank);
}

struct need progress_need(const struct window *w, const struct window_run *run)
{
	if (run->phase != PHASE_STEPS || run->step >= run->steps)
		return (struct need){0};
	return run->path->need(w, run);
}

bool progress_lacks(const struct window *w, const struct window_run *run, struct need need,
		    int rank)
{
	if (rank < run->peer || rank == w->rank || progress_is_over(run))
		return false;
	if (run->phase == PHASE_ROOM)
		return progress_lacks_room(w, run, rank);
	if (progress_at_lines(run))
		return rank < run->peers &&
		       (uint32_t)line_header_of(w, run->number, rank) != run->number;
	return need_concerns(w, run, need, rank) && !word_reached(w, need.word, rank, need.value);
}

/* After so many calls from a root it may have no room. */
bool progress_trails(const struct window *w, const struct window_run *run, struct need need,
		     int rank)
{
	if (run->phase == PHASE_SMALL && run->number - w->met >= WINDOW_LINES &&
	    !has_posted(w, run->number, rank))
		return true;
	return progress_lacks(w, run, need, rank);
}

int window_waits_for(const struct window *w, const struct window_run *run)
{
	struct need need = progress_need(w, run);

	for (int rank = run->peer; rank < w->size; rank++)
		if (progress_lacks(w, run, need, rank))
			return rank;
	return -1;
}

/* A run that has failed, as it was before. */
static struct window_run before_failure(const struct window_run *run)
{
	struct window_run before = *run;

	if (before.phase == PHASE_FAILED)
		before.phase = before.failed_in;
	return before;
}

const char *window_explain(const struct window *w, const struct window_run *run, char *text,
			   size_t text_bytes)
{
	struct window_run before = before_failure(run);
	struct need need = progress_need(w, &before);
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	for (int rank = 0; rank < w->size; rank++)
		if (progress_lacks(w, &before, need, rank))
			rank_list_add(&list, rank);
	rank_list_end(&list);
	if (list.count == 0)
		snprintf(text, text_bytes, "no other rank");
	return text;
}

const char *window_progress_text(const struct window_run *run, char *text, size_t text_bytes)
{
	struct window_run before = before_failure(run);

	run = &before;
	if (run->phase == PHASE_STEPS && run->path)
		snprintf(text, text_bytes, "%s, step %u of %u", run->path->name, run->step + 1,
			 run->steps);
	else
		snprintf(text, text_bytes, "%s",
			 run->phase == PHASE_ROOM     ? "before its line: other ranks lag behind"
			 : run->phase == PHASE_FAILED ? "begun after the failure"
			 : progress_at_lines(run)     ? "its line is posted"
						      : "all its steps are done");
	return text;
}
