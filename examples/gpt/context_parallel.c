/* Attention over the tokens of all ranks: by heads, and in a ring. */
#include "context_parallel.h"

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

/* ---- heads ---- */

/* This rank's heads of whole sequences. */
static struct attention_shape whole_shape(const struct context *context, struct attention_shape s)
{
	return (struct attention_shape){s.sequences, s.length * context->size,
					s.channels / context->size, s.heads / context->size};
}

/* An exchange of arrays of vectors that lie side by side in a row: 3 of qkv, 1 of out. */
struct exchange {
	const struct context *context;
	struct attention_shape s;
	int arrays;
	float *sent, *received; /* (size, rows of a rank, arrays, channels of some heads) */
};

/* Copies between pieces of all ranks, as they travel, and rows (rows, arrays, channels) or whole
 * sequences (sequences, whole length, arrays, channels of some heads). */
static void exchange_copy(const struct exchange *x, float *pieces, bool from_pieces, float *other,
			  bool is_whole)
{
	int size = x->context->size, length = x->s.length, width = x->s.channels / size;
	int rows = x->s.sequences * length;

	for (int i = 0; i < size * rows * x->arrays; i++) {
		int array = i % x->arrays, row = i / x->arrays % rows, rank = i / x->arrays / rows;
		int at = row / length * length * size +
			 part_position(rank, size, length, row % length);
		float *piece = pieces + (size_t)i * (size_t)width;
		float *place = is_whole
				       ? other + ((size_t)at * (size_t)x->arrays + (size_t)array) *
							 (size_t)width
				       : other +
						 ((size_t)row * (size_t)x->arrays + (size_t)array) *
							 (size_t)x->s.channels +
						 (size_t)(rank * width);
		memcpy(from_pieces ? place : piece, from_pieces ? piece : place,
		       (size_t)width * sizeof(float));
	}
}

/* From rows to whole sequences, or back. */
static void exchange_run(const struct exchange *x, float *to, const float *from, bool to_whole)
{
	size_t count = vectors_count(x->s) * (size_t)x->arrays / (size_t)x->context->size;

	exchange_copy(x, x->sent, false, (float *)(uintptr_t)from, !to_whole);
	must(tutti_all_to_all(x->sent, x->received, count, TUTTI_F32, x->context->comm, NULL));
	exchange_copy(x, x->received, true, to, to_whole);
}

/* ---- ring ---- */

/* A softmax over blocks keeps for each query the largest score so far, and what has been added up
 * is scaled down when a larger one comes. Backward computes the weights again, from the logarithm
 * of each query's sum. A query is a head of a token, and its number that in (sequences, heads,
 * length).
 */
struct ring {
	const struct context *context;
	struct attention_shape s;
	int size; /* of a head                                                    */
	const float *qkv, *out_grad;
	float *kv;               /* (sequences, length, 2, channels): this rank's                */
	float *out, *weights;    /* forward; weights: sums, then their logarithms                */
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
	const struct context *context = ring->context;
	int length = ring->s.length, token = ring_token(ring, query);
	int position = part_position(context->rank, context->size, length, token);
	const float *q = ring->qkv + ring_at(ring, query, token, 3);
	float most = -INFINITY, scale = 1 / sqrtf((float)ring->size);

	for (int t = 0; t < length; t++) {
		bool is_seen = part_position(rank, context->size, length, t) <= position;
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
		float *out = ring->out + ring_at(ring, i, ring_token(ring, i), 1);
		float before = ring->most[i], most = ring_score(ring, i, rank, block);
		most = most > before ? most : before;
		float scale = expf(before - most), sum = ring->weights[i] * scale;
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
		ring->weights[i] = sum;
	}
	return TUTTI_OK;
}

static size_t ring_scratch(const struct context *context, struct attention_shape s)
{
	return (size_t)(context->size + 1) * 2 * vectors_count(s) + query_count(s) +
	       (size_t)s.length;
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

static struct ring ring_of(const struct context *context, const float *qkv, float *scratch,
			   struct attention_shape s)
{
	struct ring ring = {.context = context,
			    .s = s,
			    .size = s.channels / s.heads,
			    .qkv = qkv,
			    .kv = scratch};

	ring.kv_grads = ring.kv + 2 * vectors_count(s);
	ring.most = ring.inner = ring.kv_grads + (size_t)context->size * 2 * vectors_count(s);
	ring.scores = ring.most + query_count(s);
	ring_copy(&ring, (float *)(uintptr_t)qkv, false);
	return ring;
}

static void ring_gather(struct ring *ring, tutti_block_fn fn)
{
	must(tutti_all_gather_each(ring->kv, 2 * vectors_count(ring->s), TUTTI_F32, fn, ring,
				   ring->context->comm, NULL));
}

static void ring_forward(const struct context *context, float *out, float *weights,
			 const float *qkv, float *scratch, struct attention_shape s)
{
	struct ring ring = ring_of(context, qkv, scratch, s);

	ring.out = out;
	ring.weights = weights;
	clear(out, vectors_count(s));
	clear(weights, query_count(s));
	for (size_t i = 0; i < query_count(s); i++)
		ring.most[i] = -INFINITY;
	ring_gather(&ring, ring_attend);
	for (size_t i = 0; i < query_count(s); i++) {
		float *vector = out + ring_at(&ring, i, ring_token(&ring, i), 1);
		for (int j = 0; j < ring.size; j++)
			vector[j] /= weights[i];
		weights[i] = ring.most[i] + logf(weights[i]);
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
			float weight = expf(ring->scores[t] - ring->weights[i]);
			if (weight == 0)
				continue;
			float slope =
				weight * (layers_dot(dout, kv + v, size) - ring->inner[i]) * scale;
			layers_add_row(kv_grad + v, weight, dout, size);
			layers_add_row(kv_grad + k, slope, ring->qkv + q, size);
			layers_add_row(ring->qkv_grad + q, slope, kv + k, size);
		}
	}
	return TUTTI_OK;
}

/* block: of the gradient of a rank's keys and values */
static tutti_status ring_take_kv_grad(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;

	memcpy(block, ring->kv_grads + (size_t)rank * count, count * sizeof(float));
	return TUTTI_OK;
}

static void ring_backward(const struct context *context, float *qkv_grad, const float *out_grad,
			  const struct context_memory *memory, float *scratch,
			  struct attention_shape s)
{
	struct ring ring = ring_of(context, memory->qkv, scratch, s);

	ring.weights = memory->weights;
	ring.qkv_grad = qkv_grad;
	ring.out_grad = out_grad;
	clear(qkv_grad, 3 * vectors_count(s));
	for (size_t i = 0; i < query_count(s); i++) {
		size_t at = ring_at(&ring, i, ring_token(&ring, i), 1);
		ring.inner[i] = layers_dot(out_grad + at, memory->out + at, ring.size);
	}
	ring_gather(&ring, ring_attend_back);
	must(tutti_reduce_scatter_each(ring.kv, 2 * vectors_count(s), TUTTI_F32, TUTTI_SUM,
				       ring_take_kv_grad, &ring, context->comm, NULL));
	ring_copy(&ring, qkv_grad, true);
}

/* ---- either ---- */

size_t context_weights(const struct context *context, struct attention_shape s)
{
	bool is_ring = context->size > 1 && !context->by_heads;

	return query_count(s) * (is_ring ? 1 : (size_t)whole_shape(context, s).length);
}

/* Where the heads form has: what it sends, what it receives, whole gradients, whole outputs. */
size_t context_scratch(const struct context *context, struct attention_shape s)
{
	if (context->size > 1 && !context->by_heads)
		return ring_scratch(context, s);
	return (context->size > 1 ? 4 * 3 * vectors_count(s) : 0) +
	       attention_scratch(whole_shape(context, s));
}

void context_attention_forward(const struct context *context, float *out,
			       const struct context_memory *memory, const float *qkv,
			       float *scratch, struct attention_shape s)
{
	size_t count = 3 * vectors_count(s);
	struct exchange three = {context, s, 3, scratch, scratch + count};
	struct exchange one = {context, s, 1, scratch, scratch + count};
	float *whole_out = scratch + 2 * count;

	if (context->size == 1) {
		attention_forward(out, memory->weights, qkv, s);
	} else if (!context->by_heads) {
		ring_forward(context, out, memory->weights, qkv, scratch, s);
	} else {
		exchange_run(&three, memory->qkv, qkv, true);
		attention_forward(whole_out, memory->weights, memory->qkv, whole_shape(context, s));
		exchange_run(&one, out, whole_out, false);
	}
}

void context_attention_backward(const struct context *context, float *qkv_grad,
				const float *out_grad, const struct context_memory *memory,
				float *scratch, struct attention_shape s)
{
	size_t count = 3 * vectors_count(s);
	struct exchange three = {context, s, 3, scratch, scratch + count};
	struct exchange one = {context, s, 1, scratch, scratch + count};
	float *whole_grad = scratch + 2 * count, *whole_out_grad = scratch + 3 * count;

	if (context->size == 1) {
		attention_backward(qkv_grad, scratch, out_grad, memory->qkv, memory->weights, s);
	} else if (!context->by_heads) {
		ring_backward(context, qkv_grad, out_grad, memory, scratch, s);
	} else {
		exchange_run(&one, whole_out_grad, out_grad, true);
		attention_backward(whole_grad, scratch + 4 * count, whole_out_grad, memory->qkv,
				   memory->weights, whole_shape(context, s));
		exchange_run(&three, qkv_grad, whole_grad, false);
	}
}
