/* The same training without servers: a tutti_trainer all-reduces the gradients. */
#ifndef EXAMPLES_PARAMETER_SERVER_DDP_H
#define EXAMPLES_PARAMETER_SERVER_DDP_H

#include "job.h"

/* All ranks are workers. Prints what the servers print. */
tutti_status ddp_run(tutti_comm *comm, const struct job *job);

#endif
