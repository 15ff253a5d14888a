/* Pipeline parallelism: the layers in stages, through which a step's micro-batches go. */
#ifndef EXAMPLES_GPT_PIPELINE_H
#define EXAMPLES_GPT_PIPELINE_H

#include "run.h"

/* Of run->mesh and run->gpt. */
struct stages *stages_create(struct run *run);
void stages_destroy(struct stages *stages);
/* One sequence, run->tokens, forward; the last stage's logits are gpt's. */
void stages_evaluate(struct stages *stages);
/* A step's micro-batches, forward and backward, of this many sequences. */
void stages_run(struct stages *stages, int sequences);

#endif
