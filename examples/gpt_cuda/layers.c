/* The layers of a GPT on a GPU, forward and backward side by side: kernels (kernels/) and matrix
 * products (matmul.c), all in one stream, in the order of the calls. examples/gpt/layers.c is the
 * same for the CPU. */
#include "examples/gpt/layers.h"

#include "examples/gpt_cuda/stream.h"
#include "examples/gpt_cuda/matmul.h"

#include <math.h>

/* Blocks that have a thread for each element, or a group of lanes for each row (kernels/core.h). */
static uint64_t for_elements(uint64_t count)
{
	return (count + GPT_THREADS - 1) / GPT_THREADS;
}

static uint64_t for_rows(uint64_t rows)
{
	return (rows + 7) / 8;
}

static uint64_t layers_product(int a, int b)
{
	return (uint64_t)a * (uint64_t)b;
}

/* One product of matrices that are whole: (float *c, a, b, rows, inner, cols) and what is
 * transposed or added. */
static void layers_multiply(struct matmul m)
{
	m.a_stride = m.a_transposed ? m.rows : m.inner;
	m.b_stride = m.b_transposed ? m.inner : m.cols;
	m.c_stride = m.cols;
	m.batches = 1;
	m.alpha = 1;
	matmul(&m);
}

void clear(float *x, size_t count)
{
	stream_clear(x, count * sizeof *x);
}

void widen(float *wide, const uint16_t *narrow, size_t count, tutti_dtype dtype)
{
	LAUNCH(gpt_map, for_elements(count), .out = wide, .a = narrow, .count = count,
	       .what = GPT_WIDEN, .dtype = (int32_t)dtype);
}

void embed_forward(float *out, const unsigned char *tokens, const float *token_w,
		   const float *position_w, struct embedding_shape s)
{
	LAUNCH(gpt_embed, for_elements(layers_product(s.n, s.channels)), out, tokens, token_w,
	       position_w, .n = s.n, .length = s.length, .c = s.channels);
}

/* Positions of all sequences: one row each, as long as a sequence. */
void embed_backward(float *token_grad, float *position_grad, const float *out_grad,
		    const unsigned char *tokens, struct embedding_shape s)
{
	LAUNCH(gpt_tokens, layers_product(s.vocab, s.channels / GPT_THREADS + 1), token_grad,
	       out_grad, tokens, .n = s.n, .c = s.channels, .vocab = s.vocab);
	LAUNCH(gpt_columns, for_rows(layers_product(s.length, s.channels)), .sums = position_grad,
	       .x = out_grad, .rows = s.n / s.length, .cols = s.length * s.channels);
}

void add(float *out, const float *a, const float *b, int count)
{
	LAUNCH(gpt_map, for_elements((uint64_t)count), .out = out, .a = a, .b = b,
	       .count = (uint64_t)count, .what = GPT_ADD);
}

void linear_forward(float *out, const float *in, const float *weight, const float *bias, int n,
		    int ins, int outs)
{
	if (bias)
		LAUNCH(gpt_map, for_elements(layers_product(n, outs)), .out = out, .a = bias,
		       .count = layers_product(n, outs), .what = GPT_ROWS, .cols = outs);
	layers_multiply((struct matmul){out, in, weight, n, ins, outs, .add = bias != NULL});
}

/* scratch is not needed: the transposed weights are read as they lie. */
void linear_backward(const struct linear_grads *grads, const float *out_grad, const float *in,
		     const float *weight, int n, int ins, int outs)
{
	if (grads->in)
		layers_multiply((struct matmul){grads->in, out_grad, weight, n, outs, ins,
						.b_transposed = true});
	if (grads->weight)
		layers_multiply((struct matmul){grads->weight, in, out_grad, ins, n, outs,
						.a_transposed = true, .add = true});
	if (grads->bias)
		LAUNCH(gpt_columns, for_rows((uint64_t)outs), .sums = grads->bias, .x = out_grad,
		       .rows = n, .cols = outs);
}

void layernorm_forward(float *out, struct norm_stats stats, const float *in, const float *weight,
		       const float *bias, int n, int c)
{
	LAUNCH(gpt_norm, for_rows((uint64_t)n), out, stats.mean, stats.rstd, in, weight, bias, n,
	       c);
}

void layernorm_backward(struct norm_grads grads, const float *out_grad, const float *in,
			struct norm_stats stats, const float *weight, int n, int c)
{
	if (grads.weight)
		LAUNCH(gpt_columns, for_rows((uint64_t)c), grads.bias, grads.weight, out_grad, in,
		       stats.mean, stats.rstd, n, c);
	if (grads.in)
		LAUNCH(gpt_norm_backward, for_rows((uint64_t)n), grads.in, out_grad, in, stats.mean,
		       stats.rstd, weight, n, c);
}

/* A product for each head of one sequence. Matrices of weights are (length, length); q, k and v are
 * slices of qkv. */
struct heads {
	int64_t sequence_rows; /* of the sequence's first token */
	int length, heads, size;
};

static struct heads heads_of(struct attention_shape s, int sequence)
{
	return (struct heads){(int64_t)sequence * s.length, s.length, s.heads,
			      s.channels / s.heads};
}

/* weights = alpha * a * transposed b, of vectors in rows of so many floats */
static void heads_to_weights(struct heads h, float *weights, const float *a, int a_stride,
			     const float *b, int b_stride, float alpha)
{
	int64_t square = (int64_t)h.length * h.length;

	matmul(&(struct matmul){.c = weights + h.sequence_rows * h.heads * h.length,
				.a = a + h.sequence_rows * a_stride,
				.b = b + h.sequence_rows * b_stride,
				.rows = h.length,
				.inner = h.size,
				.cols = h.length,
				.a_stride = a_stride,
				.b_stride = b_stride,
				.c_stride = h.length,
				.a_batch = h.size,
				.b_batch = h.size,
				.c_batch = square,
				.batches = h.heads,
				.alpha = alpha,
				.b_transposed = true});
}

/* out = weights, or transposed weights, * in */
static void weights_to_heads(struct heads h, float *out, int out_stride, const float *weights,
			     bool transposed, const float *in, int in_stride)
{
	int64_t square = (int64_t)h.length * h.length;

	matmul(&(struct matmul){.c = out + h.sequence_rows * out_stride,
				.a = weights + h.sequence_rows * h.heads * h.length,
				.b = in + h.sequence_rows * in_stride,
				.rows = h.length,
				.inner = h.length,
				.cols = h.size,
				.a_stride = h.length,
				.b_stride = in_stride,
				.c_stride = out_stride,
				.a_batch = square,
				.b_batch = h.size,
				.c_batch = h.size,
				.batches = h.heads,
				.alpha = 1,
				.a_transposed = transposed});
}

size_t attention_scratch(struct attention_shape s)
{
	return (size_t)(layers_product(s.sequences, s.heads) * layers_product(s.length, s.length));
}

void attention_forward(float *out, float *weights, const float *qkv, struct attention_shape s)
{
	int c = s.channels, rows = s.sequences * s.heads * s.length;
	const float *q = qkv, *k = qkv + c, *v = qkv + 2 * c;
	float scale = 1 / sqrtf((float)(c / s.heads));

	for (int i = 0; i < s.sequences; i++)
		heads_to_weights(heads_of(s, i), weights, q, 3 * c, k, 3 * c, scale);
	LAUNCH(gpt_attend, for_rows((uint64_t)rows), weights, rows, s.length);
	for (int i = 0; i < s.sequences; i++)
		weights_to_heads(heads_of(s, i), out, c, weights, false, v, 3 * c);
}

/* scratch: the gradient of the weights, then of what the softmax was made of. */
void attention_backward(float *qkv_grad, float *scratch, const float *out_grad, const float *qkv,
			const float *weights, struct attention_shape s)
{
	int c = s.channels, rows = s.sequences * s.heads * s.length;
	const float *q = qkv, *k = qkv + c, *v = qkv + 2 * c;
	float *dq = qkv_grad, *dk = qkv_grad + c, *dv = qkv_grad + 2 * c;

	for (int i = 0; i < s.sequences; i++) {
		heads_to_weights(heads_of(s, i), scratch, out_grad, c, v, 3 * c, 1);
		weights_to_heads(heads_of(s, i), dv, 3 * c, weights, true, out_grad, c);
	}
	LAUNCH(gpt_attend_backward, for_rows((uint64_t)rows), scratch, weights, rows, s.length,
	       .scale = 1 / sqrtf((float)(c / s.heads)));
	for (int i = 0; i < s.sequences; i++) {
		weights_to_heads(heads_of(s, i), dq, 3 * c, scratch, false, k, 3 * c);
		weights_to_heads(heads_of(s, i), dk, 3 * c, scratch, true, q, 3 * c);
	}
}

void gelu_forward(float *out, const float *in, int count)
{
	LAUNCH(gpt_map, for_elements((uint64_t)count), .out = out, .a = in,
	       .count = (uint64_t)count, .what = GPT_GELU);
}

void gelu_backward(float *grad, const float *in, int count)
{
	LAUNCH(gpt_map, for_elements((uint64_t)count), .out = grad, .a = in, .b = grad,
	       .count = (uint64_t)count, .what = GPT_GELU_BACKWARD);
}

void softmax_loss(double *sum, float *logits, const unsigned char *targets, float *scratch,
		  struct loss_shape s, const float *grad_scale)
{
	LAUNCH(gpt_loss, for_rows((uint64_t)s.n), scratch, logits, targets, s.n, s.vocab,
	       .with_grad = grad_scale != NULL, .scale = grad_scale ? *grad_scale : 1);
	LAUNCH(gpt_loss_sum, 1, .sum = sum, .x = scratch, .n = s.n);
}
