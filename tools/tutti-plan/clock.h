/* Runs a world in virtual time and says how long it takes.
 *
 * A message of b bytes takes alpha + b * beta. For overhead + b * beta of it it has its sender's send port to
 * itself, and then its receiver's receive port; between nodes it also shares its node's ports, for b * node_beta.
 * A reduction takes gamma for each byte that it adds; copies are free. Sends leave in the order in which they
 * become ready. Slices, lanes and depths are those of run.c. */
#ifndef TUTTI_PLAN_CLOCK_H
#define TUTTI_PLAN_CLOCK_H

#include "world.h"

struct machine {
	struct links links;
	double node_beta;
	size_t element, slice_bytes, scratch_bytes;
	bool rendezvous; /* a send waits until its receive is posted */
};

/* How a chunk is cut, by the rules of run.c. */
struct slices {
	uint32_t count;
	double chunk, slice; /* bytes; chunk on the average, when it is not whole */
};
struct slices clock_cut(const struct machine *machine, double chunk_bytes, uint32_t width);

struct run_time {
	double seconds;
	uint64_t messages, bytes; /* sent, by all ranks of the world */
	int stuck;                /* the first rank that never ended, or -1 */
	uint32_t stuck_step;      /* the step that it waits for */
};
struct run_time clock_run(const struct world *world, const struct machine *machine,
			  struct slices slices);

/* A queue of events in virtual time: a radix heap, quick because time never goes back. */
struct event {
	uint64_t at;       /* picoseconds */
	uint32_t kind, lane, io;
	float bytes;
};

/* bucket[0] is due at now; bucket[b] differs from now in bit b - 1 first. */
struct events {
	struct {
		struct event *event;
		size_t count, room;
	} bucket[65];
	uint64_t now;
	size_t pending;
};

void events_open(struct events *events);
void events_close(struct events *events);
void events_add(struct events *events, struct event event); /* not before now */
/* Sets now to the time of the earliest events and hands out all that are due then; the array is the queue's,
 * until the next call. Returns how many; 0: there are none left. */
size_t events_take(struct events *events, const struct event **due);

#endif
