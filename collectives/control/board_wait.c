/* Reasons to end a wait that lasts, from the board and the kernel's word of the other ranks. */
#include "collectives/control/board.h"

#include "collectives/control/deadlines.h"
#include "core/clock.h"
#include "core/machine.h"

#include <poll.h>
#include <stdio.h>

#define AT_ONCE 16 /* processes in one look; each takes some 20 us */

static uint64_t board_wait_interval_ns(const struct board *b)
{
	int ms = b->stopped.silence_ms / 4;
	bool is_sooner = b->stopped.silence_ms && ms < BOARD_WATCH_MS;
	return MS_TO_NS(is_sooner ? ms : BOARD_WATCH_MS);
}

/* Stopped by SIGSTOP, a debugger, a batch system: the kernel says that of every process of the
 * node. A rank that computes or sleeps in a call of its own is not stopped. */
static bool board_wait_is_stopped(const struct board *b, int rank)
{
	return b->pid_fds[rank] >= 0 && process_is_stopped(process_of(b->pid_fds[rank]));
}

static bool board_wait_awaits(const struct board_wait *wait, int rank)
{
	return !wait->awaits || wait->awaits(wait->arg, rank);
}

/* The first rank that is stopped, or runs another program, from where the last look ended. */
static void look_at_processes(struct board *b, const struct board_wait *wait)
{
	b->stopped.rank = 0;
	b->stopped.lasts_ns = 0;
	for (int i = 0, looks = 0; i < b->size && looks < AT_ONCE; i++) {
		int rank = b->stopped.next++ % b->size;
		b->stopped.next %= b->size;
		struct process_look look;
		if (rank == b->rank || b->pid_fds[rank] < 0 || !board_wait_awaits(wait, rank))
			continue;
		looks++;
		if (board_is_replaced(b, rank, &look))
			b->replaced = rank + 1;
		else if (look.is_stopped && b->stopped.silence_ms)
			b->stopped.rank = rank + 1;
		if (b->replaced == rank + 1 || b->stopped.rank)
			return;
	}
}

static tutti_status decide_stopped(struct board *b, int rank, const char *why)
{
	char text[ERROR_BYTES], who[128];

	TRY(board_failure(b)); /* another rank may have told it already */
	snprintf(text, sizeof text, "%s is stopped (SIGSTOP, or a debugger), %s.",
		 board_who(b, rank, who, sizeof who), why);
	return board_decide(b, &(struct failure){.status = TUTTI_ERR_TIMEOUT,
						 .rank = FAILURE_NO_RANK,
						 .is_common = true,
						 .message = text});
}

static tutti_status board_wait_give_up(struct board *b)
{
	char why[100];

	snprintf(why, sizeof why, "for %.1f s by now (TUTTI_SILENCE_MS; 0: wait for ever)",
		 (double)b->stopped.lasts_ns * 1e-9);
	return decide_stopped(b, b->stopped.rank - 1, why);
}

tutti_status board_check_late(struct board *b)
{
	char why[100];

	snprintf(why, sizeof why,
		 "and the deadline of a call of rank %d has passed (TUTTI_TIMEOUT_MS)", b->rank);
	for (int rank = 0; rank < b->size; rank++)
		if (rank != b->rank && board_wait_is_stopped(b, rank))
			return decide_stopped(b, rank, why);
	return TUTTI_OK;
}

/* Whether an awaited rank has been stopped for too long. */
static tutti_status check_stopped(struct board *b, const struct board_wait *wait, uint64_t now_ns)
{
	uint64_t passed = now_ns - b->stopped.looked_ns, interval = board_wait_interval_ns(b);
	int rank = b->stopped.rank - 1;

	if (passed < interval)
		return TUTTI_OK;
	b->stopped.looked_ns = now_ns;
	if (rank < 0 || !board_wait_awaits(wait, rank) || !board_wait_is_stopped(b, rank)) {
		look_at_processes(b, wait);
		return TUTTI_OK;
	}
	/* Where this process was itself stopped, or starved, little of the time counts. */
	b->stopped.lasts_ns += passed < 2 * interval ? passed : 2 * interval;
	return b->stopped.lasts_ns < MS_TO_NS(b->stopped.silence_ms) ? TUTTI_OK
								     : board_wait_give_up(b);
}

/* Processes in one poll. */
#define POLL_AT_ONCE 64

/* For a rank that has left or ended. */
static tutti_status decide_gone(struct board *b, int rank)
{
	char text[ERROR_BYTES], who[128];

	TRY(board_failure(b)); /* it may have told a failure and left */
	board_who(b, rank, who, sizeof who);
	if (board_has_left(b, rank))
		snprintf(text, sizeof text, "%s " FAILURE_HAS_LEFT " after %llu calls.", who,
			 (unsigned long long)recorder_issued(&b->places[rank].recorder));
	else
		snprintf(text, sizeof text, "%s %s.", who,
			 b->replaced == rank + 1
				 ? "has ended: its process runs another program (exec)"
				 : "has died");
	return board_decide(
		b, &(struct failure){.status = TUTTI_ERR_PEER, .rank = rank, .message = text});
}

/* A rank may have posted what this one waits for before it left or ended, so it is missing only if
 * it still is awaited. */
static tutti_status check_gone(struct board *b, const struct board_wait *wait, int rank)
{
	return wait->awaits(wait->arg, rank) ? decide_gone(b, rank) : TUTTI_OK;
}

static tutti_status check_all_gone(struct board *b, const struct board_wait *wait)
{
	for (int rank = 0; rank < b->size; rank++)
		if (board_has_left(b, rank))
			TRY(check_gone(b, wait, rank));
	if (b->replaced)
		TRY(check_gone(b, wait, b->replaced - 1));
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
		TRY(board_failure(b));
	if (now_ns - b->compared_ns >= MS_TO_NS(BOARD_COMPARE_MS)) {
		b->compared_ns = now_ns;
		TRY(board_compare(b));
	}
	if (now_ns - b->checked_ns < MS_TO_NS(BOARD_DEATHS_MS))
		return TUTTI_OK;
	b->checked_ns = now_ns;
	TRY(check_all_gone(b, wait));
	return check_stopped(b, wait, now_ns);
}

/* Without a read of /proc, which has its own pace. */
static bool is_known_to_have_ended(const struct board *b, int rank)
{
	struct pollfd fd = {b->pid_fds[rank], POLLIN, 0};
	return fd.fd >= 0 && (b->replaced == rank + 1 || poll(&fd, 1, 0) > 0);
}

tutti_status board_check_call(struct board *b, uint64_t sequence, bool is_bad)
{
	struct board_wait wait = {NULL, NULL};

	if (board_has_failed(b))
		TRY(board_failure(b));
	TRY(board_compare(b));
	for (int rank = 0; rank < b->size; rank++) {
		bool left = board_has_left(b, rank), made_it;
		if (rank == b->rank || (!left && !is_known_to_have_ended(b, rank)))
			continue;
		/* Outside of calls a rank may leave: a send to it learns that on its channel. */
		made_it = sequence == NO_CALL ||
			  recorder_issued(&b->places[rank].recorder) > sequence;
		if (!made_it || (!left && is_bad))
			return decide_gone(b, rank);
	}
	return check_stopped(b, &wait, clock_now_ns());
}
