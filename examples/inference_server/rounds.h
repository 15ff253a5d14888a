/* The rounds of the measurement, as the server sees them: all clients end a round before any begins
 * the next one, and those that die are not waited for. */
#ifndef EXAMPLES_INFERENCE_SERVER_ROUNDS_H
#define EXAMPLES_INFERENCE_SERVER_ROUNDS_H

#include "batcher.h"

struct rounds;

/* The first round is one at a time. job and batcher stay until rounds_destroy. MEMORY. */
tutti_status rounds_create(struct rounds **rounds, const struct job *job, struct batcher *batcher);
/* Serves until all rounds are done, or all clients are dead. */
void rounds_wait(struct rounds *rounds);
/* Before tutti_rpc_destroy: clients that wait get ABORTED, and so do those that come. */
void rounds_stop(struct rounds *rounds);
/* After it. NULL is fine. */
void rounds_destroy(struct rounds *rounds);
/* The function round_end, and what tutti_rpc_config.died is. */
tutti_status rounds_end_one(void *rounds, const tutti_rpc_request *request, tutti_rpc_reply *reply);
void rounds_died(void *rounds, int rank);
/* The table on stdout. PEER: no client has come to the end. */
tutti_status rounds_print(struct rounds *rounds);

#endif
