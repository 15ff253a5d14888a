/* nccl-tests' options, and a few of our own. */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "collective.h"

#include <stdbool.h>
#include <stddef.h>

#define ALL (-1) /* -d all, -o all, -r all */

struct options {
	size_t min_bytes, max_bytes;    /* -b -e */
	size_t step_bytes, step_factor; /* -i -f; a factor of 0: steps */
	int factor;                     /* -f, as given; 0: it was not */
	int iterations, warmups;        /* -n -w */
	int aggregated;                 /* -m: calls in flight at once, each counts as one */
	int check, dirty;               /* -c --dirty */
	int dtype, op, root;            /* -d -o -r; ALL */
	int blocking;                   /* -z */
	int threads;                    /* -t times -g: ranks in this process */
	int gpus;                       /* -g; 0: not given, and buffers are in host memory */
	int graphs;                     /* -G: launches of a graph; 0: no graph */
	int unalign;                    /* -u: the buffers' first element */
	int average;                    /* -a */
	int zero_copy;
	int percentiles;  /* also of single calls */
	const char *json; /* -J FILE */
	int load;         /* --load: busy processes beside the ranks of a machine */
	int ranks;        /* --ranks: processes to start; 0: this one is a rank */
};

/* Returns -1 when there is something to measure, else the exit code, as line_parse. */
int options_parse(struct options *options, int argc, char **argv,
		  const struct collective *collective);
/* The size that follows in the sweep; SIZE_MAX after the last. */
size_t options_next_size(const struct options *options, size_t bytes, size_t element);
bool options_include(const struct options *options, tutti_dtype dtype, tutti_op op);

#endif
