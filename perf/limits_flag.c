/* One signal from core to core: two processes on cores of their own hand a line of memory to and
 * fro. On a shared machine it changes within seconds, as the host moves the cores: hence the
 * spread. */
#include "limits.h"

#include <stdio.h>
#include <sys/mman.h>

#define TRIES 101
#define TRIPS 2000

static int body(struct trial *t)
{
	_Atomic uint32_t *mine = &t->shared->lines[0][t->rank].sequence;
	_Atomic uint32_t *other = &t->shared->lines[0][1 - t->rank].sequence;
	static double seconds[TRIES];
	uint32_t sequence = 0;

	for (int try = 0; try < TRIES; try++) {
		double start;

		limits_meet_again(t);
		start = limits_now();
		for (int i = 0; i < TRIPS; i++) {
			sequence++;
			if (t->rank == 0)
				atomic_store_explicit(mine, sequence, memory_order_release);
			while (atomic_load_explicit(other, memory_order_acquire) != sequence)
				pause_core();
			if (t->rank == 1)
				atomic_store_explicit(mine, sequence, memory_order_release);
		}
		seconds[try] = (limits_now() - start) / TRIPS / 2;
	}
	for (int i = 0; i < 3; i++)
		t->shared->figures[t->rank][i] = limits_middle(seconds, TRIES, 0.25 * (i + 1));
	return 0;
}

int limits_flag(void)
{
	struct trial t = {.ranks = 2, .shared = limits_shared()};
	const double *found;

	if (!t.shared)
		return 1;
	if (limits_cores() < 2) {
		printf("a flag from core to core: there is one core only\n");
		return 0;
	}
	if (limits_run_pinned(t, body) != 0)
		return 1;
	found = t.shared->figures[0];
	printf("a flag from core to core, one way: %.0f ns (%.0f-%.0f, the middle half of %d)\n",
	       found[1] * 1e9, found[0] * 1e9, found[2] * 1e9, TRIES);
	limits_figure("flag_low_ns", found[0] * 1e9);
	limits_figure("flag_ns", found[1] * 1e9);
	limits_figure("flag_high_ns", found[2] * 1e9);
	munmap(t.shared, sizeof *t.shared);
	return 0;
}
