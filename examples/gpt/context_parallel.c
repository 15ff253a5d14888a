/* Attention over the tokens of all ranks, in a ring. */
#include "gpt.h"

#include <math.h>
#include <string.h>

/* Numbers of a rank in vectors of one channel: (sequences, length, channels). */
static size_t vectors_count(struct attention_shape s)
{
	return (size_t)s.sequences * (size_t)s.length * (size_t)s.channels;
}

/* A number of each query. */
static size_t query_count(struct attention_shape s)
{
	return (size_t)s.sequences * (size_t)s.heads * (size_t)s.length;
}

/* A softmax over blocks keeps for each query the largest score so far, and what has been added up
 * is scaled down when a larger one comes. Backward computes the weights again, from the logarithm
 * of each query's sum. A query is a head of a token, and its number that in (sequences, heads,
 * length).
 */
struct ring {
	const struct attention *a;
	struct attention_shape s;
	int size; /* of a head                                                    */
	const float *out_grad;
	float *kv;               /* (sequences, length, 2, channels): this rank's                */
	float *most, *scores;    /* forward: largest scores so far; both: of a query and a block */
	float *qkv_grad, *inner; /* backward; inner: product of an output and its gradient       */
	float *kv_grads;         /* (size, sequences, length, 2, channels)                       */
};

/* Where a query's head begins in rows (sequences, length, arrays, channels): in the row of a token.
 */
static size_t ring_at(const struct ring *ring, size_t query, int token, int arrays)
{
	int i = (int)query / ring->s.length, head = i % ring->s.heads, sequence = i / ring->s.heads;

	return (size_t)((sequence * ring->s.length + token) * arrays * ring->s.channels +
			head * ring->size);
}

static int ring_token(const struct ring *ring, size_t query)
{
	return (int)query % ring->s.length;
}

/* Returns the largest of scores, which are of a query with a rank's keys; later ones are not seen.
 */
static float ring_score(const struct ring *ring, size_t query, int rank, const float *block)
{
	const struct context *context = ring->a->context;
	int length = ring->s.length, token = ring_token(ring, query);
	int position = part_position(context->axis.rank, context->axis.size, length, token);
	const float *q = ring->a->qkv + ring_at(ring, query, token, 3);
	float most = -INFINITY, scale = 1 / sqrtf((float)ring->size);

	for (int t = 0; t < length; t++) {
		bool is_seen = part_position(rank, context->axis.size, length, t) <= position;
		const float *k = block + ring_at(ring, query, t, 2);
		ring->scores[t] = is_seen ? scale * layers_dot(q, k, ring->size) : -INFINITY;
		most = ring->scores[t] > most ? ring->scores[t] : most;
	}
	return most;
}

/* A query sees itself in its own rank's block, which comes first. */
static tutti_status ring_attend(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;

	(void)count;
	for (size_t i = 0; i < query_count(ring->s); i++) {
		float *out = ring->a->out + ring_at(ring, i, ring_token(ring, i), 1);
		float before = ring->most[i], most = ring_score(ring, i, rank, block);
		most = most > before ? most : before;
		float scale = expf(before - most), sum = ring->a->weights[i] * scale;
		for (int j = 0; j < ring->size; j++)
			out[j] *= scale;
		for (int t = 0; t < ring->s.length; t++) {
			const float *v = (float *)block + ring_at(ring, i, t, 2) + ring->s.channels;
			float weight = expf(ring->scores[t] - most);
			sum += weight;
			if (weight > 0)
				layers_add_row(out, weight, v, ring->size);
		}
		ring->most[i] = most;
		ring->a->weights[i] = sum;
	}
	return TUTTI_OK;
}

/* Copies keys and values between rows of three vectors and of two. */
static void ring_copy(const struct ring *ring, float *three, bool to_three)
{
	size_t c = (size_t)ring->s.channels;

	for (size_t r = 0; r < vectors_count(ring->s) / c; r++) {
		float *two = ring->kv + r * 2 * c, *others = three + (r * 3 + 1) * c;
		memcpy(to_three ? others : two, to_three ? two : others, 2 * c * sizeof(float));
	}
}

static struct ring ring_of(const struct attention *a)
{
	size_t block = 2 * vectors_count(a->s);
	struct ring ring = {
		.a = a, .s = a->s, .size = a->s.channels / a->s.heads, .kv = a->scratch};

	ring.kv_grads = ring.kv + block;
	ring.most = ring.inner = ring.kv_grads + (size_t)a->context->axis.size * block;
	ring.scores = ring.most + query_count(a->s);
	ring_copy(&ring, a->qkv, false);
	return ring;
}

static void ring_gather(struct ring *ring, tutti_block_fn fn)
{
	must(tutti_all_gather_each(ring->kv, 2 * vectors_count(ring->s), TUTTI_F32, fn, ring,
				   ring->a->context->axis.comm, NULL));
}

static void ring_forward(const struct attention *a)
{
	struct ring ring = ring_of(a);

	clear(a->out, vectors_count(a->s));
	clear(a->weights, query_count(a->s));
	for (size_t i = 0; i < query_count(a->s); i++)
		ring.most[i] = -INFINITY;
	ring_gather(&ring, ring_attend);
	for (size_t i = 0; i < query_count(a->s); i++) {
		float *vector = a->out + ring_at(&ring, i, ring_token(&ring, i), 1);
		for (int j = 0; j < ring.size; j++)
			vector[j] /= a->weights[i];
		a->weights[i] = ring.most[i] + logf(a->weights[i]);
	}
}

static tutti_status ring_attend_back(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;
	const float *kv = block, scale = 1 / sqrtf((float)ring->size);
	float *kv_grad = ring->kv_grads + (size_t)rank * count;

	clear(kv_grad, count);
	for (size_t i = 0; i < query_count(ring->s); i++) {
		int token = ring_token(ring, i), size = ring->size;
		size_t q = ring_at(ring, i, token, 3);
		const float *dout = ring->out_grad + ring_at(ring, i, token, 1);
		ring_score(ring, i, rank, kv);
		for (int t = 0; t < ring->s.length; t++) {
			size_t k = ring_at(ring, i, t, 2), v = k + (size_t)ring->s.channels;
			float weight = expf(ring->scores[t] - ring->a->weights[i]);
			if (weight == 0)
				continue;
			float slope =
				weight * (layers_dot(dout, kv + v, size) - ring->inner[i]) * scale;
			layers_add_row(kv_grad + v, weight, dout, size);
			layers_add_row(kv_grad + k, slope, ring->a->qkv + q, size);
			layers_add_row(ring->qkv_grad + q, slope, kv + k, size);
		}
	}
	return TUTTI_OK;
}

static void ring_backward(const struct attention *a, float *qkv_grad, const float *out_grad)
{
	struct ring ring = ring_of(a);

	ring.qkv_grad = qkv_grad;
	ring.out_grad = out_grad;
	clear(qkv_grad, 3 * vectors_count(a->s));
	for (size_t i = 0; i < query_count(a->s); i++) {
		size_t at = ring_at(&ring, i, ring_token(&ring, i), 1);
		ring.inner[i] = layers_dot(out_grad + at, a->out + at, ring.size);
	}
	ring_gather(&ring, ring_attend_back);
	must(tutti_reduce_scatter(ring.kv_grads, ring.kv, 2 * vectors_count(a->s), TUTTI_F32,
				  TUTTI_SUM, a->context->axis.comm, NULL));
	ring_copy(&ring, qkv_grad, true);
}

/* ---- on one rank or several ---- */

size_t context_weights(const struct context *context, struct attention_shape s)
{
	return query_count(s) * (context->axis.size > 1 ? 1 : (size_t)s.length);
}

size_t context_scratch(const struct context *context, struct attention_shape s)
{
	size_t size = (size_t)context->axis.size;

	if (size == 1)
		return attention_scratch(s);
	return (size + 1) * 2 * vectors_count(s) + query_count(s) + (size_t)s.length;
}

void context_attention_forward(const struct attention *a)
{
	if (a->context->axis.size == 1)
		attention_forward(a->out, a->weights, a->qkv, a->s);
	else
		ring_forward(a);
}

void context_attention_backward(const struct attention *a, float *qkv_grad, const float *out_grad)
{
	if (a->context->axis.size == 1)
		attention_backward(qkv_grad, a->scratch, out_grad, a->qkv, a->weights, a->s);
	else
		ring_backward(a, qkv_grad, out_grad);
}
