/* Spreads the ranks of a node over its CPUs: a thread's place among the CPUs that they share. */
#ifndef CORE_PLACEMENT_CPU_SPREAD_H
#define CORE_PLACEMENT_CPU_SPREAD_H

#include "core/placement/cpu_location.h"

#include <stdbool.h>
#include <stdint.h>

#define SPREAD_WAITS 16 /* to a look, at the most */

/* The ranks among which a thread, me, has its place. */
struct spread_ranks {
	int size, me;
	/* 1 + the CPU that a rank is on; 0 if unknown. */
	int32_t (*cpu_of)(const void *arg, int rank);
	/* Tells the others, before each look, that this rank is there; NULL: they ask for it. */
	void (*say)(const void *arg, int32_t cpu);
	const void *arg;
	/* Where nothing changes, looks come this far apart, 0.1 s at most; 0 keeps them close. */
	uint64_t pace_most_ns;
	int32_t thread; /* the one that may move, the only one known to others; 0 for any */
};

/* CPUs are counted from 1; 0 is none, or not known. */
struct spread {
	bool is_on;
	struct spread_ranks ranks_here;
	uint32_t waits;
	uint64_t pace_ns;            /* between two looks */
	uint64_t looked_ns, used_ns; /* the last look: when, and this thread's processor time */
	int32_t cpu;                 /* where it was then ... */
	int ranks;                   /* ... and how many ranks were there */
	int32_t from;                /* it has moved, on trial, from here; 0 without a trial */
	uint64_t share;              /* that CPU's time for ranks, of a thousand */
	uint64_t rest_ns, again_ns;  /* after a trial that failed: until when it stays */
};

/* Of ranks that share no memory: the kernel is asked where they run, less and less often. count 0:
 * they are not spread. near stays the caller's. */
void spread_near(struct spread *spread, const struct cpu_location *near, int count, int me);
/* May move the calling thread to a CPU with fewer ranks. */
void spread_look(struct spread *spread);

/* By the thread itself when it waits; one thread at a time. */
static inline void spread_wait(struct spread *s)
{
	if (s->is_on && ++s->waits % SPREAD_WAITS == 0)
		spread_look(s);
}

#endif
