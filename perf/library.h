/* The library that is measured: Tutti, or a peer. A program is linked with one of library.c, mpi.c,
 * gloo.cc and nccl.c. Ranks are started, meet and add up their results by Tutti in each of them. */
#ifndef PERF_LIBRARY_H
#define PERF_LIBRARY_H

#include "collective.h"

#define LIBRARY_MISSING 77 /* the exit code: nothing can be compared */

/* A kind of call. */
struct request {
	const struct collective *collective;
	tutti_dtype dtype;
	tutti_op op;
	int root;
	bool in_place, is_async, is_zero_copy, is_on_gpu;
};

/* Whether communicators are made where a GPU is current, so that Tutti's kernels may meet. */
extern const bool library_has_kernels;
const char *library_name(void); /* with its version: "Tutti 0.2.0 (4f2a96b0c1d2)" */
/* Why its ranks cannot be these, as a message without its full stop; NULL: they can. Neither: this
 * process is a rank. *code: the program's exit code. */
const char *library_refuses_ranks(bool are_processes, bool are_threads, int *code);
/* Why it cannot be asked for that, as a message without its full stop; NULL: it can. */
const char *library_refuses(const struct request *request);
/* Collective: the rank joins the same ranks of the library. leave: also after a failure. */
tutti_status library_join(tutti_comm *comm);
void library_leave(void);
/* A failure of it, and of library_join, is this thread's last error. A barrier without a call is the
 * driver's, before others are timed. */
tutti_status library_call(const struct operation *operation);

#endif
