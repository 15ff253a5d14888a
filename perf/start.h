/* The ranks of a program as threads of this process. */
#ifndef PERF_START_H
#define PERF_START_H

#include <tutti/tutti.h>

/* body(comm, arg) in each of n threads, of one in this thread; returns the highest of their exit
 * codes. */
int start_threads(tutti_comm **comms, int n, int (*body)(tutti_comm *comm, const void *arg),
		  const void *arg);

#endif
