/* How far a run is, and for which ranks it waits. These functions look; none moves a run. */
#include "collectives/window/run_progress.h"

#include "collectives/window/window_internal.h"
#include "core/rank_list.h"

#include <sched.h>
#include <stdio.h>

static bool run_progress_has_posted(const struct window *w, uint32_t number, int rank)
{
	uint64_t got = line_header_of(w, number, rank);
	return got != 0 && (int32_t)((uint32_t)got - number) >= 0;
}

bool progress_lacks_room(const struct window *w, const struct window_run *run, int rank)
{
	return run->phase == PHASE_ROOM && rank != w->rank &&
	       !run_progress_has_posted(w, run->room, rank);
}

/* The condition of the step that run has come to. */
static struct need progress_need(const struct window *w, const struct window_run *run)
{
	if (run->phase != PHASE_STEPS || run->step >= run->steps)
		return (struct need){0};
	return run->path->need(w, run);
}

/* Whether run waits for rank, need being progress_need's. */
static bool progress_lacks(const struct window *w, const struct window_run *run, struct need need,
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

int window_waits_for(const struct window *w, const struct window_run *run)
{
	struct need need = progress_need(w, run);

	for (int rank = run->peer; rank < w->size; rank++)
		if (progress_lacks(w, run, need, rank))
			return rank;
	return -1;
}

/* A run that has failed, as it was before. */
static struct window_run run_progress_before_failure(const struct window_run *run)
{
	struct window_run before = *run;

	if (before.phase == PHASE_FAILED)
		before.phase = before.failed_in;
	return before;
}

static _Atomic uint64_t *run_progress_awaited_word(const struct window *w,
						   const struct window_run *run, int rank)
{
	if (run->phase == PHASE_STEPS)
		return &w->at.areas[rank].words[progress_need(w, run).word].value;
	return &line_of(w, run->phase == PHASE_ROOM ? run->room : run->number, rank)->header;
}

bool window_awaits(struct window *w, const struct window_run *run, struct window_awaited *awaited)
{
	int rank = window_waits_for(w, run);

	if (rank < 0)
		return false;
	*awaited = (struct window_awaited){
		.window = w, .word = run_progress_awaited_word(w, run, rank), .rank = rank};
	awaited->was = atomic_load_explicit(awaited->word, memory_order_acquire);
	awaited->is_near = same_cpu_trails(w, run);
	return !progress_is_ready(w, run); /* it may have come before the word was read */
}

bool window_has_come(const struct window_awaited *awaited)
{
	return atomic_load_explicit(awaited->word, memory_order_acquire) != awaited->was ||
	       board_has_failed(&awaited->window->board);
}

const char *window_explain(const struct window *w, const struct window_run *run, char *text,
			   size_t text_bytes)
{
	struct window_run before = run_progress_before_failure(run);
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
	struct window_run before = run_progress_before_failure(run);

	run = &before;
	if (run->phase == PHASE_STEPS && run->path)
		snprintf(text, text_bytes, "%s, step %u of %u", run->path->name, run->step + 1,
			 run->steps);
	else
		snprintf(text, text_bytes, "%s",
			 run->phase == PHASE_ROOM
				 ? "this rank's line is not posted, as other ranks lag behind"
			 : run->phase == PHASE_FAILED ? "the call began after the failure"
			 : progress_at_lines(run)     ? "this rank's line is posted"
						      : "all steps of this rank are done");
	return text;
}

/* Which ranks share this one's CPU. With more ranks than cores, a rank that waits gives the CPU
 * away when it waits for another rank on that CPU. Otherwise it does so only when a root that has
 * run ahead may be waiting for one of them: a rank that is not awaited would go on to its caller's
 * own work, and keep the CPU for that long from one that is in a call.
 *
 * Every rank says where it runs whenever it waits. It may have moved when another rank looks, so
 * this is a hint: a wrong one costs a switch of threads or a few microseconds. */

/* Whether run waits for rank, or rank is so far behind that the root may wait for it: after so many
 * calls from a root it may have no room. */
static bool run_progress_trails(const struct window *w, const struct window_run *run,
				struct need need, int rank)
{
	if (run->phase == PHASE_SMALL && run->number - w->met >= WINDOW_LINES &&
	    !run_progress_has_posted(w, run->number, rank))
		return true;
	return progress_lacks(w, run, need, rank);
}

/* The word is written only when it changes, since the others have it in their caches. */
static void run_progress_say_cpu(const void *window, int32_t cpu)
{
	const struct window *w = window;

	if (atomic_load_explicit(&w->area->cpu, memory_order_relaxed) != cpu)
		atomic_store_explicit(&w->area->cpu, cpu, memory_order_relaxed);
}

bool same_cpu_trails(struct window *w, const struct window_run *run)
{
	struct need need = progress_need(w, run);
	/* 0 where the kernel does not tell. About a nanosecond: the C library looks it up. */
	int32_t here = sched_getcpu() + 1;

	run_progress_say_cpu(w, here);

	for (int rank = 0; rank < w->size; rank++) {
		int32_t there = atomic_load_explicit(&w->at.areas[rank].cpu, memory_order_relaxed);
		/* A look at the lines of ranks elsewhere would take them from their writers. */
		if ((there == here || !there || !here) && rank != w->rank &&
		    run_progress_trails(w, run, need, rank))
			return true;
	}
	return false;
}

static int32_t run_progress_cpu_of(const void *window, int rank)
{
	const struct window *w = window;
	return atomic_load_explicit(&w->at.areas[rank].cpu, memory_order_relaxed);
}

void same_cpu_begin(struct window *w, bool spreads)
{
	w->spread.is_on = spreads;
	w->spread.ranks_here = (struct spread_ranks){.size = w->size,
						     .me = w->rank,
						     .cpu_of = run_progress_cpu_of,
						     .say = run_progress_say_cpu,
						     .arg = w};
}

/* The failures of a run, their messages, and the state of the window afterwards. */

/* The first failure stays. */
static void window_failure_keep(struct window *w, tutti_status status, const char *reason)
{
	if (w->failed != TUTTI_OK)
		return;
	w->failed = status;
	snprintf(w->error, sizeof w->error, "%s", reason);
}

void failure_keep(struct window *w, tutti_status status)
{
	if (status != TUTTI_OK)
		window_failure_keep(w, status, last_error());
}

void window_fail(struct window *w, tutti_status status, const char *reason)
{
	board_tell(&w->board,
		   &(struct failure){.status = status, .rank = FAILURE_NO_RANK, .message = reason});
	window_failure_keep(w, status, reason);
}

/* A wait of run, as the board asks about it. */
struct waiting_run {
	const struct window *window;
	const struct window_run *run;
};

const char *failure_call_text(const struct window *w, const struct window_run *run, char *text,
			      size_t text_bytes)
{
	struct call_record record = call_record_of(&run->args, w->size, 0);
	struct call_summary summary = call_record_summary(&record, run->args.sequence);
	return call_in_words(&summary, text, text_bytes);
}

static bool run_progress_failure_awaits(const void *arg, int rank)
{
	const struct waiting_run *waiting = arg;
	struct need need = progress_need(waiting->window, waiting->run);
	return progress_lacks(waiting->window, waiting->run, need, rank);
}

static const char *run_progress_call_of(const struct window *w, const struct window_run *run,
					int rank, char *text, size_t text_bytes)
{
	struct call_record record;

	if (rank == w->rank)
		return failure_call_text(w, run, text, text_bytes);
	if (!recorder_find(&w->board.places[rank].recorder, run->args.sequence, &record)) {
		snprintf(text, text_bytes, "another");
		return text;
	}
	struct call_summary summary = call_record_summary(&record, run->args.sequence);
	return call_in_words(&summary, text, text_bytes);
}

/* The recorders of two ranks whose lines differ do so as well, but for the rounds of a split. */
tutti_status failure_mismatch(struct window *w, const struct window_run *run, int peer)
{
	int low = peer < w->rank ? peer : w->rank, high = peer < w->rank ? w->rank : peer;
	char first[128], second[128];

	TRY(board_compare(&w->board)); /* the lines may differ because an earlier call did */
	return fail(TUTTI_ERR_MISMATCH, CALL_MISMATCH "rank %d called %s, rank %d called %s.", low,
		    run_progress_call_of(w, run, low, first, sizeof first), high,
		    run_progress_call_of(w, run, high, second, sizeof second));
}

tutti_status failure_timeout(struct window *w, const struct window_run *run, uint64_t timeout_ns)
{
	char who[256], progress[64];

	TRY(board_check_late(&w->board)); /* perhaps one that another rank waits for */
	return fail(TUTTI_ERR_TIMEOUT, "waited %llu ms for %s; %s",
		    (unsigned long long)(timeout_ns / 1000000u),
		    window_explain(w, run, who, sizeof who),
		    window_progress_text(run, progress, sizeof progress));
}

/* While one rank is late, another that has come may already disagree. */
static tutti_status run_progress_check_lines(struct window *w, const struct window_run *run)
{
	uint64_t want = line_header(run);

	for (int peer = 0; peer < w->size; peer++) {
		uint64_t got = line_header_of(w, run->number, peer);
		if ((uint32_t)got == run->number && got != want)
			return failure_mismatch(w, run, peer);
	}
	return TUTTI_OK;
}

/* All that run waits for may have come since the last look, and only then a rank has failed: a
 * small call that the failed rank has finished ends well. Only a small one: what it copies lies in
 * the lines, and no rank writes these again before all have seen them. */
static bool run_progress_ends_well(const struct window *w, const struct window_run *run)
{
	return run->phase == PHASE_SMALL && window_waits_for(w, run) < 0;
}

tutti_status failure_check(struct window *w, const struct window_run *run, uint64_t now_ns)
{
	struct waiting_run waiting = {w, run};
	struct board_wait wait = {run_progress_failure_awaits, &waiting};

	if (progress_at_lines(run))
		TRY(run_progress_check_lines(w, run));
	tutti_status status = board_check(&w->board, &wait, now_ns);
	return run_progress_ends_well(w, run) ? TUTTI_OK : status;
}
