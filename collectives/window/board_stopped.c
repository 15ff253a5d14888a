/* Ranks whose processes are stopped (SIGSTOP, a debugger, a batch system). The kernel says that of
 * every process of the node. A rank that computes or sleeps in a call of its own is not stopped. */
#include "collectives/window/board.h"

#include "core/process.h"

#define INTERVAL_MS_MAX 250
#define AT_ONCE         16 /* processes in one look; each takes some 20 us */

static uint64_t interval_ns(const struct board *b)
{
	uint32_t ms = b->stopped.silence_ms / 4;
	return (uint64_t)(ms < INTERVAL_MS_MAX ? ms : INTERVAL_MS_MAX) * 1000000u;
}

static bool is_stopped(const struct board *b, int rank)
{
	return b->pid_fds[rank] >= 0 && process_is_stopped(process_of(b->pid_fds[rank]));
}

static bool awaits(const struct board_wait *wait, int rank)
{
	return !wait->awaits || wait->awaits(wait->arg, rank);
}

/* 1 + the first stopped rank from where the last look ended; 0: none. */
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

static tutti_status give_up(struct board *b, const struct board_wait *wait)
{
	int rank = b->stopped.rank - 1;
	char process[80], call[192];

	TRY(board_failure(b)); /* another rank may have told it already */
	b->is_stopped = true;
	return fail(
		TUTTI_ERR_TIMEOUT,
		"Rank %d (process %s) is stopped (by SIGSTOP or a debugger), for %.1f s by now, "
		"and rank %d waits for it in %s. TUTTI_SILENCE_MS sets how long that may last.",
		rank, board_process(b, rank, process, sizeof process),
		(double)b->stopped.lasts_ns * 1e-9, b->rank,
		wait->describe(wait->arg, call, sizeof call));
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
	return b->stopped.lasts_ns < (uint64_t)b->stopped.silence_ms * 1000000u ? TUTTI_OK
										: give_up(b, wait);
}
