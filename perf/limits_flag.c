/* One signal from core to core: two processes on cores of their own hand a line of memory to and
 * fro. On a shared machine it changes within seconds, as the host moves the cores: hence the
 * spread. */
#include "limits.h"

#include <stdio.h>

#define TRIES 101
#define TRIPS 2000

static int limits_flag_body(struct trial *t)
{
	_Atomic uint32_t *mine = &t->shared->lines[0][t->rank].sequence;
	_Atomic uint32_t *other = &t->shared->lines[0][1 - t->rank].sequence;
	static double nanoseconds[TRIES];
	uint32_t sequence = 0;
	int tries = 0;

	while (limits_again(t, tries, TRIES)) {
		double start = limits_now();

		for (int i = 0; i < TRIPS; i++) {
			sequence++;
			if (t->rank == 0)
				atomic_store_explicit(mine, sequence, memory_order_release);
			for (int look = 0;
			     atomic_load_explicit(other, memory_order_acquire) != sequence; look++)
				limits_wait(t, look);
			if (t->rank == 1)
				atomic_store_explicit(mine, sequence, memory_order_release);
		}
		nanoseconds[tries++] = (limits_now() - start) / TRIPS / 2 * 1e9;
	}
	if (t->rank == 0)
		t->shared->found = limits_lowest(nanoseconds, tries);
	return 0;
}

int limits_flag(struct trial *t)
{
	t->ranks = 2;
	t->is_pinned = true;
	if (limits_share_cores(t->ranks)) {
		limits_skip("flag", "there is one core only");
		return 0;
	}
	if (limits_run(t, limits_flag_body) != 0)
		return 1;
	struct spread found = t->shared->found;

	printf("a flag from core to core, one way: %.0f ns at the least (median %.0f, the middle "
	       "half of the tries %.0f-%.0f)\n",
	       found.best, found.middle, found.low, found.high);
	limits_figure_spread("flag_ns", found);
	return 0;
}
