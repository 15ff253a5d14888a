/* The layers of a GPT on plain arrays: forward and backward side by side. They know nothing of ranks,
 * trainers or models.
 *
 * There are two of each: layers.c computes on the CPU, examples/gpt_cuda/layers.c launches kernels
 * on arrays of a GPU and returns at once. A program links one. Arrays are of place.h.
 *
 * Shapes: rows are tokens, n of them. Backward functions add (+=) to the gradients of parameters and, but
 * where a comment says otherwise, write those of activations. */
#ifndef EXAMPLES_GPT_LAYERS_H
#define EXAMPLES_GPT_LAYERS_H

#include <tutti/tutti.h>

#include <math.h>
#include <stddef.h>
#include <stdint.h>

/* On the CPU. */
static inline float layers_dot(const float *a, const float *b, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}
/* to (n) += x * from */
static inline void layers_add_row(float *restrict to, float x, const float *restrict from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] += x * from[i];
}

/* x (n) = softmax(x), and grad of it becomes that of x */
static inline void layers_softmax(float *x, int n)
{
	float most = x[0], sum = 0;

	for (int i = 1; i < n; i++)
		most = x[i] > most ? x[i] : most;
	for (int i = 0; i < n; i++)
		sum += x[i] = expf(x[i] - most);
	for (int i = 0; i < n; i++)
		x[i] /= sum;
}

static inline void layers_softmax_backward(float *grad, const float *softmax, int n)
{
	float sum = layers_dot(grad, softmax, n);

	for (int i = 0; i < n; i++)
		grad[i] = softmax[i] * (grad[i] - sum);
}

/* x (count) = 0 */
void clear(float *x, size_t count);
/* wide (count) = narrow (count), which is bf16 or f16 */
void widen(float *wide, const uint16_t *narrow, size_t count, tutti_dtype dtype);

/* The position of a row of a sequence's part. Where so many ranks divide sequences, of 2 * parts equal
 * pieces each has piece number part and, counted from the end, piece number part again. */
static inline int part_position(int part, int parts, int length, int row)
{
	int half = length / 2;

	return row < half ? part * half + row : (2 * parts - 1 - part) * half + row - half;
}

/* A GPU has whole sequences and the whole vocabulary: part, first_row and first_token are 0, parts is 1. */
struct embedding_shape {
	int n, length, channels, vocab;          /* length: of this part of a sequence  */
	int part, parts, first_row, first_token; /* the first of n rows; the first of vocab tokens */
};
/* out (n, channels) = token_w (vocab, channels)[token] + position_w (positions, channels)[position].
 * On the CPU tokens of another rank add nothing, nor do positions that are NULL. */
void embed_forward(float *out, const unsigned char *tokens, const float *token_w,
		   const float *position_w, struct embedding_shape shape);
void embed_backward(float *token_grad, float *position_grad, const float *out_grad,
		    const unsigned char *tokens, struct embedding_shape shape);

/* out (count) = a + b */
void add(float *out, const float *a, const float *b, int count);

/* out (n, outs) = in (n, ins) * weight (ins, outs) + bias (outs), which may be NULL */
void linear_forward(float *out, const float *in, const float *weight, const float *bias, int n,
		    int ins, int outs);
/* The arrays that linear_backward writes; NULL: not wanted. scratch has room for ins * outs. */
struct linear_grads {
	float *in, *weight, *bias, *scratch;
};
void linear_backward(const struct linear_grads *grads, const float *out_grad, const float *in,
		     const float *weight, int n, int ins, int outs);

/* out (n, c) = (in (n, c) - mean (n)) * rstd (n) * weight (c) + bias (c); mean and rstd are kept. */
struct norm_stats {
	float *mean, *rstd;
};
void layernorm_forward(float *out, struct norm_stats stats, const float *in, const float *weight,
		       const float *bias, int n, int c);
/* Adds to in_grad: it is the residual stream's. NULL: not wanted; weight and bias go together. */
struct norm_grads {
	float *in, *weight, *bias;
};
void layernorm_backward(struct norm_grads grads, const float *out_grad, const float *in,
			struct norm_stats stats, const float *weight, int n, int c);

struct attention_shape {
	int sequences, length, channels, heads;
};
/* Causal attention within each sequence. qkv (sequences, length, 3, channels),
 * weights (sequences, heads, length, length), out (sequences, length, channels). */
void attention_forward(float *out, float *weights, const float *qkv, struct attention_shape shape);
/* Floats of the scratch that backward needs. */
size_t attention_scratch(struct attention_shape shape);
void attention_backward(float *qkv_grad, float *scratch, const float *out_grad, const float *qkv,
			const float *weights, struct attention_shape shape);

/* out = in / 2 * (1 + tanh(sqrt(2/pi) (in + 0.044715 in^3))), count of them */
void gelu_forward(float *out, const float *in, int count);
/* grad: of out, becomes that of in */
void gelu_backward(float *grad, const float *in, int count);

struct loss_shape {
	int n, vocab;
	int first_token;   /* of those of vocab; 0 on a GPU                                    */
	/* Reduces n numbers over the ranks that divide the vocabulary; NULL: none, and on a GPU. */
	void (*reduce)(const void *arg, float *x, int n, tutti_op op);
	const void *arg;
};
/* Adds the cross entropy of softmax(logits (n, vocab)) with targets (n), summed over n, to *sum, which is an array
 * of place.h, too. grad_scale: logits become their own gradient times that; NULL: they stay. scratch (2, n). */
void softmax_loss(double *sum, float *logits, const unsigned char *targets, float *scratch,
		  struct loss_shape shape, const float *grad_scale);

#endif
