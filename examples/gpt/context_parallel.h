/* Context parallelism: the ranks of "cp" divide each sequence (part_position). Causal attention gives
 * all of them the same work. Only attention looks at other ranks' tokens, in one of two forms:
 *
 * ring: keys and values of one rank after another come to the queries of this one.
 * heads: an all_to_all gives each rank some heads of whole sequences, and another one takes the
 * result back.
 *
 * For arrays in host memory, but where there is one rank. */
#ifndef EXAMPLES_GPT_CONTEXT_PARALLEL_H
#define EXAMPLES_GPT_CONTEXT_PARALLEL_H

#include "layers.h"

#include <tutti/parallel.h>

#include <stdbool.h>

struct context {
	tutti_comm *comm;   /* of "cp"; NULL: alone                  */
	int rank, size;
	int length;         /* of this rank's part of each sequence  */
	bool by_heads;
};

/* The values that backward needs of forward. */
struct context_memory {
	float *qkv;          /* the caller's; heads: of this rank's heads of whole sequences        */
	float *weights;      /* softmax; ring: logarithms of sums of exponentials                   */
	const float *out;    /* the caller's                                                        */
};

struct attention {
	const struct context *context;
	struct attention_shape s;    /* of this rank's rows: s.length is context->length        */
	const struct context_memory *memory;
	float *scratch;
};

/* Floats of memory->weights, and of the scratch of both functions. */
size_t context_weights(const struct context *context, struct attention_shape s);
size_t context_scratch(const struct context *context, struct attention_shape s);
/* out (sequences, length, channels). qkv (sequences, length, 3, channels) is memory->qkv, unless
 * the form is heads. */
void context_attention_forward(const struct attention *attention, float *out, const float *qkv);
void context_attention_backward(const struct attention *attention, float *qkv_grad,
				const float *out_grad);

#endif
