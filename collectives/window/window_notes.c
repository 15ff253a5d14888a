/* What ranks of a window know of each other's calls, also of those that go by messages: their
 * flight recorders lie in the segment, so comparing is loads. And what can end such a call's wait.
 */
#include "collectives/window/window_internal.h"

#include "core/clock.h"

#include <poll.h>
#include <stdio.h>

struct recorder *window_recorder(const struct window *w)
{
	return &w->recorders[w->rank];
}

int window_dead(const struct window *w)
{
	return w->dead - 1;
}

tutti_status notes_compare(struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		struct noted mine, theirs;
		char text[ERROR_BYTES];
		uint64_t sequence;
		if (rank == w->rank ||
		    !recorders_differ(&w->recorders[w->rank], &w->recorders[rank], &sequence))
			continue;
		if (!recorder_find(&w->recorders[w->rank], sequence, &mine) ||
		    !recorder_find(&w->recorders[rank], sequence, &theirs))
			continue;
		return fail(
			TUTTI_ERR_MISMATCH, "%s",
			noted_mismatch(w->rank, &mine, rank, &theirs, sequence, text, sizeof text));
	}
	return TUTTI_OK;
}

bool rank_has_left(const struct window *w, int rank)
{
	return atomic_load_explicit(&w->recorders[rank].has_left, memory_order_acquire);
}

bool rank_has_ended(const struct window *w, int rank)
{
	struct pollfd fd = {w->segment->pid_fds[rank], POLLIN, 0};
	return fd.fd >= 0 && poll(&fd, 1, 0) > 0;
}

bool window_has_ended(const struct window *w, int rank)
{
	return rank_has_ended(w, rank);
}

const char *window_missing(const struct window *w, uint64_t sequence, char *text, size_t text_bytes)
{
	size_t at = 0;
	int n = 0;
	text[0] = '\0';
	for (int rank = 0; rank < w->size && at + 16 < text_bytes; rank++)
		if (recorder_issued(&w->recorders[rank]) <= sequence)
			at += (size_t)snprintf(text + at, text_bytes - at, "%s%d",
					       n++ ? ", " : "ranks ", rank);
	if (n == 1) /* "ranks 3" -> "rank 3" */
		memmove(text + 4, text + 5, strlen(text + 5) + 1);
	return text;
}

static tutti_status look_for_stopped(struct window *w, uint64_t sequence)
{
	char call[40] = "a send or recv";

	if (sequence != NO_CALL)
		snprintf(call, sizeof call, "call #%llu", (unsigned long long)sequence);
	return stopped_look(w, NULL, call, clock_now_ns());
}

tutti_status window_look(struct window *w, uint64_t sequence, bool is_bad)
{
	char process[80];

	if (atomic_load_explicit(&w->head->failures, memory_order_acquire))
		TRY(failure_seen(w));
	TRY(notes_compare(w));
	for (int rank = 0; rank < w->size; rank++) {
		bool left = rank_has_left(w, rank), made_it;
		if (rank == w->rank || (!left && !rank_has_ended(w, rank)))
			continue;
		/* In no call a rank may leave: who waits for a message of its own sees to that. */
		made_it = sequence == NO_CALL || recorder_issued(&w->recorders[rank]) > sequence;
		if (made_it && (left || !is_bad))
			continue;
		TRY(failure_seen(w)); /* it may have failed, said why, and left */
		w->dead = rank + 1;
		failure_process(w, rank, process, sizeof process);
		if (sequence == NO_CALL)
			return fail(TUTTI_ERR_PEER, "The process of rank %d (%s) has ended.", rank,
				    process);
		return fail(TUTTI_ERR_PEER,
			    left ? "Rank %d (process %s) has left the communicator, and rank %d "
				   "waits in call #%llu."
				 : "The process of rank %d (%s) has ended, and rank %d waits in "
				   "call #%llu.",
			    rank, process, w->rank, (unsigned long long)sequence);
	}
	return look_for_stopped(w, sequence);
}
