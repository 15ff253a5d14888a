/* The layers of a GPT, forward and backward side by side.
 *
 * Loops are written so that compilers vectorize them without being allowed to reorder sums: the
 * innermost one runs along a row and its additions are independent. */
#include "layers.h"

#include <math.h>
#include <string.h>

/* Where the time goes: compiled for more than one instruction set, chosen when the program starts.
 */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define MULTIVERSIONED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MULTIVERSIONED
#endif

/* c (cols) += x[0] * b (4, cols) row 0 + ... + x[3] * row 3 */
static inline void add_rows(float *restrict c, const float x[4], const float *restrict b, int cols)
{
	const float *b0 = b, *b1 = b + cols, *b2 = b + 2 * cols, *b3 = b + 3 * cols;

	for (int j = 0; j < cols; j++)
		c[j] += x[0] * b0[j] + x[1] * b1[j] + x[2] * b2[j] + x[3] * b3[j];
}

static inline void add_row(float *restrict c, float x, const float *restrict b, int cols)
{
	for (int j = 0; j < cols; j++)
		c[j] += x * b[j];
}

MULTIVERSIONED
void matmul_add(float *c, const float *a, const float *b, int rows, int inner, int cols)
{
	for (int r = 0; r < rows; r++) {
		const float *x = a + r * inner;
		int i = 0;
		for (; i + 4 <= inner; i += 4)
			add_rows(c + r * cols, x + i, b + i * cols, cols);
		for (; i < inner; i++)
			add_row(c + r * cols, x[i], b + i * cols, cols);
	}
}

MULTIVERSIONED
void matmul_transposed_add(float *c, const float *a, const float *b, int rows, int inner, int cols)
{
	int i = 0;

	for (; i + 4 <= inner; i += 4)
		for (int r = 0; r < rows; r++) {
			const float *x = a + i * rows + r;
			const float four[4] = {x[0], x[rows], x[2 * rows], x[3 * rows]};
			add_rows(c + r * cols, four, b + i * cols, cols);
		}
	for (; i < inner; i++)
		for (int r = 0; r < rows; r++)
			add_row(c + r * cols, a[i * rows + r], b + i * cols, cols);
}

void transpose(float *out, const float *in, int rows, int cols)
{
	for (int r = 0; r < rows; r++)
		for (int c = 0; c < cols; c++)
			out[c * rows + r] = in[r * cols + c];
}

void linear_forward(float *out, const float *in, const float *weight, const float *bias, int n,
		    int ins, int outs)
{
	for (int r = 0; r < n; r++)
		memcpy(out + r * outs, bias, (size_t)outs * sizeof *out);
	matmul_add(out, in, weight, n, ins, outs);
}

void linear_backward(const struct linear_grads *grads, const float *out_grad, const float *in,
		     const float *weight, int n, int ins, int outs)
{
	transpose(grads->scratch, weight, ins, outs);
	memset(grads->in, 0, (size_t)n * (size_t)ins * sizeof(float));
	matmul_add(grads->in, out_grad, grads->scratch, n, outs, ins);
	matmul_transposed_add(grads->weight, in, out_grad, ins, n, outs);
	for (int r = 0; r < n; r++)
		add_row(grads->bias, 1, out_grad + r * outs, outs);
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
			grads.weight[j] += dout[j] * normal;
			grads.bias[j] += dout[j];
		}
		for (int j = 0; j < c; j++) {
			float normal = (x[j] - mean) * rstd;
			grads.in[r * c + j] +=
				rstd * (dout[j] * weight[j] - (sum + normal * product) / (float)c);
		}
	}
}

/* One head of one sequence: where its vectors begin, how far apart they are, and how long they are.
 */
struct head {
	const float *q, *k, *v;
	int stride, size;
	float scale;
};

static struct head head_of(const float *qkv, struct attention_shape s, int sequence, int h)
{
	int size = s.channels / s.heads, stride = 3 * s.channels;
	const float *q = qkv + sequence * s.length * stride + h * size;

	return (struct head){q,      q + s.channels, q + 2 * s.channels,
			     stride, size,           1 / sqrtf((float)size)};
}

static float dot(const float *a, const float *b, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

/* The weights of token t over tokens 0..t: softmax of q.k, scaled. */
static void attend(float *weights, const struct head *head, int t)
{
	float most = -INFINITY, sum = 0;

	for (int u = 0; u <= t; u++) {
		weights[u] = head->scale * dot(head->q + t * head->stride,
					       head->k + u * head->stride, head->size);
		most = weights[u] > most ? weights[u] : most;
	}
	for (int u = 0; u <= t; u++)
		sum += weights[u] = expf(weights[u] - most);
	for (int u = 0; u <= t; u++)
		weights[u] /= sum;
}

void attention_forward(float *out, float *weights, const float *qkv, struct attention_shape s)
{
	memset(out, 0, (size_t)(s.sequences * s.length * s.channels) * sizeof *out);
	for (int i = 0; i < s.sequences * s.heads; i++) {
		int sequence = i / s.heads, h = i % s.heads;
		struct head head = head_of(qkv, s, sequence, h);
		for (int t = 0; t < s.length; t++) {
			float *w = weights + (i * s.length + t) * s.length;
			float *o = out + (sequence * s.length + t) * s.channels + h * head.size;
			attend(w, &head, t);
			for (int u = 0; u <= t; u++)
				add_row(o, w[u], head.v + u * head.stride, head.size);
		}
	}
}

/* The gradient dout of token t's output flows to v, through the softmax, to q and k. dq, dk, dv lie
 * as head's q, k, v do. */
static void attend_backward(const struct head *grads, float *dw, const float *dout, const float *w,
			    const struct head *head, int t)
{
	float *dq = (float *)grads->q, *dk = (float *)grads->k, *dv = (float *)grads->v;
	int stride = head->stride;
	float sum = 0;

	for (int u = 0; u <= t; u++) {
		dw[u] = dot(dout, head->v + u * stride, head->size);
		sum += dw[u] * w[u];
		add_row(dv + u * stride, w[u], dout, head->size);
	}
	for (int u = 0; u <= t; u++) {
		float score = w[u] * (dw[u] - sum) * head->scale;
		add_row(dq + t * stride, score, head->k + u * stride, head->size);
		add_row(dk + u * stride, score, head->q + t * stride, head->size);
	}
}

void attention_backward(float *qkv_grad, float *scratch, const float *out_grad, const float *qkv,
			const float *weights, struct attention_shape s)
{
	memset(qkv_grad, 0, (size_t)(s.sequences * s.length * 3 * s.channels) * sizeof *qkv_grad);
	for (int i = 0; i < s.sequences * s.heads; i++) {
		int sequence = i / s.heads, h = i % s.heads;
		struct head head = head_of(qkv, s, sequence, h);
		struct head grads = head_of(qkv_grad, s, sequence, h);
		for (int t = 0; t < s.length; t++)
			attend_backward(&grads, scratch,
					out_grad + (sequence * s.length + t) * s.channels +
						h * head.size,
					weights + (i * s.length + t) * s.length, &head, t);
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

double softmax_loss(float *logits, const unsigned char *targets, int n, int vocab,
		    int with_gradient)
{
	double loss = 0;

	for (int r = 0; r < n; r++) {
		float *x = logits + r * vocab, most = x[0], sum = 0, right = x[targets[r]];
		for (int v = 1; v < vocab; v++)
			most = x[v] > most ? x[v] : most;
		for (int v = 0; v < vocab; v++)
			sum += expf(x[v] - most);
		loss += (double)(logf(sum) - (right - most));
		if (!with_gradient)
			continue;
		for (int v = 0; v < vocab; v++)
			x[v] = expf(x[v] - most) / sum;
		x[targets[r]] -= 1;
	}
	return loss;
}
