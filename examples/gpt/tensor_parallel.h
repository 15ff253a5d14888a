/* Tensor parallelism: what a rank of "tp" does otherwise than one alone. Heads, the columns of the
 * products that begin a branch and the rows of those that end it, and the vocabulary are divided; the
 * residual stream is on all ranks. For arrays in host memory. */
#ifndef EXAMPLES_GPT_TENSOR_PARALLEL_H
#define EXAMPLES_GPT_TENSOR_PARALLEL_H

#include "layers.h"

#include <tutti/parallel.h>

/* This rank's part. */
struct split {
	tutti_comm *comm;   /* of "tp"; NULL: alone */
	int rank, size;
	int first, vocab;   /* its tokens */
};

/* x (count) = the sum of all ranks' x */
void split_sum(const struct split *split, float *x, int count);
/* out (n, channels): embeddings of this rank's tokens, and on the first rank positions; the sum over
 * ranks is that of embed_forward. token_w (split->vocab, channels). */
void split_embed_forward(const struct split *split, float *out, const unsigned char *tokens,
			 const float *token_w, const float *position_w,
			 struct embedding_shape shape);
void split_embed_backward(const struct split *split, float *token_grad, float *position_grad,
			  const float *out_grad, const unsigned char *tokens,
			  struct embedding_shape shape);
/* softmax_loss, where each rank has the logits (n, split->vocab) of its tokens: one MAX and one SUM
 * of a number a row over the ranks. Adds this rank's share to *sum. scratch (n). */
void split_softmax_loss(const struct split *split, double *sum, float *logits,
			const unsigned char *targets, float *scratch, int n, const float *grad_scale);
/* all (n, vocab) = the logits of all ranks, in the order of tokens. */
void split_gather_logits(const struct split *split, float *all, const float *logits, int n,
			 int vocab);

#endif
