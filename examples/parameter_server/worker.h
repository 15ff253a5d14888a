/* A worker: pulls the parameters that its samples use, and pushes their gradients. */
#ifndef EXAMPLES_PARAMETER_SERVER_WORKER_H
#define EXAMPLES_PARAMETER_SERVER_WORKER_H

#include "job.h"

/* All steps, and the report of the loss at the end. The message of an error names the server. */
tutti_status worker_run(tutti_rpc *rpc, const struct job *job);

#endif
