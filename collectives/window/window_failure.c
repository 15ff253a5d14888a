/* How a window's run ends badly, and the sentences that say why: ranks that made different calls, a
 * deadline, a rank that has failed or died. */
#include "collectives/window/window_internal.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

/* Looked at in one poll; more are looked at in turn. */
#define POLL_AT_ONCE 64

tutti_status failure_stick(struct window *w, tutti_status status)
{
	if (w->failed == TUTTI_OK) {
		w->failed = status;
		snprintf(w->error, sizeof w->error, "%s", last_error());
	}
	return status;
}

const char *failure_own_call(const struct window *w, const struct window_run *run, char *text,
			     size_t text_bytes)
{
	struct noted noted = noted_of(&run->args, w->size, 0);
	struct call_note note = noted_note(&noted, run->args.sequence);
	return call_in_words(&note, text, text_bytes);
}

const char *failure_own_wait(const struct window *w, const struct window_run *run, char *text,
			     size_t text_bytes)
{
	char call[128], progress_text[64];
	snprintf(text, text_bytes, "%s (window: %s)", failure_own_call(w, run, call, sizeof call),
		 window_progress_text(run, progress_text, sizeof progress_text));
	return text;
}

const char *failure_process(const struct window *w, int rank, char *text, size_t text_bytes)
{
	char host[64] = "?";
	gethostname(host, sizeof host - 1);
	snprintf(text, text_bytes, "%d on %s", (int)w->areas[rank].pid, host);
	return text;
}

static const char *call_of(const struct window *w, const struct window_run *run, int rank,
			   char *text, size_t text_bytes)
{
	struct noted noted;

	if (rank == w->rank)
		return failure_own_call(w, run, text, text_bytes);
	if (!recorder_find(&w->recorders[rank], run->args.sequence, &noted)) {
		snprintf(text, text_bytes, "another");
		return text;
	}
	struct call_note note = noted_note(&noted, run->args.sequence);
	return call_in_words(&note, text, text_bytes);
}

/* The recorders of two ranks whose lines differ do so as well, but for the rounds of a split. */
tutti_status failure_mismatch(struct window *w, const struct window_run *run, int peer)
{
	int low = peer < w->rank ? peer : w->rank, high = peer < w->rank ? w->rank : peer;
	char first[128], second[128];

	TRY(notes_compare(w)); /* the lines may differ because an earlier call did */
	return fail(TUTTI_ERR_MISMATCH,
		    "The ranks did not make the same call: rank %d called %s, "
		    "rank %d called %s.",
		    low, call_of(w, run, low, first, sizeof first), high,
		    call_of(w, run, high, second, sizeof second));
}

/* In particular. */
bool failure_waits_for(const struct window *w, const struct window_run *run, int rank)
{
	struct need need;

	if (rank == w->rank || window_is_over(run))
		return false;
	if (window_lacks_room(w, run, rank))
		return true;
	if (window_at_lines(run)) {
		struct line *line = line_of(w, run->number, rank);
		return rank >= run->peer && rank < run->peers &&
		       (uint32_t)atomic_load_explicit(&line->header, memory_order_acquire) !=
			       run->number;
	}
	if (run->step >= run->steps)
		return false;
	need = run->path->need(w, run);
	if (!need.value || (need.of && !need.of(w, run, rank)))
		return false;
	return atomic_load_explicit(&w->areas[rank].words[need.word].value, memory_order_acquire) <
	       need.value;
}

const char *window_explain(const struct window *w, const struct window_run *run, char *text,
			   size_t text_bytes)
{
	size_t used = 0;
	int found = 0;

	text[0] = '\0';
	for (int rank = 0; rank < w->size && used + 16 < text_bytes; rank++) {
		if (failure_waits_for(w, run, rank))
			used += (size_t)snprintf(text + used, text_bytes - used, "%s%d",
						 found++ ? ", " : "ranks ", rank);
	}
	if (found == 1) { /* "ranks 3" -> "rank 3" */
		memmove(text + 4, text + 5, strlen(text + 5) + 1);
	} else if (!found) {
		snprintf(text, text_bytes, "no rank");
	}
	return text;
}

tutti_status failure_timeout(struct window *w, const struct window_run *run, uint64_t timeout_ns)
{
	char who[256], what[192];

	return fail(TUTTI_ERR_TIMEOUT,
		    "Rank %d waited %.3f s in %s, and %s did not come. Is a rank slow, dead or "
		    "elsewhere? TUTTI_TIMEOUT_MS is the time to wait.",
		    w->rank, (double)timeout_ns * 1e-9, failure_own_wait(w, run, what, sizeof what),
		    window_explain(w, run, who, sizeof who));
}

void window_fail(struct window *w, tutti_status status, const char *sentence)
{
	uint32_t none = 0;

	if (atomic_load_explicit(&w->area->failure, memory_order_relaxed))
		return;
	snprintf(w->area->sentence, sizeof w->area->sentence, "%s",
		 w->heard[0] ? w->heard : sentence);
	w->area->dead = w->dead;
	w->area->is_stopped = w->is_stopped;
	/* Pairs with the acquire in failure_seen. */
	atomic_compare_exchange_strong(&w->area->failure, &none, (uint32_t)status);
	atomic_fetch_add(&w->head->failures, 1);
	/* The caller writes to its buffers after this. Pairs with failure_while_reading. */
	__sync_synchronize();
	if (w->failed == TUTTI_OK) {
		w->failed = status;
		snprintf(w->error, sizeof w->error, "%s", sentence);
	}
	doorbell_wake_all(w);
}

tutti_status failure_seen(struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		uint32_t failure =
			atomic_load_explicit(&w->areas[rank].failure, memory_order_acquire);
		if (!failure || rank == w->rank)
			continue;
		w->dead = w->areas[rank].dead;
		w->is_stopped = w->areas[rank].is_stopped;
		if (failure == TUTTI_ERR_MISMATCH || failure == TUTTI_ERR_PEER ||
		    failure == TUTTI_ERR_ABORTED || w->is_stopped)
			return fail((tutti_status)failure, "%.500s", w->areas[rank].sentence);
		return fail(TUTTI_ERR_PEER, "Rank %d has failed: %.440s", rank,
			    w->areas[rank].sentence);
	}
	return TUTTI_OK;
}

void failure_came_before(struct window *w)
{
	tutti_status status = failure_seen(w);

	if (status != TUTTI_OK)
		failure_stick(w, status);
}

tutti_status failure_while_reading(struct window *w)
{
	loads_done();
	if (__builtin_expect(atomic_load_explicit(&w->head->failures, memory_order_acquire), 0))
		return failure_seen(w);
	return TUTTI_OK;
}

/* A rank may have posted what we wait for and then ended, so the dead are those that are still
 * missing after their end was seen. */
static tutti_status see_gone(struct window *w, const struct window_run *run, int rank)
{
	char what[192], process[80];

	if (!failure_waits_for(w, run, rank))
		return TUTTI_OK;
	TRY(failure_seen(w)); /* it may have failed, said why, and left */
	w->dead = rank + 1;
	return fail(TUTTI_ERR_PEER,
		    rank_has_left(w, rank)
			    ? "Rank %d (process %s) has left the communicator, and rank %d waits "
			      "for it in %s."
			    : "The process of rank %d (%s) has ended, and rank %d waits for it in "
			      "%s.",
		    rank, failure_process(w, rank, process, sizeof process), w->rank,
		    failure_own_wait(w, run, what, sizeof what));
}

tutti_status failure_heard(struct window *w, const struct window_run *run)
{
	char what[192];
	tutti_status status = failure_seen(w);

	if (status != TUTTI_ERR_PEER && !w->is_stopped)
		return status;
	snprintf(w->heard, sizeof w->heard, "%s", last_error());
	return fail(status, "%.300s Rank %d was in %s.", w->heard, w->rank,
		    failure_own_wait(w, run, what, sizeof what));
}

tutti_status failure_deaths(struct window *w, const struct window_run *run)
{
	for (int rank = 0; rank < w->size; rank++)
		if (rank_has_left(w, rank))
			TRY(see_gone(w, run, rank));
	for (int first = 0; first < w->size; first += POLL_AT_ONCE) {
		struct pollfd fds[POLL_AT_ONCE];
		int n = w->size - first < POLL_AT_ONCE ? w->size - first : POLL_AT_ONCE;

		for (int i = 0; i < n; i++)
			fds[i] = (struct pollfd){w->segment->pid_fds[first + i], POLLIN, 0};
		if (poll(fds, (nfds_t)n, 0) <= 0)
			continue;
		for (int i = 0; i < n; i++) {
			if (fds[i].revents)
				TRY(see_gone(w, run, first + i));
		}
	}
	return TUTTI_OK;
}
