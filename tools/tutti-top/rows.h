/* The table of tutti-top: a line for each rank of each communicator. */
#ifndef TUTTI_TOP_ROWS_H
#define TUTTI_TOP_ROWS_H

#include "tools/attach.h"

/* All that was read at one time. */
struct sample {
	int64_t ns;
	struct log log;
};

/* A line of the table: a communicator of a process. */
struct row {
	const struct trace_process *process;
	const struct trace_comm *comm;
	const struct trace_op *op; /* the oldest in flight, or the latest; NULL: there is none */
	bool waits;                /* op has told what it waits for                            */
	double calls, bytes;       /* begun, and named in calls; a second, since before        */
};

/* The largest communicators first, by rank. The caller frees them, before now is freed. */
struct row *rows_of(const struct sample *before, const struct sample *now, size_t *count);

#define ROW_OPERATION_BYTES 48
/* The operation in words: "all_reduce #5", "send to 3". */
void row_operation(const struct row *row, char text[ROW_OPERATION_BYTES]);
/* Since when op is in flight, or over; for how long at most where is_about is set. */
double row_seconds(const struct row *row, bool *is_about);

/* now, and what has happened since before. */
void sample_print(const struct sample *before, const struct sample *now, FILE *file);

/* rows_json.c: the same as a JSON document. */
void sample_print_json(const struct sample *before, const struct sample *now, FILE *file);

#endif
