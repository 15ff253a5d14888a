/* Ranks whose processes are stopped (SIGSTOP, a debugger, a batch system): not dead, but whoever
 * waits for one waits in vain. The kernel says it of every process of the node; a rank that
 * computes, or sleeps in a call of its own, is none of them. */
#include "collectives/window/window_internal.h"

#include "core/process.h"

#define INTERVAL_MS_MAX 250
#define AT_ONCE         16 /* processes that are looked at in one go; each takes some 20 us */

void window_watch(struct window *w, uint32_t silence_ms)
{
	w->stopped.silence_ms = silence_ms;
}

bool window_is_stopped(const struct window *w)
{
	return w->is_stopped;
}

static uint64_t interval_ns(const struct window *w)
{
	uint32_t ms = w->stopped.silence_ms / 4;
	return (uint64_t)(ms < INTERVAL_MS_MAX ? ms : INTERVAL_MS_MAX) * 1000000u;
}

static bool is_stopped(const struct window *w, int rank)
{
	int pid_fd = w->segment->pid_fds[rank];
	return pid_fd >= 0 && process_is_stopped(process_of(pid_fd));
}

/* 1 + the first that is found, from where the last look ended; 0: none. */
static int find_stopped(struct window *w, const struct window_run *run)
{
	for (int i = 0, looks = 0; i < w->size && looks < AT_ONCE; i++) {
		int rank = w->stopped.next++ % w->size;
		w->stopped.next %= w->size;
		if (rank == w->rank || (run && !failure_waits_for(w, run, rank)))
			continue;
		looks++;
		if (is_stopped(w, rank))
			return rank + 1;
	}
	return 0;
}

static tutti_status give_up(struct window *w, const char *call)
{
	int rank = w->stopped.rank - 1;
	char process[80];

	w->is_stopped = true;
	return fail(TUTTI_ERR_TIMEOUT,
		    "Rank %d (process %s) is stopped (SIGSTOP, or a debugger), for %.1f s by "
		    "now, and rank %d waits for it in %s (TUTTI_SILENCE_MS; 0: wait for ever).",
		    rank, failure_process(w, rank, process, sizeof process),
		    (double)w->stopped.lasts_ns * 1e-9, w->rank, call);
}

/* A process that was itself stopped, or starved, looks late: the pause is nobody's fault. */
tutti_status stopped_look(struct window *w, const struct window_run *run, const char *call,
			  uint64_t now_ns)
{
	uint64_t passed = now_ns - w->stopped.looked_ns, interval = interval_ns(w);
	int rank = w->stopped.rank - 1;

	if (w->stopped.silence_ms == 0 || passed < interval)
		return TUTTI_OK;
	w->stopped.looked_ns = now_ns;
	bool is_still =
		rank >= 0 && (!run || failure_waits_for(w, run, rank)) && is_stopped(w, rank);
	if (!is_still) {
		w->stopped.rank = find_stopped(w, run);
		w->stopped.lasts_ns = 0;
		return TUTTI_OK;
	}
	w->stopped.lasts_ns += passed < 2 * interval ? passed : 2 * interval;
	if (w->stopped.lasts_ns < (uint64_t)w->stopped.silence_ms * 1000000u)
		return TUTTI_OK;
	TRY(failure_seen(w)); /* another may have told it already */
	return give_up(w, call);
}
