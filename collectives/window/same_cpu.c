/* Which ranks share this one's CPU: with more ranks than cores, a rank that waits gives the CPU
 * away when it waits for another there, and else only when a root that has run ahead may be waiting
 * for one (window_trails). A rank that is neither would go on to its caller's own work with the
 * data that it finds, and keep the CPU for that long from one that is in a call.
 *
 * Every rank says where it runs whenever it waits. It may be elsewhere by the time that somebody
 * looks, so this is a hint: a wrong one costs a switch of threads or a few microseconds. */
#include "collectives/window/window_internal.h"

#include <sched.h>

/* 1 + the CPU; 0 where the kernel does not tell. About a nanosecond: the C library looks it up in
 * memory. The word is written only when it changes, since the others have it in their caches. */
int32_t same_cpu_say(struct window *w)
{
	int32_t cpu = sched_getcpu() + 1;

	if (atomic_load_explicit(&w->area->cpu, memory_order_relaxed) != cpu)
		atomic_store_explicit(&w->area->cpu, cpu, memory_order_relaxed);
	return cpu;
}

bool same_cpu_trails(struct window *w, const struct window_run *run)
{
	struct need need = window_need(w, run);
	int32_t here = same_cpu_say(w);

	for (int rank = 0; rank < w->size; rank++) {
		int32_t there = atomic_load_explicit(&w->areas[rank].cpu, memory_order_relaxed);
		/* Lines of ranks elsewhere are not looked at: that would take them from their
		 * writers. */
		if ((there == here || !there || !here) && rank != w->rank &&
		    window_trails(w, run, need, rank))
			return true;
	}
	return false;
}
