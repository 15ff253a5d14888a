/* The values that forward leaves for backward. */
#ifndef EXAMPLES_GPT_ACTIVATIONS_H
#define EXAMPLES_GPT_ACTIVATIONS_H

#include "gpt.h"
#include "layers.h"

/* Of one block; n = sequences * length rows each. */
struct block_activations {
	float *in, *norm1, *qkv, *weights, *mixed;    /* in: the residual stream (n, c)       */
	float *middle, *norm2, *up, *gelu;            /* middle: the stream after attention   */
	struct norm_stats stats1, stats2;
};

struct gpt_activations {
	int sequences, n;                             /* of the last forward                  */
	unsigned char *tokens, *targets;
	struct block_activations blocks[GPT_MAX_LAYERS];
	float *out, *norm, *logits;                   /* of the head; out: the last stream    */
	float *all_logits;                            /* where "tp" divides the vocabulary    */
	struct norm_stats stats;
	float *stream_grad, *wide_grad, *narrow_grad, *scratch;
	double *loss;
	float *memory;                                /* of place.h, as all of these         */
};

#endif
