/* Becomes the ranks: processes through tuttirun, or threads of this process. */
#ifndef PERF_START_H
#define PERF_START_H

#include <tutti/tutti.h>

/* Replaces this process by `tuttirun -n ranks` on the same command line without --ranks; a peer may
 * instead fork its ranks, in which this returns -1. Else returns the exit code. */
int start_processes(int ranks, int argc, char **argv);
/* body(comm, arg) in each of n threads; returns the highest of their exit codes. */
int start_threads(int n, const tutti_config *config,
		  int (*body)(tutti_comm *comm, const void *arg), const void *arg);

#endif
