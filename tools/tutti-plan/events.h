/* A queue of events in virtual time: a radix heap, quick because time never goes back. */
#ifndef TUTTI_PLAN_EVENTS_H
#define TUTTI_PLAN_EVENTS_H

#include <stddef.h>
#include <stdint.h>

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
