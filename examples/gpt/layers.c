/* The layers of a GPT on the CPU, forward and backward side by side.
 *
 * Loops are written so that compilers vectorize them without being allowed to reorder sums: the
 * innermost one runs along a row and its additions are independent. */
#include "layers.h"

#include <math.h>
#include <string.h>

void clear(float *x, size_t count)
{
	memset(x, 0, count * sizeof *x);
}

/* bf16 is the upper half of f32. f16 has 5 bits of exponent, whose zero is that of the smallest
 * numbers, in steps of 2 to the power of -24. */
static float layers_widened(uint16_t x, tutti_dtype dtype)
{
	uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff;
	uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
	float wide;

	if (dtype == TUTTI_BF16)
		bits = (uint32_t)x << 16;
	else if (exponent == 0)
		return (sign ? -0x1p-24f : 0x1p-24f) * (float)fraction;
	memcpy(&wide, &bits, sizeof wide);
	return wide;
}

void widen(float *wide, const uint16_t *narrow, size_t count, tutti_dtype dtype)
{
	for (size_t i = 0; i < count; i++)
		wide[i] = layers_widened(narrow[i], dtype);
}

/* The position of row r in its sequence. */
static int layers_position(struct embedding_shape s, int r)
{
	return part_position(s.part, s.parts, s.length, (s.first_row + r) % s.length);
}

void embed_forward(float *out, const unsigned char *tokens, const float *token_w,
		   const float *position_w, struct embedding_shape s)
{
	int c = s.channels;

	clear(out, (size_t)s.n * (size_t)c);
	for (int r = 0; r < s.n; r++) {
		int token = tokens[r] - s.first_token;
		if (token >= 0 && token < s.vocab)
			layers_add_row(out + r * c, 1, token_w + token * c, c);
		if (position_w)
			layers_add_row(out + r * c, 1, position_w + layers_position(s, r) * c, c);
	}
}

void embed_backward(float *token_grad, float *position_grad, const float *out_grad,
		    const unsigned char *tokens, struct embedding_shape s)
{
	int c = s.channels;

	for (int r = 0; r < s.n; r++) {
		int token = tokens[r] - s.first_token;
		if (token >= 0 && token < s.vocab)
			layers_add_row(token_grad + token * c, 1, out_grad + r * c, c);
		if (position_grad)
			layers_add_row(position_grad + layers_position(s, r) * c, 1,
				       out_grad + r * c, c);
	}
}

void add(float *out, const float *a, const float *b, int count)
{
	for (int i = 0; i < count; i++)
		out[i] = a[i] + b[i];
}

/* Where the time goes: compiled for more than one instruction set, chosen when the program starts.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define MULTIVERSIONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MULTIVERSIONED
#endif

/* c (cols) += x[0] * b (4, cols) row 0 + ... + x[3] * row 3 */
static inline void layers_add_rows(float *restrict c, const float x[4], const float *restrict b,
				   int cols)
{
	const float *b0 = b, *b1 = b + cols, *b2 = b + 2 * cols, *b3 = b + 3 * cols;

	for (int j = 0; j < cols; j++)
		c[j] += x[0] * b0[j] + x[1] * b1[j] + x[2] * b2[j] + x[3] * b3[j];
}

MULTIVERSIONED
static void layers_matmul_add(float *c, const float *a, const float *b, int rows, int inner,
			      int cols)
{
	for (int r = 0; r < rows; r++) {
		const float *x = a + r * inner;
		int i = 0;
		for (; i + 4 <= inner; i += 4)
			layers_add_rows(c + r * cols, x + i, b + i * cols, cols);
		for (; i < inner; i++)
			layers_add_row(c + r * cols, x[i], b + i * cols, cols);
	}
}

MULTIVERSIONED
static void layers_matmul_transposed_add(float *c, const float *a, const float *b, int rows,
					 int inner, int cols)
{
	int i = 0;

	for (; i + 4 <= inner; i += 4)
		for (int r = 0; r < rows; r++) {
			const float *x = a + i * rows + r;
			const float four[4] = {x[0], x[rows], x[2 * rows], x[3 * rows]};
			layers_add_rows(c + r * cols, four, b + i * cols, cols);
		}
	for (; i < inner; i++)
		for (int r = 0; r < rows; r++)
			layers_add_row(c + r * cols, a[i * rows + r], b + i * cols, cols);
}

static void layers_transpose(float *out, const float *in, int rows, int cols)
{
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < cols; c++)
			out[c * rows + r] = in[r * cols + c];
}

void linear_forward(float *out, const float *in, const float *weight, const float *bias, int n,
		    int ins, int outs)
{
	if (!bias)
		clear(out, (size_t)n * (size_t)outs);
	for (int r = 0; bias && r < n; r++)
		memcpy(out + r * outs, bias, (size_t)outs * sizeof *out);
	layers_matmul_add(out, in, weight, n, ins, outs);
}

void linear_backward(const struct linear_grads *grads, const float *out_grad, const float *in,
		     const float *weight, int n, int ins, int outs)
{
	if (grads->in) {
		layers_transpose(grads->scratch, weight, ins, outs);
		clear(grads->in, (size_t)n * (size_t)ins);
		layers_matmul_add(grads->in, out_grad, grads->scratch, n, outs, ins);
	}
	if (grads->weight)
		layers_matmul_transposed_add(grads->weight, in, out_grad, ins, n, outs);
	for (int r = 0; grads->bias && r < n; r++)
		layers_add_row(grads->bias, 1, out_grad + r * outs, outs);
}

void layernorm_forward(float *out, struct norm_stats stats, const float *in, const float *weight,
		       const float *bias, int n, int c)
{
	for (int r = 0; r < n; r++) {
		const float *x = in + r * c;
		float mean = 0, variance = 0;
		for (int j = 0; j < c; j++)
			mean += x[j];
		mean /= (float)c;
		for (int j = 0; j < c; j++)
			variance += (x[j] - mean) * (x[j] - mean);
		float rstd = 1 / sqrtf(variance / (float)c + 1e-5f);
		for (int j = 0; j < c; j++)
			out[r * c + j] = (x[j] - mean) * rstd * weight[j] + bias[j];
		stats.mean[r] = mean;
		stats.rstd[r] = rstd;
	}
}

void layernorm_backward(struct norm_grads grads, const float *out_grad, const float *in,
			struct norm_stats stats, const float *weight, int n, int c)
{
	for (int r = 0; r < n; r++) {
		const float *x = in + r * c, *dout = out_grad + r * c;
		float mean = stats.mean[r], rstd = stats.rstd[r], sum = 0, product = 0;
		for (int j = 0; j < c; j++) {
			float normal = (x[j] - mean) * rstd;
			sum += dout[j] * weight[j];
			product += dout[j] * weight[j] * normal;
			if (grads.weight) {
				grads.weight[j] += dout[j] * normal;
				grads.bias[j] += dout[j];
			}
		}
		for (int j = 0; grads.in && j < c; j++) {
			float normal = (x[j] - mean) * rstd;
			grads.in[r * c + j] +=
				rstd * (dout[j] * weight[j] - (sum + normal * product) / (float)c);
		}
	}
}

/* A head of a token, whose number is that in (sequences, heads, length): where its vector begins in
 * qkv and in out, and where the head's keys and values of its sequence begin in qkv. */
struct query {
	int t, q, k, v, out, size, stride;
	float scale;
};

static struct query query_of(struct attention_shape s, int number)
{
	int t = number % s.length, head = number / s.length % s.heads, c = s.channels;
	int first = number / s.length / s.heads * s.length, size = c / s.heads;
	int k = first * 3 * c + c + head * size;

	return (struct query){
		t,     k - c + t * 3 * c,     k, k + c, (first + t) * c + head * size, size,
		3 * c, 1 / sqrtf((float)size)};
}

size_t attention_scratch(struct attention_shape s)
{
	return (size_t)s.length;
}

void attention_forward(float *out, float *weights, const float *qkv, struct attention_shape s)
{
	clear(out, (size_t)(s.sequences * s.length * s.channels));
	for (int i = 0; i < s.sequences * s.heads * s.length; i++) {
		struct query q = query_of(s, i);
		const float *k = qkv + q.k, *v = qkv + q.v;
		float *w = weights + i * s.length;
		for (int u = 0; u <= q.t; u++)
			w[u] = q.scale * layers_dot(qkv + q.q, k + u * q.stride, q.size);
		layers_softmax(w, q.t + 1);
		for (int u = 0; u <= q.t; u++)
			layers_add_row(out + q.out, w[u], v + u * q.stride, q.size);
	}
}

/* The gradient of a token's output flows to v, through the softmax, to q and k. */
void attention_backward(float *qkv_grad, float *scratch, const float *out_grad, const float *qkv,
			const float *weights, struct attention_shape s)
{
	float *dw = scratch;

	clear(qkv_grad, (size_t)(s.sequences * s.length * 3 * s.channels));
	for (int i = 0; i < s.sequences * s.heads * s.length; i++) {
		struct query q = query_of(s, i);
		const float *dout = out_grad + q.out, *w = weights + i * s.length;
		for (int u = 0; u <= q.t; u++) {
			int v = q.v + u * q.stride;
			dw[u] = layers_dot(dout, qkv + v, q.size);
			layers_add_row(qkv_grad + v, w[u], dout, q.size);
		}
		layers_softmax_backward(dw, w, q.t + 1);
		for (int u = 0; u <= q.t; u++) {
			int k = q.k + u * q.stride;
			float slope = dw[u] * q.scale;
			layers_add_row(qkv_grad + q.q, slope, qkv + k, q.size);
			layers_add_row(qkv_grad + k, slope, qkv + q.q, q.size);
		}
	}
}

/* tanh by way of one exponential, which costs a third of tanhf. */
static inline float gelu_tanh(float x)
{
	float z = 0.7978845608f * (x + 0.044715f * x * x * x);
	return 1 - 2 / (expf(2 * z) + 1);
}

void gelu_forward(float *out, const float *in, int count)
{
	for (int i = 0; i < count; i++)
		out[i] = 0.5f * in[i] * (1 + gelu_tanh(in[i]));
}

void gelu_backward(float *grad, const float *in, int count)
{
	for (int i = 0; i < count; i++) {
		float x = in[i], t = gelu_tanh(x);
		float slope = 0.7978845608f * (1 + 3 * 0.044715f * x * x);
		grad[i] *= 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * slope;
	}
}

static void layers_reduce(struct loss_shape s, float *x, tutti_op op)
{
	if (s.reduce)
		s.reduce(s.arg, x, s.n, op);
}

/* For each row log(all) - (right - most), where all is the sum of exponentials, on the rank that
 * has its target. */
void softmax_loss(double *sum, float *logits, const unsigned char *targets, float *scratch,
		  struct loss_shape s, const float *grad_scale)
{
	float *most = scratch, *all = scratch + s.n;
	double loss = 0;

	for (int r = 0; r < s.n; r++) {
		const float *x = logits + r * s.vocab;
		most[r] = x[0];
		for (int v = 1; v < s.vocab; v++)
			most[r] = x[v] > most[r] ? x[v] : most[r];
	}
	layers_reduce(s, most, TUTTI_MAX);
	for (int r = 0; r < s.n; r++) {
		all[r] = 0;
		for (int v = 0; v < s.vocab; v++)
			all[r] += expf(logits[r * s.vocab + v] - most[r]);
	}
	layers_reduce(s, all, TUTTI_SUM);
	for (int r = 0; r < s.n; r++) {
		float *x = logits + r * s.vocab;
		int right = targets[r] - s.first_token;
		if (right >= 0 && right < s.vocab)
			loss += (double)(logf(all[r]) - (x[right] - most[r]));
		for (int v = 0; grad_scale && v < s.vocab; v++)
			x[v] = (expf(x[v] - most[r]) / all[r] - (v == right)) * *grad_scale;
	}
	*sum += loss;
}
