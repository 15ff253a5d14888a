/* A stage of the pipeline: layers on one rank, which other ranks reach by a remote reference. */
#ifndef EXAMPLES_RPC_PIPELINE_STAGE_H
#define EXAMPLES_RPC_PIPELINE_STAGE_H

#include <tutti/rpc.h>

enum {
	STAGE_FUNCTIONS = 3,
	STAGES_MOST = 8,
	PARTS_MOST = 64
}; /* PARTS_MOST: micro-batches of a batch */

/* The beginning of a call about a micro-batch; its numbers follow, and then, forward, the labels.
 */
struct ticket {
	int32_t part, rows; /* which micro-batch, of how many samples */
	int32_t at, stages; /* which of the stages is called          */
	tutti_rpc_ref stage[STAGES_MOST];
};

/* "stage.make": builds layers first to last on the rank that is called; the answer is a reference
 * to the stage, which lives until the caller releases it. */
struct stage_layers {
	int32_t first, last;
};

/* "stage.forward": x of the first layer, labels. The stage calls the next one, and answers with
 * that one's answer: the sum of losses, a double, which the last stage knows. "stage.backward",
 * with the current context: the gradient of the stage's result (the last stage has it). The stage
 * adds the gradients of its parameters to the context, and calls the one before. */
extern const tutti_rpc_function stage_functions[];

#endif
