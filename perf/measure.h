/* What programs of measurements share: clocks, medians, and calls that must succeed. */
#ifndef PERF_MEASURE_H
#define PERF_MEASURE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <tutti/tutti.h>

#define MUST(call)                                                                                 \
	((call) == TUTTI_OK ? (void)0                                                              \
			    : (fprintf(stderr, "%s: %s\n", program_invocation_short_name,          \
				       tutti_comm_error(NULL)),                                    \
			       exit(3)))

#define MEASURE_ROUNDS 1000

/* By CLOCK_MONOTONIC, or of processor time. */
static inline double measure_seconds(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline int measure_compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;

	return (left > right) - (left < right);
}

/* Sorts them. */
static inline double measure_median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, measure_compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* Measures each way in each round, another one first; a round before them does not count (-1). */
static inline void measure_turns(int rounds, int ways,
				 void (*measure)(void *arg, int way, int round), void *arg)
{
	for (int round = -1; round < rounds; round++)
		for (int i = 0; i < ways; i++)
			measure(arg, (i + round + ways) % ways, round);
}

#endif
