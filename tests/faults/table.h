/* Counts runs by kind, point and way, and writes them as a table of docs/measurements/faults.md. */
#ifndef TESTS_FAULTS_TABLE_H
#define TESTS_FAULTS_TABLE_H

#include "tests/faults/job.h"

#include <stdio.h>

struct cell {
	int runs, late, failed, skipped;
	int told;
	double *told_ms;
};

struct table {
	struct cell cells[KINDS][POINTS][WAYS];
};

void table_add(struct table *t, const struct scenario *s, const struct result *r);
struct cell table_sum(const struct table *t); /* without times */
void table_write(const struct table *t, FILE *file);
void table_free(struct table *t);

#endif
