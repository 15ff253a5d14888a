/* One benchmark program's description of its collective; everything else is the driver's. */
#ifndef PERF_COLLECTIVE_H
#define PERF_COLLECTIVE_H

#include "values.h"

struct place {
	int rank, ranks, root;
};

/* In elements. In place both buffers lie in one, the parts that send and recv are at these offsets.
 */
struct shape {
	size_t count;      /* the argument of the call */
	size_t whole;      /* nccl-tests' "size": the same on every rank */
	size_t send, recv; /* how many the buffers hold; of 0: NULL */
	size_t send_in_place, recv_in_place;
};

struct operation {
	const void *send;
	void *recv;
	size_t count;
	tutti_dtype dtype;
	tutti_op op;
	int root;
	tutti_comm *comm;
	const tutti_call *call; /* NULL: blocking */
};

/* The data that arrived at one rank in one iteration. */
struct arrival {
	const struct values *values;
	const unsigned char *recv;
	size_t count;
	struct place at;
	uint64_t iteration;
};

struct collective {
	const char *name;
	bool is_reduced, has_root, is_never_in_place;
	/* For a message of that many elements (nccl-tests' "size"), which may round it down. NULL:
	 * it carries no data, as a barrier. */
	struct shape (*shape)(size_t elements, struct place at);
	tutti_status (*call)(const struct operation *operation);
	/* NULL without data: then no rank may return from a call that another has not yet made. */
	uint64_t (*wrong)(const struct arrival *arrival);
	double (*bus_factor)(int ranks); /* busbw / algbw, as nccl-tests defines it */
};

/* A benchmark's main. Returns the exit code: 0, 1 wrong values, 2 a bad command line, 3 a call or
 * the output failed. */
int perf_main(int argc, char **argv, const struct collective *collective);

#endif
