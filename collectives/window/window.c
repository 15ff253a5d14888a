/* One operation of a window, from begin to done: post this rank's line, see everybody's, then go
 * the path that the lines agree on. How data moves is in window_small.c, window_staged.c,
 * window_zero_copy.c and window_read.c, and what ranks tell each other of their blocks in
 * window_pairs.c; how ranks came to share memory in window_join.c.
 *
 * Every rank posts a line in every operation: also in a barrier, also the root of a broadcast, also
 * for 0 elements. It waits for the lines of those whose data it needs, and of those on whom the way
 * depends that the call goes: of all, or, from or to a root, of the root, or of nobody. So a root
 * whose broadcasts are short runs ahead, and one whose broadcast is long and not in reachable
 * memory is done when the last piece is in its slots.
 *
 * How far, and why a line is not overwritten while somebody reads it. A rank has WINDOW_LINES
 * lines, used in turn; line k goes where line k - WINDOW_LINES was. A rank reads the others' lines
 * m only in operation m, and posts its own line m + 1 after that. So before it writes line k a rank
 * has seen that every other has posted line k - WINDOW_LINES + 1, or a later one. That is its room.
 * Where that is not known already it waits until the others have come half the way, so that it
 * looks once in so many calls. What takes more than lines (rows, slots, the callers' memory) begins
 * when every other rank has finished the operation before the last: line k - 1 was seen of all.
 *
 * Nobody waits for ever: of the ranks that wait take one in the earliest operation; all others have
 * posted the line before that, so it has room, and those that have room post what it waits for.
 *
 * A rank that reads line k finds k or an older number there, since the one who writes k +
 * WINDOW_LINES waits for it: comparing for equality is enough. Who looks for room may find a newer
 * one. Numbers wrap, so newer means the sign of the difference; a header of 0 is none, as no
 * fingerprint is 0. */
#include "collectives/window/window_internal.h"

#include "core/clock.h"
#include "core/prefetch.h"
#include "memory/dtype.h"
#include "memory/ops.h"

#include <stdio.h>

enum phase { PHASE_ROOM, PHASE_LINES, PHASE_SMALL, PHASE_STEPS, PHASE_DONE, PHASE_FAILED };

/* advance gives way after so many steps, each of which moves at most a slot or so. */
#define STEPS_AT_ONCE 16u
/* The first looks come one after the other: most waits of ranks with a core each end within a few
 * hundred nanoseconds, and a pause between looks adds a tenth to a small call. */
#define EAGER_LOOKS 200
/* drive looks after its stop word, its deadline and the dead every so many looks. */
#define LOOKS_PER_CHECK   64u
#define STEPS_PER_CHECK   48u
#define WAITS_PER_CHECK   8u
#define DEATH_INTERVAL_NS 5000000u
#define NOTES_INTERVAL_NS 20000000u

static void line_post(struct window *w, const struct window_run *run)
{
	struct line *line = line_of(w, run->number, w->rank);
	atomic_store_explicit(&line->header, line_header(run), memory_order_release);
	doorbell_ring(w);
	/* The others have the next line in their caches. It is taken from them now, while this rank
	 * waits, and not when it posts that line. */
	prefetch_to_write(line_of(w, run->number + 1, w->rank));
}

/* The sizes of its blocks: of all ranks the same, or as the caller's arrays say. */
static void measure(struct window *w, struct window_run *run)
{
	const struct call_args *a = &run->args;
	const size_t *counts = a->counts[SEND_SIDE];
	bool has_data = run->pattern != COLL_BARRIER && a->collective != COLL_MEM_ALLOC;

	run->unit = has_data ? dtype_bytes(a->dtype) : 0;
	run->scalar = a->op >= OPS_FIRST ? op_scalar(a->op) : NULL;
	run->own = run->largest = a->count;
	run->total = a->count * (size_t)w->size;
	if (!counts)
		return;
	run->own = counts[w->rank];
	run->largest = run->total = 0;
	for (int rank = 0; rank < w->size; rank++) {
		run->total += counts[rank];
		if (run->largest < counts[rank])
			run->largest = counts[rank];
	}
}

/* A call too long for a line: says where its buffers are. A rank whose buffers the others cannot
 * reach knows that all will stage, so it stages at once, and its line says that too: one wait less.
 */
static void begin_long(struct window *w, struct window_run *run, struct line *line)
{
	struct line_buffers buffers = {0};
	bool stages = true;

	run->path = NULL;
	if (has_counts(run))
		pairs_publish(w, run);
	staged_begin(w, run);
	if (run->args.collective == COLL_ALL_TO_ALLV) {
		pairs_write(w, run, &buffers);
		stages = buffers.sends == SENDS_MUCH; /* else it may all be in the lines */
	}
	if (zero_copy_publish(w, run, &buffers))
		stages = false;
	if (read_publish(w, run, &buffers))
		stages = false;
	run->is_staged = stages && (run->scalar || zero_copy_lends(run, w->rank));
	run->first_is_staged = stages && staged_first(w, run);
	buffers.is_staged = run->first_is_staged;
	memcpy(line->payload, &buffers, sizeof buffers);
}

/* Of whom run needs the lines: for its data or, where it is long, to know which way it goes. */
enum lines_needed { NEEDS_ALL, NEEDS_ROOT, NEEDS_NONE };

static enum lines_needed lines_needed(const struct window *w, const struct window_run *run)
{
	bool is_root = run->args.root == w->rank, knows = run->is_small || run->is_staged;

	switch (run->pattern) {
	case COLL_BROADCAST:
	case COLL_SCATTER:
		return !is_root ? NEEDS_ROOT : knows ? NEEDS_NONE : NEEDS_ALL;
	case COLL_REDUCE:
		return !is_root && (run->is_small || (knows && staged_by_root(run))) ? NEEDS_NONE
										     : NEEDS_ALL;
	case COLL_GATHER:
		return is_root ? NEEDS_ALL : run->is_small ? NEEDS_NONE : NEEDS_ROOT;
	default:
		return NEEDS_ALL;
	}
}

static void wait_for_all(const struct window *w, struct window_run *run)
{
	run->sees_all = true;
	run->peer = run->first = w->rank == 0;
	run->peers = w->size;
}

static void set_peers(const struct window *w, struct window_run *run)
{
	enum lines_needed needed = lines_needed(w, run);

	wait_for_all(w, run);
	if (needed == NEEDS_ALL)
		return;
	run->sees_all = false;
	run->first = needed == NEEDS_ROOT ? run->args.root : w->size;
	run->peers = needed == NEEDS_ROOT ? run->first + 1 : w->size;
	run->peer = run->first;
}

/* Whether a run that has waited for the root's line alone sees there that it goes a way on which
 * all lines decide. */
static bool root_wants_all(struct window *w, const struct window_run *run)
{
	struct line_buffers buffers;

	if (run->first == run->peers)
		return false;
	buffers = line_buffers_of(w, run, run->args.root);
	return buffers.reads || zero_copy_may_share(w, run, &buffers);
}

/* There is room: says what this rank has to say. */
static void enter(struct window *w, struct window_run *run)
{
	struct line *line = line_of(w, run->number, w->rank);

	if (run->is_small) {
		small_write(w, run);
		run->phase = PHASE_SMALL;
	} else if (run->args.collective == COLL_MEM_ALLOC) {
		memory_begin(w, run);
		run->phase = PHASE_LINES;
	} else {
		begin_long(w, run, line);
		run->phase = PHASE_LINES;
	}
	line_post(w, run);
	if (run->is_small && run->payload > LINE_PAYLOAD && w->policy.spins)
		small_hand_over(w, run);
	if (run->is_small)
		small_prepare(w, run);
	set_peers(w, run);
}

void window_begin(struct window *w, struct window_run *run, const struct call_args *args)
{
	run->args = *args;
	run->step = run->steps = 0;
	run->pieces = 0;
	run->cut = 0;
	run->is_staged = run->is_shared = false;
	run->memory = NULL;
	run->outcome = TUTTI_OK;
	/* Nobody writes to its line while all goes well, so looking at it is free. */
	if (__builtin_expect(atomic_load_explicit(&w->head->failures, memory_order_acquire), 0))
		failure_came_before(w);
	if (w->failed != TUTTI_OK) {
		run->phase = PHASE_FAILED;
		return;
	}
	run->number = ++w->number;
	run->pattern = collective_pattern(args->collective);
	measure(w, run);
	count_bytes(&w->total_bytes,
		    (run->pattern == COLL_ALL_TO_ALL ? run->total : run->own) * run->unit);
	run->is_small = args->collective != COLL_MEM_ALLOC && small_fits(w, run);
	run->room = run->number - (run->is_small ? WINDOW_LINES - 1 : 1);
	if (__builtin_expect((int32_t)(run->room - w->others) <= 0, 1)) {
		enter(w, run);
		return;
	}
	run->phase = PHASE_ROOM;
	run->peer = 0;
	if (run->is_small)
		run->room = run->number - WINDOW_LINES / 2;
}

static bool has_posted(const struct window *w, uint32_t number, int rank)
{
	uint64_t got =
		atomic_load_explicit(&line_of(w, number, rank)->header, memory_order_acquire);
	return got != 0 && (int32_t)((uint32_t)got - number) >= 0;
}

bool window_lacks_room(const struct window *w, const struct window_run *run, int rank)
{
	return run->phase == PHASE_ROOM && rank != w->rank && !has_posted(w, run->room, rank);
}

/* OK when there is room. What this rank finds there without having waited for it before must agree,
 * too. */
static tutti_status see_room(struct window *w, struct window_run *run)
{
	uint64_t mine =
		atomic_load_explicit(&line_of(w, run->room, w->rank)->header, memory_order_relaxed);

	for (; run->peer < w->size; run->peer++) {
		struct line *line = line_of(w, run->room, run->peer);
		if (window_lacks_room(w, run, run->peer))
			return TUTTI_IN_PROGRESS;
		uint64_t got = atomic_load_explicit(&line->header, memory_order_acquire);
		if ((uint32_t)got == run->room && got != mine)
			return failure_mismatch(w, run, run->peer);
	}
	w->others = run->room;
	return TUTTI_OK;
}

/* OK when the lines that run waits for are there and agree with ours. Remembers how far it came. A
 * line that is not there is looked at so many times in a row. */
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

/* While one rank is late, another that has come may already disagree. */
static tutti_status see_mismatch(struct window *w, const struct window_run *run)
{
	uint64_t want = line_header(run);

	for (int peer = 0; peer < w->size; peer++) {
		struct line *line = line_of(w, run->number, peer);
		uint64_t got = atomic_load_explicit(&line->header, memory_order_acquire);
		if ((uint32_t)got == run->number && got != want)
			return failure_mismatch(w, run, peer);
	}
	return TUTTI_IN_PROGRESS;
}

/* The lines are all there, and every rank decides alike from them. */
static tutti_status choose_path(struct window *w, struct window_run *run)
{
	run->phase = PHASE_STEPS;
	if (run->path)
		return TUTTI_OK;
	if (run->args.collective == COLL_ALL_TO_ALLV) {
		TRY(pairs_agree(w, run));
		if (pairs_finish(w, run)) {
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

static bool concerns(const struct window *w, const struct window_run *run, struct need need,
		     int rank)
{
	return rank != w->rank && (!need.of || need.of(w, run, rank));
}

static bool need_met(struct window *w, struct window_run *run, struct need need)
{
	for (; run->peer < w->size; run->peer++) {
		if (concerns(w, run, need, run->peer) &&
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

/* As far as it goes, but at most limit steps, of which saying what it has to say is one; looks:
 * see_lines. */
static tutti_status move(struct window *w, struct window_run *run, uint32_t limit, int looks)
{
	if (__builtin_expect(run->phase == PHASE_ROOM, 0)) {
		TRY(see_room(w, run));
		enter(w, run);
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
			wait_for_all(w, run);
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

/* A run that fails leaves the ranks apart, so the window fails with it. A verdict that all ranks
 * came to together (outcome) does not. */
static tutti_status ended(struct window *w, struct window_run *run, tutti_status status)
{
	if (status != TUTTI_OK && status != TUTTI_IN_PROGRESS && run->phase != PHASE_DONE) {
		run->phase = PHASE_FAILED;
		failure_stick(w, status);
	}
	return status;
}

/* What can end a run that does not move, apart from its deadline. */
static tutti_status see_trouble(struct window *w, struct window_run *run, uint64_t now_ns)
{
	char call[192];

	if (window_at_lines(run)) {
		tutti_status status = see_mismatch(w, run);
		if (status != TUTTI_IN_PROGRESS)
			return status;
	}
	if (atomic_load_explicit(&w->head->failures, memory_order_acquire))
		TRY(failure_heard(w, run));
	if (now_ns - w->compared_ns >= NOTES_INTERVAL_NS) {
		w->compared_ns = now_ns;
		TRY(notes_compare(w));
	}
	if (now_ns - w->checked_ns < DEATH_INTERVAL_NS)
		return TUTTI_IN_PROGRESS;
	w->checked_ns = now_ns;
	TRY(failure_deaths(w, run));
	TRY(stopped_look(w, run, failure_own_wait(w, run, call, sizeof call), now_ns));
	return TUTTI_IN_PROGRESS;
}

static uint64_t coarse_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

tutti_status window_advance(struct window *w, struct window_run *run, bool *moved)
{
	int peer = run->peer;
	uint32_t phase = run->phase, step = run->step;
	tutti_status status = move(w, run, STEPS_AT_ONCE, 1);

	*moved = run->peer != peer || run->phase != phase || run->step != step;
	if (status == TUTTI_IN_PROGRESS && !*moved)
		status = see_trouble(w, run, coarse_now_ns());
	return ended(w, run, status);
}

tutti_status window_advance_once(struct window *w, struct window_run *run)
{
	return ended(w, run, move(w, run, 1, 1));
}

bool window_at_lines(const struct window_run *run)
{
	return run->phase == PHASE_LINES || run->phase == PHASE_SMALL;
}

const char *window_progress_text(const struct window_run *run, char *text, size_t text_bytes)
{
	if (run->phase == PHASE_STEPS && run->path)
		snprintf(text, text_bytes, "%s, step %u of %u", run->path->name, run->step + 1,
			 run->steps);
	else
		snprintf(text, text_bytes, "%s",
			 run->phase == PHASE_ROOM ? "before its line: the others lag behind"
			 : window_at_lines(run)   ? "its line is posted"
						  : "over");
	return text;
}

bool window_is_over(const struct window_run *run)
{
	return run->phase == PHASE_DONE || run->phase == PHASE_FAILED;
}

struct need window_need(const struct window *w, const struct window_run *run)
{
	if (run->phase != PHASE_STEPS || run->step >= run->steps)
		return (struct need){0};
	return run->path->need(w, run);
}

bool window_lacks(struct window *w, const struct window_run *run, struct need need, int rank)
{
	if (rank < run->peer || window_is_over(run))
		return false;
	if (run->phase == PHASE_ROOM)
		return window_lacks_room(w, run, rank);
	if (window_at_lines(run)) {
		struct line *line = line_of(w, run->number, rank);
		return rank < run->peers && rank != w->rank &&
		       atomic_load_explicit(&line->header, memory_order_acquire) !=
			       line_header(run);
	}
	return need.value && concerns(w, run, need, rank) &&
	       !word_reached(w, need.word, rank, need.value);
}

/* After so many calls from a root it may have no room. */
bool window_trails(struct window *w, const struct window_run *run, struct need need, int rank)
{
	if (run->phase == PHASE_SMALL && run->number - w->met >= WINDOW_LINES &&
	    !has_posted(w, run->number, rank))
		return true;
	return window_lacks(w, run, need, rank);
}

int window_waits_for(struct window *w, const struct window_run *run)
{
	struct need need = window_need(w, run);

	for (int rank = run->peer; rank < w->size; rank++) {
		if (window_lacks(w, run, need, rank))
			return rank;
	}
	return -1;
}

bool window_is_ready(struct window *w, const struct window_run *run)
{
	if (!window_at_lines(run)) {
		if (window_waits_for(w, run) < 0)
			return true;
	} else if (run->peer == run->peers) {
		return true;
	} else {
		/* The first one missing; a line that disagrees counts. */
		struct line *line = line_of(w, run->number, run->peer);
		uint64_t header = atomic_load_explicit(&line->header, memory_order_acquire);
		if ((uint32_t)header == run->number)
			return true;
	}
	return atomic_load_explicit(&w->head->failures, memory_order_acquire) != 0;
}

/* One blocking wait's bounds, and how long it has lasted. */
struct wait_limit {
	uint64_t timeout_ns, start_ns;
	const _Atomic int *stop;
	void (*background)(void *arg);
	void *arg;
};

/* Now and then while waiting. The clock is first read at the first of these calls, so a deadline
 * counts from at most LOOKS_PER_CHECK looks after the start of the wait. */
static tutti_status check(struct window *w, struct window_run *run, struct wait_limit *p)
{
	uint64_t now = clock_now_ns();
	tutti_status status;

	if (!p->start_ns)
		p->start_ns = now;
	if (p->stop && atomic_load_explicit(p->stop, memory_order_acquire))
		return fail(TUTTI_ERR_ABORTED, "The call was aborted on this rank, %d.", w->rank);
	status = see_trouble(w, run, now);
	if (status != TUTTI_IN_PROGRESS)
		return status;
	if (now - p->start_ns >= p->timeout_ns)
		return failure_timeout(w, run, p->timeout_ns);
	if (p->background)
		p->background(p->arg);
	return TUTTI_IN_PROGRESS;
}

/* Waits until run may get on (IN_PROGRESS), or must not wait any longer. */
static tutti_status wait_for_peers(struct window *w, struct window_run *run, struct wait_limit *p)
{
	struct wait wait;

	wait_begin(&wait, w->policy);
	if (w->spread.is_on && ++w->spread.waits % 64 == 0)
		spread_look(w);
	for (uint32_t looks = 1; !window_is_ready(w, run); looks++) {
		bool is_tired =
			!(w->policy.apart && !same_cpu_trails(w, run) ? wait_again_apart(&wait)
								      : wait_again(&wait));
		if (is_tired || looks % LOOKS_PER_CHECK == 0) {
			tutti_status status = check(w, run, p);
			if (status != TUTTI_IN_PROGRESS)
				return status;
		}
		if (is_tired)
			doorbell_sleep(w, run);
	}
	return TUTTI_IN_PROGRESS;
}

tutti_status window_drive(struct window *w, struct window_run *run, uint64_t timeout_ns,
			  const _Atomic int *stop, void (*background)(void *arg), void *arg)
{
	struct wait_limit wait_limit = {timeout_ns, 0, stop, background, arg};
	int looks = w->policy.spins ? EAGER_LOOKS : 1;
	tutti_status status;

	/* A long run is many short waits: its deadline is checked between them, too. */
	if (run->pieces > 1)
		wait_limit.start_ns = clock_now_ns();
	for (uint32_t waits = 1;; waits++) {
		status = move(w, run, STEPS_PER_CHECK, looks);
		if (status == TUTTI_IN_PROGRESS && waits % WAITS_PER_CHECK == 0)
			status = check(w, run, &wait_limit);
		if (status == TUTTI_IN_PROGRESS)
			status = wait_for_peers(w, run, &wait_limit);
		if (status != TUTTI_IN_PROGRESS)
			return ended(w, run, status);
	}
}

void window_stats(const struct window *w, uint64_t *window_bytes, uint64_t *staged_bytes)
{
	*window_bytes = atomic_load_explicit(&w->total_bytes, memory_order_relaxed);
	*staged_bytes = atomic_load_explicit(&w->staged_bytes, memory_order_relaxed);
}
