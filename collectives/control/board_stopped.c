/* Ranks whose processes are stopped (SIGSTOP, a debugger, a batch system). The kernel says that of
 * every process of the node. A rank that computes or sleeps in a call of its own is not stopped. */
#include "collectives/control/board.h"

#include "collectives/control/deadlines.h"
#include "core/clock.h"
#include "core/process.h"

#include <stdio.h>

#define AT_ONCE 16 /* processes in one look; each takes some 20 us */

static uint64_t interval_ns(const struct board *b)
{
	int ms = b->stopped.silence_ms / 4;
	return MS_TO_NS(ms < BOARD_WATCH_MS ? ms : BOARD_WATCH_MS);
}

static bool is_stopped(const struct board *b, int rank)
{
	return b->pid_fds[rank] >= 0 && process_is_stopped(process_of(b->pid_fds[rank]));
}

static bool awaits(const struct board_wait *wait, int rank)
{
	return !wait->awaits || wait->awaits(wait->arg, rank);
}

/* Returns 1 + the first stopped rank from where the last look ended, or 0. */
static int find_stopped(struct board *b, const struct board_wait *wait)
{
	for (int i = 0, looks = 0; i < b->size && looks < AT_ONCE; i++) {
		int rank = b->stopped.next++ % b->size;
		b->stopped.next %= b->size;
		if (rank == b->rank || !awaits(wait, rank))
			continue;
		looks++;
		if (is_stopped(b, rank))
			return rank + 1;
	}
	return 0;
}

static tutti_status give_up(struct board *b)
{
	char text[ERROR_BYTES], who[128];

	TRY(board_failure(b)); /* another rank may have told it already */
	snprintf(text, sizeof text,
		 "%s is stopped (SIGSTOP, or a debugger), for %.1f s by now (TUTTI_SILENCE_MS; 0: "
		 "wait for ever).",
		 board_who(b, b->stopped.rank - 1, who, sizeof who),
		 (double)b->stopped.lasts_ns * 1e-9);
	return board_decide(b, &(struct failure){.status = TUTTI_ERR_TIMEOUT,
						 .rank = FAILURE_NO_RANK,
						 .is_common = true,
						 .message = text});
}

tutti_status board_check_stopped(struct board *b, const struct board_wait *wait, uint64_t now_ns)
{
	uint64_t passed = now_ns - b->stopped.looked_ns, interval = interval_ns(b);
	int rank = b->stopped.rank - 1;

	if (b->stopped.silence_ms == 0 || passed < interval)
		return TUTTI_OK;
	b->stopped.looked_ns = now_ns;
	if (rank < 0 || !awaits(wait, rank) || !is_stopped(b, rank)) {
		b->stopped.rank = find_stopped(b, wait);
		b->stopped.lasts_ns = 0;
		return TUTTI_OK;
	}
	/* Where this process was itself stopped, or starved, little of the time counts. */
	b->stopped.lasts_ns += passed < 2 * interval ? passed : 2 * interval;
	return b->stopped.lasts_ns < MS_TO_NS(b->stopped.silence_ms) ? TUTTI_OK : give_up(b);
}
