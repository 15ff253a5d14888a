/* nccl-tests' table. */
#ifndef PERF_TABLE_H
#define PERF_TABLE_H

#include "bench.h"

struct table {
	double bus_sum;              /* of the busbw column                      */
	int rows, failed;            /* measurements, and those with wrong values */
};

void table_begin(const struct bench *bench);
/* Says that something is not measured, and why: "subject: why." */
void table_left_out(const char *subject, const char *why);
/* The two measurements of one size: out of place, in place. */
void table_row(struct table *table, const struct bench *bench, const struct sample samples[2]);
void table_end(const struct table *table);

#endif
