/* A run, from its line to its end: see the lines of the other ranks, then go the path that all
 * lines decide. The paths are small.c, counts.c, staged.c, zero_copy.c, reading.c and
 * allocations.c. */
#include "collectives/window/window.h"

#include "collectives/window/allocations.h"
#include "collectives/window/blocks.h"
#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"
#include "collectives/window/staged.h"
#include "collectives/window/window_internal.h"
#include "core/clock.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/poison.h"
#include "core/prefetch.h"

/* The beginning of a run: it waits for room, writes this rank's line, and posts that.
 *
 * Every rank posts a line in every operation: also in a barrier, also the root of a broadcast, also
 * for 0 elements. A run waits for the lines of the ranks whose data it needs, and of those that
 * decide which path the call goes: of all ranks, or, with a root, of the root or of none. So the
 * root of short broadcasts runs ahead. A root whose broadcast is long and staged is done when the
 * last piece is in its slots.
 *
 * Room: why no line is overwritten while another rank reads it. A rank has WINDOW_LINES lines, used
 * in turn: line k goes where line k - WINDOW_LINES was. A rank reads the others' lines m only in
 * operation m, and posts its own line m + 1 after that. So before it writes line k, a rank must
 * have seen that every other rank has posted line k - WINDOW_LINES + 1, or a later one. Where it
 * does not know that yet, it waits until the others have come half the way, and so looks once in
 * many calls. An operation that uses more than lines (rows, slots, the callers' memory) begins when
 * every other rank has posted line k - 1, and so has finished the operation before it.
 *
 * No rank waits for ever. Of the ranks that wait take one in the earliest operation: all others
 * have posted the line before that, so it has room; and the ranks that have room post the line that
 * it waits for.
 *
 * Line k holds k or an older number when a rank reads it, since the rank that writes k +
 * WINDOW_LINES waits for the reader; so the reader compares for equality. The search for room may
 * find a newer number. Numbers wrap: "newer" is the sign of the difference. A header of 0 is no
 * line, as no fingerprint is 0. */

/* The sizes of the blocks: the same for all ranks, or from the caller's arrays. */
static void window_measure(struct window *w, struct window_run *run)
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

/* A call that is too long for a line: the line says where the buffers are. A rank whose buffers the
 * others cannot reach knows that all ranks will stage. It stages its first piece at once, which
 * saves a wait. */
static void window_begin_long(struct window *w, struct window_run *run, struct line *line)
{
	struct line_buffers buffers = {0};
	bool stages = true;

	run->path = NULL;
	if (has_counts(run))
		counts_publish(w, run);
	staged_begin(w, run);
	if (run->args.collective == COLL_ALL_TO_ALLV) {
		counts_write(w, run, &buffers);
		stages = buffers.sends == SENDS_MUCH; /* else it may all be in the lines */
	}
	if (reach_publish(w, run, &buffers))
		stages = false;
	if (read_publish(w, run, &buffers))
		stages = false;
	run->is_staged = stages && (run->scalar || reach_lends(run, w->rank));
	run->first_is_staged = stages && staged_first(w, run);
	buffers.is_staged = run->first_is_staged;
	buffers.is_contended = contention_is_noticed(&w->contention);
	memcpy(line->payload, &buffers, sizeof buffers);
}

/* Which lines run needs: for their data or, in a long call, to know its path. */
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

/* From here on run waits for the lines of all ranks. */
static void window_wait_for_all(const struct window *w, struct window_run *run)
{
	run->sees_all = true;
	run->peer = run->first = w->rank == 0;
	run->peers = w->size;
}

static void window_set_peers(const struct window *w, struct window_run *run)
{
	enum lines_needed needed = lines_needed(w, run);

	window_wait_for_all(w, run);
	if (needed == NEEDS_ALL)
		return;
	run->sees_all = false;
	run->first = needed == NEEDS_ROOT ? run->args.root : w->size;
	run->peers = needed == NEEDS_ROOT ? run->first + 1 : w->size;
	run->peer = run->first;
}

/* Data for a line. Most are short and lie in one piece: they go behind the header at once. */
static void window_write_data(struct window *w, const struct window_run *run, struct line *line)
{
	if (run->payload > LINE_PAYLOAD || has_counts(run) || run->scalar)
		small_write(w, run);
	else if (run->payload && (!is_from_root(run->pattern) || run->args.root == w->rank))
		memcpy(line->payload, run->args.send, run->payload);
}

/* There is room: says what this rank has to say. */
static void window_post_line(struct window *w, struct window_run *run)
{
	struct line *line = line_of(w, run->number, w->rank);

	if (run->is_small) {
		window_write_data(w, run, line);
		run->phase = PHASE_SMALL;
	} else if (run->args.collective == COLL_MEM_ALLOC) {
		memory_begin(w, run);
		run->phase = PHASE_LINES;
	} else {
		window_begin_long(w, run, line);
		run->phase = PHASE_LINES;
	}
	atomic_store_explicit(&line->header, line_header(run), memory_order_release);
	doorbell_ring(w);
	/* The others have this rank's next line in their caches. It is taken from them now, while
	 * this rank waits, and not when it posts that line. */
	prefetch_to_write(line_of(w, run->number + 1, w->rank));
	if (run->is_small && run->payload > LINE_PAYLOAD && !w->policy.shares_cores)
		small_hand_over(w, run);
	if (run->is_small)
		small_prepare(w, run);
	window_set_peers(w, run);
	/* An asynchronous call looks at the first line only in its wait. To be fetched now saves
	 * that wait one of the line's two ways between the cores. */
	prefetch_to_read(line_of(w, run->number, run->peer < run->peers ? run->peer : w->rank));
}

void window_begin(struct window *w, struct window_run *run, const struct call_args *args)
{
	poison(run, sizeof *run);
	run->args = *args;
	run->step = run->steps = 0;
	run->pieces = 0;
	run->cut = 0;
	run->is_staged = run->is_shared = false;
	run->memory = NULL;
	run->outcome = TUTTI_OK;
	/* No rank writes to that cache line while all goes well, so the look is free. */
	if (board_has_failed(&w->board))
		failure_keep(w, board_failure(&w->board));
	if (w->failed != TUTTI_OK) {
		run->phase = run->failed_in = PHASE_FAILED;
		run->peer = w->size; /* it waits for no rank */
		return;
	}
	run->number = ++w->number;
	run->pattern = collective_pattern(args->collective);
	window_measure(w, run);
	count_bytes(&w->traffic.total_bytes,
		    (run->pattern == COLL_ALL_TO_ALL ? run->total : run->own) * run->unit);
	run->is_small = args->collective != COLL_MEM_ALLOC && small_fits(w, run);
	run->room = run->number - (run->is_small ? WINDOW_LINES - 1 : 1);
	if (__builtin_expect((int32_t)(run->room - w->others) <= 0, 1)) {
		window_post_line(w, run);
		return;
	}
	run->phase = PHASE_ROOM;
	run->peer = 0;
	if (run->is_small)
		run->room = run->number - WINDOW_LINES / 2;
}

/* The lines that this rank finds there, and did not wait for in their own operation, must agree,
 * too. */
static tutti_status window_see_room(struct window *w, struct window_run *run)
{
	uint64_t mine =
		atomic_load_explicit(&line_of(w, run->room, w->rank)->header, memory_order_relaxed);

	for (; run->peer < w->size; run->peer++) {
		uint64_t got;
		if (progress_lacks_room(w, run, run->peer))
			return TUTTI_IN_PROGRESS;
		got = line_header_of(w, run->room, run->peer);
		if ((uint32_t)got == run->room && got != mine)
			return failure_mismatch(w, run, run->peer);
	}
	w->others = run->room;
	return TUTTI_OK;
}

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
static tutti_status window_see_lines(struct window *w, struct window_run *run, int looks)
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
static bool window_root_wants_all(struct window *w, const struct window_run *run)
{
	struct line_buffers buffers;

	if (run->first == run->peers)
		return false;
	buffers = line_buffers_of(w, run, run->args.root);
	return buffers.reads || reach_may_share(w, run, &buffers);
}

/* All lines are there, and every rank decides alike from them. */
static tutti_status window_choose_path(struct window *w, struct window_run *run)
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

static bool window_need_met(struct window *w, struct window_run *run, struct need need)
{
	for (; run->peer < w->size; run->peer++) {
		if (need_concerns(w, run, need, run->peer) &&
		    !word_reached(w, need.word, run->peer, need.value))
			return false;
	}
	return true;
}

static tutti_status window_do_steps(struct window *w, struct window_run *run, uint32_t limit)
{
	while (run->step < run->steps) {
		struct need need = run->path->need(w, run);
		if (need.value && !window_need_met(w, run, need))
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

/* Moves run as far as it goes, but at most limit steps; its post is one of them. looks:
 * window_see_lines.
 */
static tutti_status window_move(struct window *w, struct window_run *run, uint32_t limit, int looks)
{
	if (__builtin_expect(run->phase == PHASE_ROOM, 0)) {
		TRY(window_see_room(w, run));
		window_post_line(w, run);
		if (--limit == 0)
			return TUTTI_IN_PROGRESS;
	}
	switch ((enum phase)run->phase) {
	case PHASE_SMALL:
		TRY(window_see_lines(w, run, looks));
		if (run->sees_all)
			w->others = w->met = run->number;
		small_finish(w, run);
		break;
	case PHASE_LINES:
		TRY(window_see_lines(w, run, looks));
		if (!run->sees_all && window_root_wants_all(w, run)) {
			window_wait_for_all(w, run);
			TRY(window_see_lines(w, run, looks));
		}
		if (run->sees_all)
			w->others = w->met = run->number;
		run->peer = 0;
		TRY(window_choose_path(w, run));
		/* fall through */
	case PHASE_STEPS:
		TRY(window_do_steps(w, run, limit));
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

static int window_eager_looks(const struct window *w)
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
	return window_advance_run(w, run, window_eager_looks(w), moved);
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
static tutti_status window_wait_for_peers(struct window *w, struct window_run *run,
					  struct wait_limit *p)
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
	int looks = window_eager_looks(w);
	tutti_status status;

	/* A long run is many short waits: its deadline is checked between them, too. */
	if (run->pieces > 1)
		wait_limit.start_ns = clock_now_ns();
	for (uint32_t waits = 1;; waits++) {
		status = window_move(w, run, STEPS_PER_CHECK, looks);
		if (status == TUTTI_IN_PROGRESS && waits % WAITS_PER_CHECK == 0)
			status = window_check(w, run, &wait_limit);
		if (status == TUTTI_IN_PROGRESS)
			status = window_wait_for_peers(w, run, &wait_limit);
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
