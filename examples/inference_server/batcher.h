/* The queue of requests and the thread that computes them: one at a time, or in batches. */
#ifndef EXAMPLES_INFERENCE_SERVER_BATCHER_H
#define EXAMPLES_INFERENCE_SERVER_BATCHER_H

#include "job.h"

struct batcher;

/* Starts the thread. job and mlp stay until batcher_destroy. MEMORY, SYSTEM. */
tutti_status batcher_create(struct batcher **batcher, const struct job *job, const struct mlp *mlp);
/* Answers what waits, and ends the thread; later requests are refused with ABORTED. Before
 * tutti_rpc_destroy. */
void batcher_stop(struct batcher *batcher);
/* After it. NULL is fine. */
void batcher_destroy(struct batcher *batcher);
/* The function infer: a tutti_rpc_fn. */
tutti_status batcher_infer(void *batcher, const tutti_rpc_request *request, tutti_rpc_reply *reply);
/* From now on so many requests together, after this delay at most. */
void batcher_set_mode(struct batcher *batcher, int batch, int delay_us);

struct batcher_counts {
	int64_t begun_ns, ended_ns; /* the first request, the last answer */
	int64_t requests, batches;
};
/* Since the last time. */
struct batcher_counts batcher_take_counts(struct batcher *batcher);

#endif
