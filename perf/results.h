/* What was measured: nccl-tests' table on stdout, and JSON for programs, whose form perf/README.md
 * has. Nothing of the environment is in it. */
#ifndef PERF_RESULTS_H
#define PERF_RESULTS_H

#include "bench.h"
#include "whole_file.h"

struct results {
	double bus_sum;         /* of the busbw column                               */
	int rows, failed;       /* measurements, and those with wrong values         */
	struct whole_file json; /* not open: it is not asked for, or of another rank */
	int json_rows;
};

/* For JSON: finds out whether it can be written; false after a message on stderr. NULL: none. */
bool results_open(struct results *results, const char *path);
void results_begin(struct results *results, const struct bench *bench);
/* Says that something is not measured, and why: "subject: why." */
void results_left_out(const char *subject, const char *why);
/* The two measurements of one size: out of place, in place. */
void results_row(struct results *results, const struct bench *bench, const struct sample samples[2]);
void results_end(const struct results *results);
/* Writes the file if it is complete; false, after a message, when that did not go well. */
bool results_close(struct results *results, const char *path, bool is_complete);

#endif
