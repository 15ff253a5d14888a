/* Which ranks share this one's CPU. With more ranks than cores, a rank that waits gives the CPU
 * away when it waits for another rank on that CPU. Otherwise it does so only when a root that has
 * run ahead may be waiting for one of them (progress_trails): a rank that is not awaited would go
 * on to its caller's own work, and keep the CPU for that long from one that is in a call.
 *
 * Every rank says where it runs whenever it waits. It may have moved when another rank looks, so
 * this is a hint: a wrong one costs a switch of threads or a few microseconds. */
#include "collectives/window/same_cpu.h"

#include "collectives/window/run_progress.h"

#include <sched.h>

/* 1 + the CPU; 0 where the kernel does not tell. About a nanosecond: the C library looks it up in
 * memory. The word is written only when it changes, since the others have it in their caches. */
static int32_t say(struct window *w)
{
	int32_t cpu = sched_getcpu() + 1;

	if (atomic_load_explicit(&w->area->cpu, memory_order_relaxed) != cpu)
		atomic_store_explicit(&w->area->cpu, cpu, memory_order_relaxed);
	return cpu;
}

bool same_cpu_trails(struct window *w, const struct window_run *run)
{
	struct need need = progress_need(w, run);
	int32_t here = say(w);

	for (int rank = 0; rank < w->size; rank++) {
		int32_t there = atomic_load_explicit(&w->at.areas[rank].cpu, memory_order_relaxed);
		/* A look at the lines of ranks elsewhere would take them from their writers. */
		if ((there == here || !there || !here) && rank != w->rank &&
		    progress_trails(w, run, need, rank))
			return true;
	}
	return false;
}

static int32_t cpu_of(const void *window, int rank)
{
	const struct window *w = window;
	return atomic_load_explicit(&w->at.areas[rank].cpu, memory_order_relaxed);
}

void same_cpu_begin(struct window *w, bool spreads)
{
	w->spread.is_on = spreads;
	w->spread.ranks_here =
		(struct spread_ranks){.size = w->size, .me = w->rank, .cpu_of = cpu_of, .arg = w};
}
