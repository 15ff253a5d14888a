/* Tensor and sequence parallelism: the ranks of "tp" divide the products of a layer, each has some
 * columns of the weight that begins a branch and some rows of the one that ends it. Between the
 * branches they divide the rows of the residual stream. A branch begins with a gather of rows and
 * ends with a scatter of their sums; while a product of one rank's rows is computed those of other
 * ranks travel. For
 * arrays in host memory, but where there is one rank. */
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

struct product {
	const float *weight, *bias;   /* (ins, outs), (outs): this rank's */
	int ins, outs;
};

/* fn sees the count elements that each rank has, this one's first. */
void split_gather_rows(const struct split *split, const float *own, int count, tutti_block_fn fn,
		       void *arg);
/* own (count) = the sum over ranks of what fn writes for this one. */
void split_scatter_rows(const struct split *split, float *own, int count, tutti_block_fn fn,
			void *arg);

/* n is the number of rows of all ranks together, each of which has n / size of them. */

/* out (n, outs) = all ranks' in (n / size, ins) * weight + bias */
void split_gather_forward(const struct split *split, float *out, const float *in,
			  const struct product *product, int n);
/* grads->in (n / size, ins) */
void split_gather_backward(const struct split *split, const struct linear_grads *grads,
			   const float *out_grad, const float *in, const struct product *product,
			   int n);
/* out (n / size, outs): this rank's rows of the sum over ranks of in (n, ins) * weight, + bias,
 * which all ranks have. */
void split_scatter_forward(const struct split *split, float *out, const float *in,
			   const struct product *product, int n);
/* grads->in (n, ins); grads->bias is a part of the gradient: of this rank's rows. */
void split_scatter_backward(const struct split *split, const struct linear_grads *grads,
			    const float *out_grad, const float *in, const struct product *product,
			    int n);

#endif
