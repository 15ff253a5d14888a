/* The layers of a GPT on plain arrays: forward and backward side by side. They know nothing of ranks,
 * trainers or models.
 *
 * Shapes: rows are tokens, n of them. Backward functions add (+=) to the gradients of parameters and, but
 * where a comment says otherwise, write those of activations. */
#ifndef EXAMPLES_GPT_LAYERS_H
#define EXAMPLES_GPT_LAYERS_H

/* out (n, outs) = in (n, ins) * weight (ins, outs) + bias (outs) */
void linear_forward(float *out, const float *in, const float *weight, const float *bias, int n,
		    int ins, int outs);
/* The arrays that linear_backward reads and writes. scratch has room for ins * outs. */
struct linear_grads {
	float *in, *weight, *bias, *scratch;
};
void linear_backward(const struct linear_grads *grads, const float *out_grad, const float *in,
		     const float *weight, int n, int ins, int outs);

/* c (rows, cols) += a (rows, inner) * b (inner, cols) */
void matmul_add(float *c, const float *a, const float *b, int rows, int inner, int cols);
/* c (rows, cols) += transposed a (inner, rows) * b (inner, cols) */
void matmul_transposed_add(float *c, const float *a, const float *b, int rows, int inner, int cols);
/* out (cols, rows) = transposed in (rows, cols) */
void transpose(float *out, const float *in, int rows, int cols);

/* out (n, c) = (in (n, c) - mean (n)) * rstd (n) * weight (c) + bias (c); mean and rstd are kept. */
struct norm_stats {
	float *mean, *rstd;
};
void layernorm_forward(float *out, struct norm_stats stats, const float *in, const float *weight,
		       const float *bias, int n, int c);
/* Adds to in_grad: it is the residual stream's. */
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
/* scratch (length). */
void attention_backward(float *qkv_grad, float *scratch, const float *out_grad, const float *qkv,
			const float *weights, struct attention_shape shape);

/* out = in / 2 * (1 + tanh(sqrt(2/pi) (in + 0.044715 in^3))), count of them */
void gelu_forward(float *out, const float *in, int count);
/* grad: of out, becomes that of in */
void gelu_backward(float *grad, const float *in, int count);

/* Cross entropy of softmax(logits (n, vocab)) with targets (n). Returns the sum over n; logits become their
 * own gradient when with_gradient. */
double softmax_loss(float *logits, const unsigned char *targets, int n, int vocab, int with_gradient);

#endif
