/* A job of tuttirun on this machine, seen from outside: its processes. */
#ifndef TOOLS_JOB_H
#define TOOLS_JOB_H

#include <stdbool.h>
#include <stddef.h>

/* A process below tuttirun. */
struct job_process {
	int pid;
	int leader; /* the process that tuttirun has started for its rank: itself, or above it   */
	int rank;   /* -1: it cannot be read                                                     */
};

struct job_list {
	struct job_process *processes; /* those of a rank together, its leader first          */
	size_t count;
};

/* Whether the process is a tuttirun. */
bool job_is_launcher(int pid);
struct job_list job_list(int launcher);

#endif
