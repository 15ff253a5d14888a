/* A client: sends requests, some at once, and compares each answer with its own. */
#ifndef EXAMPLES_INFERENCE_SERVER_CLIENT_H
#define EXAMPLES_INFERENCE_SERVER_CLIENT_H

#include "job.h"

/* All rounds. INTERNAL: an answer is not what this rank computes. */
tutti_status client_run(tutti_rpc *rpc, const struct job *job, const struct mlp *mlp);

#endif
