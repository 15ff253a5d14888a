/* Medians of a benchmark's rounds. */
#ifndef PERF_MEDIAN_H
#define PERF_MEDIAN_H

#include <stdlib.h>

static inline int median_compare(const void *a, const void *b)
{
	double left = *(const double *)a, right = *(const double *)b;
	return (left > right) - (left < right);
}

/* Sorts them. */
static inline double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, median_compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

#endif
