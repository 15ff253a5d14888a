/* The failures of a run, their messages, and the state of the window afterwards. */
#include "collectives/window/window_internal.h"

#include "collectives/window/run_progress.h"

#include <stdio.h>

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

static bool window_failure_awaits(const void *arg, int rank)
{
	const struct waiting_run *waiting = arg;
	struct need need = progress_need(waiting->window, waiting->run);
	return progress_lacks(waiting->window, waiting->run, need, rank);
}

static const char *call_of(const struct window *w, const struct window_run *run, int rank,
			   char *text, size_t text_bytes)
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
		    call_of(w, run, low, first, sizeof first), high,
		    call_of(w, run, high, second, sizeof second));
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
static tutti_status check_lines(struct window *w, const struct window_run *run)
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
static bool ends_well(const struct window *w, const struct window_run *run)
{
	return run->phase == PHASE_SMALL && window_waits_for(w, run) < 0;
}

tutti_status failure_check(struct window *w, const struct window_run *run, uint64_t now_ns)
{
	struct waiting_run waiting = {w, run};
	struct board_wait wait = {window_failure_awaits, &waiting};

	if (progress_at_lines(run))
		TRY(check_lines(w, run));
	tutti_status status = board_check(&w->board, &wait, now_ns);
	return ends_well(w, run) ? TUTTI_OK : status;
}
