/* One operation of a window, from begin to done: post this rank's line, see everybody's, then go
 * the path that the lines agree on. How data moves is in window_small.c, window_staged.c and
 * window_zero_copy.c, and what ranks tell each other of their blocks in window_pairs.c; how ranks
 * came to share memory in window_join.c.
 *
 * Why two lines a rank (by the parity of the operation's number) are enough. A rank writes line k +
 * 2 only in operation k + 2, so after it has finished k + 1, so after it has seen every line k + 1.
 * A peer posts its line k + 1 after it has finished k, and it reads lines k only in k. So when line
 * k is overwritten by k + 2 nobody reads it any more. Every step of this needs that every rank
 * posts a line in every operation, and finishes none before it has seen all of them: also a
 * barrier, also the root of a broadcast, also a call for 0 elements. And a look finds k or an older
 * number, never a newer one, so comparing for equality is enough and the number may wrap. */
#include "collectives/window_internal.h"

#include "core/clock.h"
#include "memory/dtype.h"
#include "memory/ops.h"

enum phase { PHASE_LINES, PHASE_SMALL, PHASE_STEPS, PHASE_DONE, PHASE_FAILED };

/* advance gives way after so many steps, each of which moves at most a slot or so. */
#define STEPS_AT_ONCE 16u
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
	bell_ring(w);
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
		pairs_write(w, run, line, &buffers);
		stages = buffers.sends == SENDS_MUCH; /* else it may all be in the lines */
	}
	if (zero_copy_publish(w, run, &buffers))
		stages = false;
	run->first_is_staged = stages && staged_first(w, run);
	buffers.is_staged = run->first_is_staged;
	memcpy(line->payload, &buffers, sizeof buffers);
}

void window_begin(struct window *w, struct window_run *run, const struct call_args *args)
{
	struct line *line;

	run->args = *args;
	run->peer = w->rank == 0; /* no rank waits for itself */
	run->step = run->steps = 0;
	run->pieces = 0;
	run->cut = 0;
	run->memory = NULL;
	run->outcome = TUTTI_OK;
	if (w->failed != TUTTI_OK) {
		run->phase = PHASE_FAILED;
		return;
	}
	run->number = ++w->number;
	run->pattern = collective_pattern(args->collective);
	measure(w, run);
	count_bytes(&w->total_bytes,
		    (run->pattern == COLL_ALL_TO_ALL ? run->total : run->own) * run->unit);
	line = line_of(w, run->number, w->rank);
	if (args->collective == COLL_MEM_ALLOC) {
		memory_begin(w, run);
		run->phase = PHASE_LINES;
	} else if (small_fits(w, run)) {
		small_write(w, run, line);
		run->phase = PHASE_SMALL;
	} else {
		begin_long(w, run, line);
		run->phase = PHASE_LINES;
	}
	line_post(w, run);
}

/* OK when every rank's line is there and agrees with ours. Remembers how far it came. */
static tutti_status see_lines(struct window *w, struct window_run *run)
{
	uint64_t want = line_header(run);

	for (; run->peer < w->size; run->peer++) {
		struct line *line = line_of(w, run->number, run->peer);
		uint64_t got = atomic_load_explicit(&line->header, memory_order_acquire);
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

	for (int peer = run->peer + 1; peer < w->size; peer++) {
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
	if (zero_copy_begin(w, run))
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

/* As far as it goes, but at most limit steps. */
static tutti_status move(struct window *w, struct window_run *run, uint32_t limit)
{
	switch ((enum phase)run->phase) {
	case PHASE_SMALL:
		TRY(see_lines(w, run));
		small_finish(w, run);
		break;
	case PHASE_LINES:
		TRY(see_lines(w, run));
		run->peer = 0;
		TRY(choose_path(w, run));
		/* fall through */
	case PHASE_STEPS:
		TRY(do_steps(w, run, limit));
		break;
	case PHASE_DONE:
		return run->outcome;
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
	if (window_at_lines(run)) {
		tutti_status status = see_mismatch(w, run);
		if (status != TUTTI_IN_PROGRESS)
			return status;
	}
	if (atomic_load_explicit(&w->head->failures, memory_order_acquire))
		TRY(failure_seen(w));
	if (now_ns - w->compared_ns >= NOTES_INTERVAL_NS) {
		w->compared_ns = now_ns;
		TRY(notes_compare(w));
	}
	if (now_ns - w->checked_ns < DEATH_INTERVAL_NS)
		return TUTTI_IN_PROGRESS;
	w->checked_ns = now_ns;
	TRY(failure_deaths(w, run));
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
	tutti_status status = move(w, run, STEPS_AT_ONCE);

	*moved = run->peer != peer || run->phase != phase || run->step != step;
	if (status == TUTTI_IN_PROGRESS && !*moved)
		status = see_trouble(w, run, coarse_now_ns());
	return ended(w, run, status);
}

bool window_at_lines(const struct window_run *run)
{
	return run->phase == PHASE_LINES || run->phase == PHASE_SMALL;
}

bool window_is_over(const struct window_run *run)
{
	return run->phase == PHASE_DONE || run->phase == PHASE_FAILED;
}

int window_waits_for(struct window *w, const struct window_run *run)
{
	struct need need;

	if (window_is_over(run))
		return -1;
	if (window_at_lines(run)) {
		uint64_t want = line_header(run);
		for (int peer = run->peer; peer < w->size; peer++) {
			struct line *line = line_of(w, run->number, peer);
			if (atomic_load_explicit(&line->header, memory_order_acquire) != want)
				return peer;
		}
		return -1;
	}
	if (run->step >= run->steps)
		return -1;
	need = run->path->need(w, run);
	if (!need.value)
		return -1;
	for (int peer = run->peer; peer < w->size; peer++) {
		if (concerns(w, run, need, peer) && !word_reached(w, need.word, peer, need.value))
			return peer;
	}
	return -1;
}

bool window_is_ready(struct window *w, const struct window_run *run)
{
	if (!window_at_lines(run)) {
		if (window_waits_for(w, run) < 0)
			return true;
	} else if (run->peer == w->size) {
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
struct patience {
	uint64_t timeout_ns, start_ns;
	const _Atomic int *stop;
	void (*background)(void *arg);
	void *arg;
};

/* Now and then while waiting. The clock is first read at the first of these calls, so a deadline
 * counts from at most LOOKS_PER_CHECK looks after the start of the wait. */
static tutti_status check(struct window *w, struct window_run *run, struct patience *p)
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
static tutti_status wait_for_peers(struct window *w, struct window_run *run, struct patience *p)
{
	struct wait wait;

	wait_begin(&wait, w->policy);
	for (uint32_t looks = 1; !window_is_ready(w, run); looks++) {
		bool is_tired = !wait_again(&wait);
		if (is_tired || looks % LOOKS_PER_CHECK == 0) {
			tutti_status status = check(w, run, p);
			if (status != TUTTI_IN_PROGRESS)
				return status;
		}
		if (is_tired)
			bell_sleep(w, run);
	}
	return TUTTI_IN_PROGRESS;
}

tutti_status window_drive(struct window *w, struct window_run *run, uint64_t timeout_ns,
			  const _Atomic int *stop, void (*background)(void *arg), void *arg)
{
	struct patience patience = {timeout_ns, 0, stop, background, arg};
	tutti_status status;

	/* A long run is many short waits: its deadline is checked between them, too. */
	if (run->pieces > 1)
		patience.start_ns = clock_now_ns();
	for (uint32_t waits = 1;; waits++) {
		status = move(w, run, STEPS_PER_CHECK);
		if (status == TUTTI_IN_PROGRESS && waits % WAITS_PER_CHECK == 0)
			status = check(w, run, &patience);
		if (status == TUTTI_IN_PROGRESS)
			status = wait_for_peers(w, run, &patience);
		if (status != TUTTI_IN_PROGRESS)
			return ended(w, run, status);
	}
}

void window_stats(const struct window *w, uint64_t *window_bytes, uint64_t *staged_bytes)
{
	*window_bytes = atomic_load_explicit(&w->total_bytes, memory_order_relaxed);
	*staged_bytes = atomic_load_explicit(&w->staged_bytes, memory_order_relaxed);
}
