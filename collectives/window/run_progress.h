/* How far a run is, and for which ranks it waits. */
#ifndef COLLECTIVES_WINDOW_RUN_PROGRESS_H
#define COLLECTIVES_WINDOW_RUN_PROGRESS_H

#include "collectives/window/window_internal.h"

/* ROOM: it has not posted its line; see window.c. LINES and SMALL: it waits for other ranks' lines,
 * of which SMALL are the data. STEPS: it goes its path. */
enum phase { PHASE_ROOM, PHASE_LINES, PHASE_SMALL, PHASE_STEPS, PHASE_DONE, PHASE_FAILED };

/* The condition of a run's next step: a word of the other ranks, or of those that matter. */
struct need {
	enum word word;
	uint64_t value; /* 0 when it waits for nothing */
	/* Whether rank matters; NULL: every other rank does. */
	bool (*of)(const struct window *window, const struct window_run *run, int rank);
};

/* How a run moves its data once its lines are there. */
struct window_path {
	const char *name;
	struct need (*need)(const struct window *window, const struct window_run *run);
	tutti_status (*step)(struct window *window, struct window_run *run);
};

static inline bool need_concerns(const struct window *w, const struct window_run *run,
				 struct need need, int rank)
{
	return rank != w->rank && (!need.of || need.of(w, run, rank));
}

static inline bool progress_is_over(const struct window_run *run)
{
	return run->phase >= PHASE_DONE;
}

/* Whether run waits for other ranks' lines. */
static inline bool progress_at_lines(const struct window_run *run)
{
	return run->phase == PHASE_LINES || run->phase == PHASE_SMALL;
}

/* Whether run, which has not posted its line, must not do so before rank has come further. */
bool progress_lacks_room(const struct window *window, const struct window_run *run, int rank);
/* Whether run may get on, or a rank has failed. A wait looks here again and again. */
static inline bool progress_is_ready(const struct window *w, const struct window_run *run)
{
	bool lacks;

	if (progress_at_lines(run)) /* the first line that was missing; one that disagrees counts */
		lacks = run->peer < run->peers &&
			(uint32_t)line_header_of(w, run->number, run->peer) != run->number;
	else
		lacks = window_waits_for(w, run) >= 0;
	return !lacks || board_has_failed(&w->board);
}

/* Which ranks share this one's CPU, and moving to one with fewer. Once. spreads: the thread that
 * waits may move to a CPU with fewer ranks. */
void same_cpu_begin(struct window *window, bool spreads);
/* Whether a rank on this CPU is in the way of run, so that this one should give it the CPU. */
bool same_cpu_trails(struct window *window, const struct window_run *run);

#endif
