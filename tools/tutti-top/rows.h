/* The table of tutti-top: a line for each rank of each communicator. */
#ifndef TUTTI_TOP_ROWS_H
#define TUTTI_TOP_ROWS_H

#include "collectives/trace/trace_log.h"

/* All that was read at one time. */
struct sample {
	int64_t ns;
	struct trace_process *processes;
	size_t count;
};

/* The sample owns what process has from then on. */
void sample_add(struct sample *sample, const struct trace_process *process);
void sample_free(struct sample *sample);
/* now, and what has happened since before. */
void sample_print(const struct sample *before, struct sample *now, FILE *file);

#endif
