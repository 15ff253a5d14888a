/* Inside comm/: the ranks of a process whose job has other processes (config.local_ranks). */
#ifndef COLLECTIVES_COMM_LOCAL_RANKS_H
#define COLLECTIVES_COMM_LOCAL_RANKS_H

#include "collectives/comm/join.h"

/* The job's ranks, of which this process has n from job->rank on. config and the launcher count
 * processes. INVALID: as job_find, and config.local_ranks is not n. */
tutti_status local_ranks_find(struct job *job, int n, const tutti_config *config,
			      const struct env *env);
/* Fills in n communicators, which are empty (comm_new), of the ranks from first->rank on. OK on all
 * ranks of this process or an error, with the message of a rank that has it; then the caller frees
 * all of them. */
tutti_status local_ranks_join(struct tutti_comm **comms, int n, const struct job *first);

#endif
