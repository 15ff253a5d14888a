/* Ranks that are processes with a GPU each. */
#ifndef TESTS_CUDA_GPU_RANKS_H
#define TESTS_CUDA_GPU_RANKS_H

#include "gpu.h"

#include <tutti/tutti.h>

/* Ends the rank with a message unless status is OK. */
void gpu_rank_must(tutti_status status, const char *what);
/* body(rank, arg) in n processes, which a launcher's environment describes; the rank's GPU is
 * current. Their results must be 0, but for those in may_die, which are killed. Without GPUs the
 * test is skipped, and also where a result is 77. */
void gpu_ranks_run(int n, int (*body)(int rank, int arg), int arg, unsigned may_die);

/* All GPUs of the ranks to come are those of one machine, whose processes take turns on them. Ends
 * with gpu_ranks_apart. */
void gpu_ranks_together(void);
void gpu_ranks_apart(void);
/* Looks until comm has failed. false, with a message: not with this status and this text. */
bool gpu_ranks_fail(tutti_comm *comm, tutti_status status, const char *says);

#endif
