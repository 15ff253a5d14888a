/* Spreads the ranks of a node over its CPUs: a thread's place among the CPUs that they share. */
#ifndef CORE_PLACEMENT_CPU_SPREAD_H
#define CORE_PLACEMENT_CPU_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

/* CPUs are counted from 1; 0 is none, or not known. */
struct spread {
	bool is_on;
	uint32_t waits;              /* its owner's, to look now and then only */
	uint64_t pace_ns;            /* between two looks */
	uint64_t looked_ns, used_ns; /* the last look: when, and this thread's processor time */
	int32_t cpu;                 /* where it was then ... */
	int ranks;                   /* ... and how many ranks were there */
	int32_t from;                /* it has moved, on trial, from here; 0: it is on no trial */
	uint64_t share;              /* that CPU's time for ranks, of a thousand */
	uint64_t rest_ns, again_ns;  /* after a trial that failed: until when it stays */
};

/* The ranks among which this thread, me, has its place. */
struct spread_node {
	int size, me;
	int32_t (*cpu_of)(void *arg, int rank);
	void *arg;
	/* Where nothing changes, looks come this far apart, 0.1 s at most; 0: they stay close. */
	uint64_t pace_most_ns;
};

/* By the thread itself, now and then while it waits: may move it. */
void spread_among(struct spread *spread, const struct spread_node *node);

#endif
