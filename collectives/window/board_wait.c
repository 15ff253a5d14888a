/* What can end a wait that lasts, by what the board and the kernel say of the other ranks. */
#include "collectives/window/board.h"

#include "core/clock.h"

#include <poll.h>
#include <stdio.h>

#define COMPARE_INTERVAL_NS 20000000u
#define DEATH_INTERVAL_NS   5000000u
/* Processes in one poll. */
#define POLL_AT_ONCE 64

/* With what this rank was doing, which the other ranks are not told. */
static tutti_status failure_in_wait(struct board *b, const struct board_wait *wait)
{
	char what[192];
	tutti_status status = board_failure(b);

	if (status != TUTTI_ERR_PEER && !b->is_stopped)
		return status;
	snprintf(b->told, sizeof b->told, "%s", last_error());
	return fail(status, "%.300s Rank %d was in %s.", b->told, b->rank,
		    wait->describe(wait->arg, what, sizeof what));
}

/* For a rank that has left or ended. It may have posted what this one waits for before that, so it
 * is missing only if it still is awaited. */
static tutti_status check_gone(struct board *b, const struct board_wait *wait, int rank)
{
	char what[192], process[80];

	if (!wait->awaits(wait->arg, rank))
		return TUTTI_OK;
	TRY(board_failure(b)); /* it may have told a failure and left */
	b->dead = rank + 1;
	return fail(TUTTI_ERR_PEER,
		    board_has_left(b, rank)
			    ? "Rank %d (process %s) has left the communicator, and rank %d waits "
			      "for it in %s."
			    : "The process of rank %d (%s) has ended, and rank %d waits for it in "
			      "%s.",
		    rank, board_process(b, rank, process, sizeof process), b->rank,
		    wait->describe(wait->arg, what, sizeof what));
}

static tutti_status check_all_gone(struct board *b, const struct board_wait *wait)
{
	for (int rank = 0; rank < b->size; rank++)
		if (board_has_left(b, rank))
			TRY(check_gone(b, wait, rank));
	for (int first = 0; first < b->size; first += POLL_AT_ONCE) {
		struct pollfd fds[POLL_AT_ONCE];
		int n = b->size - first < POLL_AT_ONCE ? b->size - first : POLL_AT_ONCE;

		for (int i = 0; i < n; i++)
			fds[i] = (struct pollfd){b->pid_fds[first + i], POLLIN, 0};
		if (poll(fds, (nfds_t)n, 0) <= 0)
			continue;
		for (int i = 0; i < n; i++)
			if (fds[i].revents)
				TRY(check_gone(b, wait, first + i));
	}
	return TUTTI_OK;
}

tutti_status board_check(struct board *b, const struct board_wait *wait, uint64_t now_ns)
{
	if (board_has_failed(b))
		TRY(failure_in_wait(b, wait));
	if (now_ns - b->compared_ns >= COMPARE_INTERVAL_NS) {
		b->compared_ns = now_ns;
		TRY(board_compare(b));
	}
	if (now_ns - b->checked_ns < DEATH_INTERVAL_NS)
		return TUTTI_OK;
	b->checked_ns = now_ns;
	TRY(check_all_gone(b, wait));
	return board_check_stopped(b, wait, now_ns);
}

static const char *describe_call(const void *arg, char *text, size_t text_bytes)
{
	const uint64_t *sequence = arg;

	if (*sequence == NO_CALL)
		snprintf(text, text_bytes, "a send or recv");
	else
		snprintf(text, text_bytes, "call #%llu", (unsigned long long)*sequence);
	return text;
}

static tutti_status gone_before_call(struct board *b, int rank, bool left, uint64_t sequence)
{
	char process[80];

	TRY(board_failure(b)); /* it may have told a failure and left */
	b->dead = rank + 1;
	board_process(b, rank, process, sizeof process);
	if (sequence == NO_CALL)
		return fail(TUTTI_ERR_PEER, "The process of rank %d (%s) has ended.", rank,
			    process);
	return fail(TUTTI_ERR_PEER,
		    left ? "Rank %d (process %s) has left the communicator, and rank %d "
			   "waits in call #%llu."
			 : "The process of rank %d (%s) has ended, and rank %d waits in "
			   "call #%llu.",
		    rank, process, b->rank, (unsigned long long)sequence);
}

tutti_status board_check_call(struct board *b, uint64_t sequence, bool is_bad)
{
	struct board_wait wait = {NULL, describe_call, &sequence};

	if (board_has_failed(b))
		TRY(board_failure(b));
	TRY(board_compare(b));
	for (int rank = 0; rank < b->size; rank++) {
		bool left = board_has_left(b, rank), made_it;
		if (rank == b->rank || (!left && !board_has_ended(b, rank)))
			continue;
		/* Outside of calls a rank may leave: a send to it learns that on its channel. */
		made_it = sequence == NO_CALL ||
			  recorder_issued(&b->places[rank].recorder) > sequence;
		if (!made_it || (!left && is_bad))
			return gone_before_call(b, rank, left, sequence);
	}
	return board_check_stopped(b, &wait, clock_now_ns());
}
