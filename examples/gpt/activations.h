/* The values that forward leaves for backward. */
#ifndef EXAMPLES_GPT_ACTIVATIONS_H
#define EXAMPLES_GPT_ACTIVATIONS_H

#include "gpt.h"

/* Of one block. Ranks of "tp" divide the rows of the streams and norms, own of n; inside of a branch
 * they have all n rows and divide channels. */
struct block_activations {
	float *in;                                    /* the residual stream (own, c)         */
	float *norm1, *mixed;
	struct context_memory attention;
	float *middle, *norm2, *up, *gelu;            /* middle: the stream after attention   */
	struct norm_stats stats1, stats2;
	struct expert_memory experts;                 /* instead of up and gelu               */
	/* For gpt_stage_weights: gradients of what norms and products write. */
	float *norm1_grad, *qkv_grad, *proj_grad, *norm2_grad, *up_grad, *down_grad;
};

struct gpt_activations {
	int sequences, n, own;                        /* of the last forward                  */
	unsigned char *tokens, *targets;
	struct block_activations blocks[GPT_MAX_LAYERS];
	float *out, *norm, *logits;                   /* of the head; out: the last stream    */
	struct norm_stats stats;
	float *stream_grad, *wide_grad, *narrow_grad, *scratch;
	float *embed_grad, *norm_grad;                /* for gpt_stage_weights                */
	double *loss;
	float *memory;                                /* of all of these                     */
	int is_shared;                                /* memory: with peers; else of place.h */
};

#endif
