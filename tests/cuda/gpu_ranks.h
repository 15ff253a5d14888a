/* Ranks that are processes with a GPU each. */
#ifndef TESTS_CUDA_GPU_RANKS_H
#define TESTS_CUDA_GPU_RANKS_H

#include "gpu.h"

#include <tutti/tutti.h>

/* Ends the rank with a message unless status is OK. */
void gpu_rank_must(tutti_status status, const char *what);
/* body(rank, arg) in n processes, which a launcher's environment describes; the rank's GPU is
 * current. Their results must be 0, but for those in may_die, which are killed. Without GPUs the
 * test is skipped. */
void gpu_ranks_run(int n, int (*body)(int rank, int arg), int arg, unsigned may_die);

#endif
