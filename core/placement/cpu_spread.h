/* A thread's place among the CPUs that the waiting ranks of its node share. */
#ifndef CORE_PLACEMENT_CPU_SPREAD_H
#define CORE_PLACEMENT_CPU_SPREAD_H

#include <stdbool.h>
#include <stdint.h>

struct spread {
	bool is_on;
	uint32_t waits;              /* the owner's, to look now and then only */
	uint64_t pace_ns;            /* between two looks */
	uint64_t looked_ns, used_ns; /* the last look: when, and this thread's processor time */
	int32_t cpu; /* 1 + where it was then */
	int ranks;   /* and how many were there */
	int32_t from;   /* it has moved, on trial, from here; 0: no */
	uint64_t share; /* and that CPU's time for ranks, of a thousand */
	uint64_t rest_ns, again_ns; /* after a move that was none for the better: until when it stays */
};

/* The ranks among which this thread, me, has its place. */
struct spread_node {
	int size, me;
	int32_t (*cpu_of)(void *arg, int rank); /* 1 + the CPU that it runs on; 0: not known */
	void *arg;
	uint64_t pace_most_ns; /* looks come this far apart where nothing changes, 0.1 s at most; 0: as often
				* as it makes sense */
};

/* From the calling thread, now and then while it waits: may move it. */
void spread_among(struct spread *spread, const struct spread_node *node);

#endif
