/* A transformer block on this rank's part: attention, and a second branch, which is two products or
 * a mixture of experts. */
#ifndef EXAMPLES_GPT_BLOCK_H
#define EXAMPLES_GPT_BLOCK_H

#include "gpt.h"

/* The values and gradients of parameters, while their unit is open. */
const float *gpt_data(const struct gpt *gpt, int param);
float *gpt_grad(const struct gpt *gpt, int param);

/* The stream that a layer writes: the next block's, or the head's. */
float *block_stream_after(const struct gpt *gpt, int layer);
void block_forward(struct gpt *gpt, int layer);
/* stream_grad is the gradient of the block's output, and becomes that of its input. */
void block_backward(struct gpt *gpt, int layer);
/* With weights_later: what block_backward left out. */
void block_weights(struct gpt *gpt, int layer);

#endif
