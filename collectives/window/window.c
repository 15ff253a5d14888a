/* A run, from its line to its end: see the lines of the other ranks, then go the path that all
 * lines decide. entry.c has what comes before the post; the paths are small.c, counts.c, staged.c,
 * zero_copy.c, reading.c and window_alloc.c. */
#include "collectives/window/window_internal.h"

#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"
#include "collectives/window/staged.h"
#include "core/clock.h"

/* window_advance returns after so many steps; each moves a slot or so at the most. */
#define STEPS_AT_ONCE 16u
/* The first looks come one after the other: most waits of ranks with a core each end within a few
 * hundred nanoseconds, and a pause between looks adds a tenth to a small call. */
#define EAGER_LOOKS 200
/* window_drive checks its stop word, its deadline and the other ranks every so many looks. */
#define LOOKS_PER_CHECK 64u
#define STEPS_PER_CHECK 48u
#define WAITS_PER_CHECK 8u

/* OK when the lines that run waits for are there and agree with ours. run->peer remembers how far
 * that is. A line that is missing is looked at so many times in a row. */
static tutti_status see_lines(struct window *w, struct window_run *run, int looks)
{
	uint64_t want = line_header(run);

	for (; run->peer < run->peers; run->peer++) {
		struct line *line = line_of(w, run->number, run->peer);
		uint64_t got = atomic_load_explicit(&line->header, memory_order_acquire);
		for (int i = 1; got != want && i < looks; i++)
			got = atomic_load_explicit(&line->header, memory_order_acquire);
		if (__builtin_expect(got == want, 1))
			continue;
		if ((uint32_t)got == run->number)
			return failure_mismatch(w, run, run->peer);
		return TUTTI_IN_PROGRESS;
	}
	return TUTTI_OK;
}

/* Whether a run that has waited for the root's line alone sees there that the lines of all decide.
 */
static bool root_wants_all(struct window *w, const struct window_run *run)
{
	struct line_buffers buffers;

	if (run->first == run->peers)
		return false;
	buffers = line_buffers_of(w, run, run->args.root);
	return buffers.reads || reach_may_share(w, run, &buffers);
}

/* All lines are there, and every rank decides alike from them. */
static tutti_status choose_path(struct window *w, struct window_run *run)
{
	run->phase = PHASE_STEPS;
	if (run->path)
		return TUTTI_OK;
	if (run->args.collective == COLL_ALL_TO_ALLV) {
		TRY(counts_agree(w, run));
		if (counts_finish(w, run)) {
			run->steps = 0;
			run->pieces = 0;
			return TUTTI_OK;
		}
	}
	if (!run->is_staged && (zero_copy_begin(w, run) || (run->sees_all && read_begin(w, run))))
		return TUTTI_OK;
	staged_agree(w, run);
	return TUTTI_OK;
}

static bool need_met(struct window *w, struct window_run *run, struct need need)
{
	for (; run->peer < w->size; run->peer++) {
		if (need_concerns(w, run, need, run->peer) &&
		    !word_reached(w, need.word, run->peer, need.value))
			return false;
	}
	return true;
}

static tutti_status do_steps(struct window *w, struct window_run *run, uint32_t limit)
{
	while (run->step < run->steps) {
		struct need need = run->path->need(w, run);
		if (need.value && !need_met(w, run, need))
			return TUTTI_IN_PROGRESS;
		if (!limit--)
			return TUTTI_IN_PROGRESS;
		run->peer = 0;
		TRY(run->path->step(w, run));
		run->step++;
	}
	w->generation += run->pieces;
	return TUTTI_OK;
}

/* Moves run as far as it goes, but at most limit steps; its post is one of them. looks: see_lines.
 */
static tutti_status window_move(struct window *w, struct window_run *run, uint32_t limit, int looks)
{
	if (__builtin_expect(run->phase == PHASE_ROOM, 0)) {
		TRY(entry_see_room(w, run));
		entry_post(w, run);
		if (--limit == 0)
			return TUTTI_IN_PROGRESS;
	}
	switch ((enum phase)run->phase) {
	case PHASE_SMALL:
		TRY(see_lines(w, run, looks));
		if (run->sees_all)
			w->others = w->met = run->number;
		small_finish(w, run);
		break;
	case PHASE_LINES:
		TRY(see_lines(w, run, looks));
		if (!run->sees_all && root_wants_all(w, run)) {
			entry_wait_for_all(w, run);
			TRY(see_lines(w, run, looks));
		}
		if (run->sees_all)
			w->others = w->met = run->number;
		run->peer = 0;
		TRY(choose_path(w, run));
		/* fall through */
	case PHASE_STEPS:
		TRY(do_steps(w, run, limit));
		break;
	case PHASE_DONE:
		return run->outcome;
	case PHASE_ROOM:
	case PHASE_FAILED:
		return fail(w->failed, "%s", w->error);
	}
	run->phase = PHASE_DONE;
	return run->outcome;
}

/* When a run fails the ranks are no longer in step, so the window fails with it. An error that all
 * ranks have agreed on (run->outcome) leaves them in step. */
static tutti_status window_ended(struct window *w, struct window_run *run, tutti_status status)
{
	if (status != TUTTI_OK && status != TUTTI_IN_PROGRESS && run->phase != PHASE_DONE) {
		if (run->phase != PHASE_FAILED)
			run->failed_in = run->phase;
		run->phase = PHASE_FAILED;
		failure_keep(w, status);
	}
	return status;
}

static int eager_looks(const struct window *w)
{
	return w->policy.shares_cores ? 1 : EAGER_LOOKS;
}

static tutti_status window_advance_run(struct window *w, struct window_run *run, int looks,
				       bool *moved)
{
	int peer = run->peer;
	uint32_t phase = run->phase, step = run->step;
	tutti_status status = window_move(w, run, STEPS_AT_ONCE, looks);

	*moved = run->peer != peer || run->phase != phase || run->step != step;
	if (status == TUTTI_IN_PROGRESS && !*moved) {
		tutti_status trouble = failure_check(w, run, clock_read_ns(CLOCK_MONOTONIC_COARSE));
		status = trouble == TUTTI_OK ? status : trouble;
	}
	return window_ended(w, run, status);
}

tutti_status window_advance(struct window *w, struct window_run *run, bool *moved)
{
	return window_advance_run(w, run, 1, moved);
}

tutti_status window_advance_eagerly(struct window *w, struct window_run *run, bool *moved)
{
	return window_advance_run(w, run, eager_looks(w), moved);
}

tutti_status window_advance_once(struct window *w, struct window_run *run)
{
	return window_ended(w, run, window_move(w, run, 1, 1));
}

/* One blocking wait's bounds, and how long it has lasted. */
struct wait_limit {
	uint64_t timeout_ns, start_ns;
	const _Atomic int *stop;
	void (*background)(void *arg);
	void *arg;
};

/* Called now and then during a wait. The first of these calls reads the clock for the first time,
 * so the deadline counts from at most LOOKS_PER_CHECK looks after the start of the wait. */
static tutti_status window_check(struct window *w, struct window_run *run, struct wait_limit *p)
{
	uint64_t now = clock_now_ns();

	if (!p->start_ns)
		p->start_ns = now;
	if (p->stop && atomic_load_explicit(p->stop, memory_order_acquire))
		return fail(TUTTI_ERR_ABORTED, "Rank %d ended this call by tutti_comm_abort.",
			    w->rank);
	TRY(failure_check(w, run, now));
	if (now - p->start_ns >= p->timeout_ns)
		return failure_timeout(w, run, p->timeout_ns);
	if (p->background)
		p->background(p->arg);
	return TUTTI_IN_PROGRESS;
}

static void window_sleep_for(struct window *w, const struct window_run *run)
{
	struct window_awaited awaited;

	if (window_awaits(w, run, &awaited))
		window_sleep(&awaited);
}

/* Waits until run may get on (IN_PROGRESS), or must not wait any longer. */
static tutti_status wait_for_peers(struct window *w, struct window_run *run, struct wait_limit *p)
{
	struct wait wait;
	bool is_near = false;

	wait_begin(&wait, w->policy);
	spread_wait(&w->spread);
	for (uint32_t looks = 1; !progress_is_ready(w, run); looks++) {
		if (w->policy.shares_cores || looks % LOOKS_PER_CHECK == 1)
			is_near = same_cpu_trails(w, run);
		bool is_tired = !wait_again_for(&wait, is_near);
		if (is_tired || looks % LOOKS_PER_CHECK == 0) {
			tutti_status status = window_check(w, run, p);
			if (status != TUTTI_IN_PROGRESS)
				return status;
		}
		if (is_tired)
			window_sleep_for(w, run);
	}
	return TUTTI_IN_PROGRESS;
}

tutti_status window_drive(struct window *w, struct window_run *run, uint64_t timeout_ns,
			  const _Atomic int *stop, void (*background)(void *arg), void *arg)
{
	struct wait_limit wait_limit = {timeout_ns, 0, stop, background, arg};
	int looks = eager_looks(w);
	tutti_status status;

	/* A long run is many short waits: its deadline is checked between them, too. */
	if (run->pieces > 1)
		wait_limit.start_ns = clock_now_ns();
	for (uint32_t waits = 1;; waits++) {
		status = window_move(w, run, STEPS_PER_CHECK, looks);
		if (status == TUTTI_IN_PROGRESS && waits % WAITS_PER_CHECK == 0)
			status = window_check(w, run, &wait_limit);
		if (status == TUTTI_IN_PROGRESS)
			status = wait_for_peers(w, run, &wait_limit);
		if (status != TUTTI_IN_PROGRESS)
			return window_ended(w, run, status);
	}
}

struct board *window_board(struct window *w)
{
	return &w->board;
}

void window_stats(const struct window *w, uint64_t *window_bytes, uint64_t *staged_bytes)
{
	*window_bytes = atomic_load_explicit(&w->traffic.total_bytes, memory_order_relaxed);
	*staged_bytes = atomic_load_explicit(&w->traffic.staged_bytes, memory_order_relaxed);
}
