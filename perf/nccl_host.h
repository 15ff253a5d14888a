/* Meetings and small reductions of threads on the host, which end when one of them has failed. For nccl.c. */
#ifndef PERF_NCCL_HOST_H
#define PERF_NCCL_HOST_H

#include <tutti/tutti.h>

#include <stddef.h>

#define NCCL_HOST_RANKS 1024

/* Before the threads begin. */
void nccl_host_open(int ranks);
/* ABORTED: a rank has failed. */
tutti_status nccl_host_meet(void);
/* In place; of the types and operations that the driver uses: else UNSUPPORTED. */
tutti_status nccl_host_all_reduce(int rank, void *data, size_t count, tutti_dtype dtype,
				  tutti_op op);
/* From any thread. */
void nccl_host_abort(void);

#endif
