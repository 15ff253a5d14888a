/* The rank that trains: it cuts batches into micro-batches, and sends them through the stages. */
#ifndef EXAMPLES_RPC_PIPELINE_MASTER_H
#define EXAMPLES_RPC_PIPELINE_MASTER_H

#include "stage.h"

struct training {
	int stages, split, batch, steps; /* split: micro-batches of a batch */
	float lr, max_norm;
};
struct training_result {
	double first_loss, last_loss, seconds;
};

/* Makes the stages, on rank 0 if it is alone, else on ranks 1, 2, ...; trains; lets them go. */
tutti_status master_train(tutti_rpc *rpc, const struct training *training,
			  struct training_result *result);

#endif
