/* Tensor and sequence parallelism: the ranks of "tp" divide the products of a layer, each has some
 * columns of the weight that begins a branch and some rows of the one that ends it. Between the
 * branches they divide the rows of the residual stream. A branch begins with a gather of rows and
 * ends with a scatter of their sums; while a product of one rank's rows is computed those of other
 * ranks travel. They divide the vocabulary, too. For arrays in host memory, but where there is one
 * rank.
 *
 * n is the number of rows of all ranks together, each of which has n / size of them. */
#ifndef EXAMPLES_GPT_TENSOR_PARALLEL_H
#define EXAMPLES_GPT_TENSOR_PARALLEL_H

#include "layers.h"

#include <tutti/parallel.h>

#include <stdbool.h>

/* This rank's part. */
struct split {
	tutti_comm *comm;   /* of "tp"; NULL: alone */
	int rank, size;
	int first, vocab;   /* its tokens */
};

struct product {
	const float *weight, *bias;   /* (ins, outs), (outs): this rank's; bias may be NULL */
	int ins, outs;
	bool ends_branch;
	bool is_transposed;           /* weight (outs, ins), and there is no bias */
};

/* out = in * weight + bias. One that begins a branch has in (n / size, ins) of each rank, out (n, outs). One
 * that ends it has in (n, ins), and out (n / size, outs): this rank's rows of the sum over ranks. scratch has
 * room for the weight. */
void split_forward(const struct split *split, const struct product *product, float *out,
		   const float *in, float *scratch, int n);
/* grads->in as in, out_grad as out. At the end of a branch grads->bias is a part of the gradient: of this rank's
 * rows. */
void split_backward(const struct split *split, const struct product *product,
		    const struct linear_grads *grads, const float *out_grad, const float *in, int n);

/* out (n / size, channels) = the embeddings of tokens (n), and of their positions. shape: of all rows. The gradient
 * of positions is a part: of this rank's rows. */
void split_embed_forward(const struct split *split, float *out, const unsigned char *tokens,
			 const float *token_w, const float *position_w, struct embedding_shape shape);
void split_embed_backward(const struct split *split, float *token_grad, float *position_grad,
			  const float *out_grad, const unsigned char *tokens,
			  struct embedding_shape shape);
/* softmax_loss of scores (n, split->vocab) of all ranks: one MAX and one SUM of a number a row. Adds this rank's
 * share to *sum. scratch (2 * n). */
void split_loss(const struct split *split, double *sum, float *scores, const unsigned char *targets,
		float *scratch, int n, const float *grad_scale);

#endif
