/* The kernels of gpt_cuda, X(name, threads of a block), and their arguments, as cuda/kernels/table.h and args.h. All
 * arrays are in C order and hold f32, but where a type says otherwise. Any grid is right. No kernel adds floats with
 * atomics: the bits of a result depend on no order of threads and on no grid. */
#ifndef EXAMPLES_GPT_CUDA_KERNELS_ARGS_H
#define EXAMPLES_GPT_CUDA_KERNELS_ARGS_H

#include <stdint.h>

#define GPT_THREADS 256

#define GPT_KERNELS(X)                                                                             \
	X(gpt_map, GPT_THREADS)                                                                    \
	X(gpt_embed, GPT_THREADS)                                                                  \
	X(gpt_tokens, GPT_THREADS)                                                                 \
	X(gpt_norm, GPT_THREADS)                                                                   \
	X(gpt_norm_backward, GPT_THREADS)                                                          \
	X(gpt_columns, GPT_THREADS)                                                                \
	X(gpt_attend, GPT_THREADS)                                                                 \
	X(gpt_attend_backward, GPT_THREADS)                                                        \
	X(gpt_loss, GPT_THREADS)                                                                   \
	X(gpt_loss_sum, GPT_THREADS)                                                               \
	X(gpt_matmul, GPT_THREADS)

/* Element by element. cols: of GPT_ROWS; dtype: of GPT_WIDEN. */
enum {
	GPT_ADD,           /* out = a + b                                         */
	GPT_GELU,          /* out = gelu(a)                                       */
	GPT_GELU_BACKWARD, /* out = b * the slope of gelu at a; out may be b      */
	GPT_ROWS,          /* each row of out (count / cols, cols) = a (cols)     */
	GPT_WIDEN          /* out = a, which is of 16 bits                        */
};
struct gpt_map_args {
	float *out;
	const void *a;
	const float *b;
	uint64_t count;
	int32_t what, cols, dtype, unused;
};

/* out (n, c) = token_w (vocab, c)[token] + position_w (length, c)[position] */
struct gpt_embed_args {
	float *out;
	const unsigned char *tokens;
	const float *token_w, *position_w;
	int32_t n, length, c, unused;
};

/* token_grad (vocab, c)[v] += the rows of out_grad (n, c) whose token is v */
struct gpt_tokens_args {
	float *token_grad;
	const float *out_grad;
	const unsigned char *tokens;
	int32_t n, c, vocab, unused;
};

/* out (n, c) = (in - mean (n)) * rstd (n) * weight (c) + bias (c); mean and rstd are kept */
struct gpt_norm_args {
	float *out, *mean, *rstd;
	const float *in, *weight, *bias;
	int32_t n, c;
};

/* in_grad += */
struct gpt_norm_backward_args {
	float *in_grad;
	const float *out_grad, *in, *mean, *rstd, *weight;
	int32_t n, c;
};

/* sums (cols) += the rows of x (rows, cols). products (cols), or NULL: += the rows of x * (in - mean) * rstd. */
struct gpt_columns_args {
	float *sums, *products;
	const float *x, *in, *mean, *rstd;
	int32_t rows, cols;
};

/* Row r of weights (rows, length) is of token t = r % length: softmax of the first t + 1, then zeros. */
struct gpt_attend_args {
	float *weights;
	int32_t rows, length;
};

/* grad: of the weights, becomes that of what the softmax was made of, times scale */
struct gpt_attend_backward_args {
	float *grad;
	const float *weights;
	int32_t rows, length;
	float scale;
	int32_t unused;
};

/* losses (n): cross entropy of softmax(logits (n, vocab)). with_grad: logits become their own gradient times
 * scale. */
struct gpt_loss_args {
	float *losses, *logits;
	const unsigned char *targets;
	int32_t n, vocab, with_grad;
	float scale;
};

/* *sum += x (n). One block. */
struct gpt_loss_sum_args {
	double *sum;
	const float *x;
	int32_t n, unused;
};

/* c = alpha * a * b, or c += that with add, so many times: matrix i begins i batch strides further. Element (r, i) of
 * a is at r * a_row + i * a_col; so with b (inner, cols). Rows of c are c_row apart. */
struct gpt_matmul_args {
	float *c;
	const float *a, *b;
	int64_t a_batch, b_batch, c_batch;
	int32_t rows, inner, cols, batches;
	int32_t a_row, a_col, b_row, b_col, c_row;
	int32_t add;
	float alpha;
	int32_t unused;
};

#endif
