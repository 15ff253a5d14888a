/* When calls began and ended, and what that says: that a barrier was none, how long a call takes.
 * Knows nothing of buffers. */
#ifndef PERF_STAMPS_H
#define PERF_STAMPS_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STAMPS_MAX 512 /* of one burst */

/* Of one burst's calls on this rank, in nanoseconds of CLOCK_MONOTONIC. */
struct stamps {
	uint64_t enter[STAMPS_MAX], leave[STAMPS_MAX];
};

/* Of single calls, in microseconds. */
struct percentiles {
	double p50, p99, min, max;
};

/* How long each of a measurement's calls took, in nanoseconds. */
struct latencies {
	double *ns;
	size_t count, room;
};

/* The time of one look at the clock, in nanoseconds: the median of many. */
double stamps_clock_ns(void);
/* The sum of the n calls' times, in seconds. */
double stamps_seconds(const struct stamps *stamps, size_t n);
/* Collective. How many of n calls this rank has left before every rank had entered them; by the one
 * clock of ranks on one machine. */
tutti_status stamps_early(const struct stamps *stamps, size_t n, tutti_comm *comm, uint64_t *early);

/* The memory for that many, with the memory that sorting takes. */
size_t latencies_bytes(size_t room);
/* Room for that many; false without memory. */
bool latencies_init(struct latencies *latencies, size_t room);
void latencies_finish(struct latencies *latencies);
void latencies_add(struct latencies *latencies, const struct stamps *stamps, size_t n);
/* Collective. A call is as long as on the rank where it took longest. Leaves the latencies sorted.
 */
tutti_status latencies_combine(struct latencies *latencies, tutti_comm *comm,
			       struct percentiles *percentiles);

#endif
