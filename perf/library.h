/* The library that is measured behind the calls of tutti.h: Tutti, or a peer that makes those calls
 * with its own. A program is linked with one of library.c, mpi.c, gloo.cc
 * and nccl.c. */
#ifndef PERF_LIBRARY_H
#define PERF_LIBRARY_H

#include "collective.h"

/* A kind of call. */
struct request {
	const struct collective *collective;
	tutti_dtype dtype;
	tutti_op op;
	int root;
	bool in_place, is_async, is_zero_copy, is_on_gpu;
};

const char *library_name(void); /* with its version: "Tutti 0.2.0 (4f2a96b0c1d2)" */
/* Why it cannot be asked for that, as a message without its full stop; NULL: it can. */
const char *library_refuses(const struct request *request);

#endif
