/* The results as JSON, for programs: perf/README.md has its form. Nothing of the environment is in
 * it. */
#ifndef PERF_JSON_H
#define PERF_JSON_H

#include "bench.h"
#include "whole_file.h"

#include <stdio.h>

struct json {
	const char *path; /* NULL: not asked for, and nothing here does anything */
	FILE *file;       /* the output's stream */
	struct whole_file output;
	int rows;
};

/* Finds out whether it can be written; false after a message on stderr. */
bool json_open(struct json *json, const char *path);
void json_begin(struct json *json, const struct bench *bench);
void json_row(struct json *json, const struct bench *bench, const struct sample *sample);
/* Writes the file if it is complete; false, after a message, when that did not go well. */
bool json_close(struct json *json, bool is_complete);

#endif
