/* Attention whose keys and values come from one rank of "cp" after another. A softmax over blocks
 * keeps for each query the largest score so far, and what has been added up is scaled down when a
 * larger one comes. Backward computes the weights again, from the logarithm of each query's sum. */
#include "context_parallel.h"

#include "gpt.h"

#include <math.h>
#include <string.h>

/* One call. Vectors of a token are 3 * channels apart in qkv, 2 * channels in a block of keys and
 * values. */
struct ring {
	const struct context *context;
	struct attention_shape s;
	const float *qkv, *out_grad;
	float *kv;               /* (sequences, length, 2, channels): this rank's                */
	float *out, *weights;    /* forward; weights: sums, then their logarithms                */
	float *most, *scores;    /* forward: largest scores so far; both: of a query and a block */
	float *qkv_grad, *inner; /* backward; inner: product of an output and its gradient       */
	float *kv_grads;         /* (size, sequences, length, 2, channels)                       */
};

/* One head of one sequence: its part of rows (sequences, length, arrays, channels). */
struct part {
	int sequence, head, size;
	float scale;
};

static struct part ring_attention_part_of(const struct ring *ring, int i)
{
	int size = ring->s.channels / ring->s.heads;

	return (struct part){i / ring->s.heads, i % ring->s.heads, size, 1 / sqrtf((float)size)};
}

static int ring_attention_parts(const struct ring *ring)
{
	return ring->s.sequences * ring->s.heads;
}

static size_t ring_attention_at(const struct ring *ring, struct part part, int token, int arrays,
				int array)
{
	int row = part.sequence * ring->s.length + token;

	return ((size_t)row * (size_t)arrays + (size_t)array) * (size_t)ring->s.channels +
	       (size_t)(part.head * part.size);
}

/* A number of each query. */
static size_t query_at(const struct ring *ring, struct part part, int token)
{
	return ((size_t)part.sequence * (size_t)ring->s.heads + (size_t)part.head) *
		       (size_t)ring->s.length +
	       (size_t)token;
}

static size_t block_count(struct attention_shape s)
{
	return (size_t)s.sequences * (size_t)s.length * 2 * (size_t)s.channels;
}

static size_t query_count(struct attention_shape s)
{
	return (size_t)s.sequences * (size_t)s.length * (size_t)s.heads;
}

size_t ring_scratch(const struct context *context, struct attention_shape s)
{
	return (size_t)(context->size + 1) * block_count(s) + query_count(s) + (size_t)s.length;
}

static struct ring ring_attention_ring_of(const struct context *context, const float *qkv,
					  float *scratch, struct attention_shape s)
{
	struct ring ring = {.context = context, .s = s, .qkv = qkv, .kv = scratch};

	ring.kv_grads = ring.kv + block_count(s);
	ring.most = ring.inner = ring.kv_grads + (size_t)context->size * block_count(s);
	ring.scores = ring.most + query_count(s);
	for (int r = 0; r < s.sequences * s.length; r++)
		memcpy(ring.kv + r * 2 * s.channels, qkv + (r * 3 + 1) * s.channels,
		       2 * (size_t)s.channels * sizeof(float));
	return ring;
}

/* Each rank's rows are two runs of positions; a query sees so many of the first and of the second.
 */
struct seen {
	int first, second;
};

static struct seen seen_by(const struct ring *ring, int token, int rank)
{
	const struct context *context = ring->context;
	int half = context->length / 2;
	int position = context_position(context, context->rank, token);
	int first = position + 1 - context_position(context, rank, 0);
	int second = position + 1 - context_position(context, rank, half);

	return (struct seen){first < 0      ? 0
			     : first < half ? first
					    : half,
			     second < 0      ? 0
			     : second < half ? second
					     : half};
}

/* The i-th token that is seen. */
static int token_of(const struct ring *ring, struct seen seen, int i)
{
	return i < seen.first ? i : ring->context->length / 2 + i - seen.first;
}

static float ring_attention_dot(const float *a, const float *b, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
		sum += a[i] * b[i];
	return sum;
}

static void ring_attention_add_row(float *restrict to, float x, const float *restrict from, int n)
{
	for (int i = 0; i < n; i++)
		to[i] += x * from[i];
}

/* The largest score of a query with a rank's keys; scores: all of them. */
static float ring_attention_score(const struct ring *ring, struct part part, const float *kv,
				  int token, struct seen seen)
{
	const float *q = ring->qkv + ring_attention_at(ring, part, token, 3, 0);
	float most = -INFINITY;

	for (int i = 0; i < seen.first + seen.second; i++) {
		const float *k = kv + ring_attention_at(ring, part, token_of(ring, seen, i), 2, 0);
		ring->scores[i] = part.scale * ring_attention_dot(q, k, part.size);
		most = ring->scores[i] > most ? ring->scores[i] : most;
	}
	return most;
}

static void attend_query(const struct ring *ring, struct part part, const float *kv, int token,
			 struct seen seen)
{
	float *out = ring->out + ring_attention_at(ring, part, token, 1, 0);
	size_t query = query_at(ring, part, token);
	float before = ring->most[query], most = ring_attention_score(ring, part, kv, token, seen);

	most = most > before ? most : before;
	float scale = expf(before - most), sum = ring->weights[query] * scale;
	for (int j = 0; j < part.size; j++)
		out[j] *= scale;
	for (int i = 0; i < seen.first + seen.second; i++) {
		float weight = expf(ring->scores[i] - most);
		sum += weight;
		ring_attention_add_row(
			out, weight,
			kv + ring_attention_at(ring, part, token_of(ring, seen, i), 2, 1),
			part.size);
	}
	ring->most[query] = most;
	ring->weights[query] = sum;
}

/* Where a query sees nothing of a rank the largest score would be -infinity minus itself. */
static tutti_status ring_attention_attend(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;

	(void)count;
	for (int i = 0; i < ring_attention_parts(ring); i++)
		for (int t = 0; t < ring->s.length; t++) {
			struct seen seen = seen_by(ring, t, rank);
			if (seen.first + seen.second > 0)
				attend_query(ring, ring_attention_part_of(ring, i), block, t, seen);
		}
	return TUTTI_OK;
}

static void ring_attention_gather(struct ring *ring, tutti_block_fn fn)
{
	must(tutti_all_gather_each(ring->kv, block_count(ring->s), TUTTI_F32, fn, ring,
				   ring->context->comm, NULL));
}

void ring_attention_forward(const struct context *context, float *out, float *weights,
			    const float *qkv, float *scratch, struct attention_shape s)
{
	struct ring ring = ring_attention_ring_of(context, qkv, scratch, s);

	ring.out = out;
	ring.weights = weights;
	clear(out, (size_t)s.sequences * (size_t)s.length * (size_t)s.channels);
	clear(weights, query_count(s));
	for (size_t i = 0; i < query_count(s); i++)
		ring.most[i] = -INFINITY;
	ring_attention_gather(&ring, ring_attention_attend);
	for (int i = 0; i < ring_attention_parts(&ring); i++)
		for (int t = 0; t < s.length; t++) {
			struct part part = ring_attention_part_of(&ring, i);
			size_t query = query_at(&ring, part, t);
			float *vector = out + ring_attention_at(&ring, part, t, 1, 0);
			for (int j = 0; j < part.size; j++)
				vector[j] /= weights[query];
			weights[query] = ring.most[query] + logf(weights[query]);
		}
}

static void attend_query_backward(const struct ring *ring, struct part part, const float *kv,
				  float *kv_grad, int token, struct seen seen)
{
	const float *q = ring->qkv + ring_attention_at(ring, part, token, 3, 0);
	const float *dout = ring->out_grad + ring_attention_at(ring, part, token, 1, 0);
	float *dq = ring->qkv_grad + ring_attention_at(ring, part, token, 3, 0);
	size_t query = query_at(ring, part, token);

	ring_attention_score(ring, part, kv, token, seen);
	for (int i = 0; i < seen.first + seen.second; i++) {
		size_t k = ring_attention_at(ring, part, token_of(ring, seen, i), 2, 0);
		size_t v = ring_attention_at(ring, part, token_of(ring, seen, i), 2, 1);
		float weight = expf(ring->scores[i] - ring->weights[query]);
		float slope = weight *
			      (ring_attention_dot(dout, kv + v, part.size) - ring->inner[query]) *
			      part.scale;
		ring_attention_add_row(kv_grad + v, weight, dout, part.size);
		ring_attention_add_row(kv_grad + k, slope, q, part.size);
		ring_attention_add_row(dq, slope, kv + k, part.size);
	}
}

static tutti_status ring_attention_attend_backward(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;
	float *kv_grad = ring->kv_grads + (size_t)rank * count;

	clear(kv_grad, count);
	for (int i = 0; i < ring_attention_parts(ring); i++)
		for (int t = 0; t < ring->s.length; t++)
			attend_query_backward(ring, ring_attention_part_of(ring, i), block, kv_grad,
					      t, seen_by(ring, t, rank));
	return TUTTI_OK;
}

/* block: of the gradient of a rank's keys and values */
static tutti_status take_kv_grad(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;

	memcpy(block, ring->kv_grads + (size_t)rank * count, count * sizeof(float));
	return TUTTI_OK;
}

void ring_attention_backward(const struct context *context, float *qkv_grad, const float *out_grad,
			     const struct context_memory *memory, float *scratch,
			     struct attention_shape s)
{
	struct ring ring = ring_attention_ring_of(context, memory->qkv, scratch, s);

	ring.weights = memory->weights;
	ring.qkv_grad = qkv_grad;
	ring.out_grad = out_grad;
	clear(qkv_grad, block_count(s) / 2 * 3);
	for (int i = 0; i < ring_attention_parts(&ring); i++)
		for (int t = 0; t < s.length; t++) {
			struct part part = ring_attention_part_of(&ring, i);
			size_t row = ring_attention_at(&ring, part, t, 1, 0);
			ring.inner[query_at(&ring, part, t)] =
				ring_attention_dot(out_grad + row, memory->out + row, part.size);
		}
	ring_attention_gather(&ring, ring_attention_attend_backward);
	must(tutti_reduce_scatter_each(ring.kv, block_count(s), TUTTI_F32, TUTTI_SUM, take_kv_grad,
				       &ring, context->comm, NULL));
	for (int r = 0; r < s.sequences * s.length; r++)
		memcpy(qkv_grad + (r * 3 + 1) * s.channels, ring.kv + r * 2 * s.channels,
		       2 * (size_t)s.channels * sizeof(float));
}
