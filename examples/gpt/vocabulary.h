/* The layers that look at the vocabulary, whose tokens the ranks of "tp" divide: embedding, scores
 * and loss. Rows are divided as tensor_parallel.h says; n are those of all ranks of "tp". */
#ifndef EXAMPLES_GPT_VOCABULARY_H
#define EXAMPLES_GPT_VOCABULARY_H

#include "context_parallel.h"
#include "tensor_parallel.h"

struct vocabulary {
	const struct split *split;
	const struct context *context;
	int channels;
};

/* out (n / size, channels) = the embeddings of tokens (n), and of their positions. token_w
 * (split->vocab, channels). */
void vocabulary_embed_forward(struct vocabulary v, float *out, const unsigned char *tokens,
			      const float *token_w, const float *position_w, int n);
/* position_grad is a part of the gradient: of this rank's rows. */
void vocabulary_embed_backward(struct vocabulary v, float *token_grad, float *position_grad,
			       const float *out_grad, const unsigned char *tokens, int n);
/* scores (n, split->vocab) = all ranks' in (n / size, channels) * transposed token_w. scratch has
 * room for token_w. */
void vocabulary_scores_forward(struct vocabulary v, float *scores, float *scratch, const float *in,
			       const float *token_w, int n);
/* in_grad (n / size, channels). A gradient that is NULL is not wanted. */
void vocabulary_scores_backward(struct vocabulary v, float *in_grad, float *token_grad,
				const float *scores_grad, const float *in, const float *token_w,
				int n);
/* softmax_loss of the scores of all ranks: one MAX and one SUM of a number a row. Adds this rank's
 * share to *sum. scratch (n). */
void vocabulary_loss(struct vocabulary v, double *sum, float *scores, const unsigned char *targets,
		     float *scratch, int n, const float *grad_scale);

#endif
