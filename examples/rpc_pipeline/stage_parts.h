/* A stage inside: its layers, and the micro-batches that it has between forward and backward. */
#ifndef EXAMPLES_RPC_PIPELINE_STAGE_PARTS_H
#define EXAMPLES_RPC_PIPELINE_STAGE_PARTS_H

#include "layers.h"
#include "stage.h"

#include <pthread.h>

#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

/* Between forward and backward of a micro-batch: what each layer had and made, in one block. */
struct kept {
	int rows;
	float *block;
	float *x[LAYERS + 1]; /* x[i + 1] is the result of layer i of the stage */
	float *hidden[LAYERS];
};

struct stage {
	tutti_rpc *rpc;
	int num_layers, num_params;
	struct layer layers[LAYERS];
	int params[LAYERS * LAYER_PARAMS]; /* numbers in the rpc, layer by layer */
	pthread_mutex_t lock;              /* of kept */
	struct kept *kept[PARTS_MOST];
};

tutti_status stage_no_memory(void);

/* Room for all that a micro-batch has in this stage; NULL: there is no memory. */
struct kept *kept_make(const struct stage *stage, int rows);
void kept_free(struct kept *kept); /* NULL is fine */
/* Stores it for backward. Returns what was there: of a batch that failed. NULL takes it out. */
struct kept *kept_exchange(struct stage *stage, int part, struct kept *kept);

/* visit.c: the functions of the rpc. */
tutti_status stage_on_forward(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply);
tutti_status stage_on_backward(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply);

#endif
