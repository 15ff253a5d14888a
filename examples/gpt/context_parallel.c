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
 * of each query's sum. Vectors of a token are 3 * channels apart in qkv, 2 * channels in a block of
 * keys and values. */
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

/* One head of a token of this rank, and a block of keys and values. */
struct query {
	size_t number;   /* of all queries                                                   */
	int row, at;     /* its row; where its head begins in a vector                       */
	int size;        /* of a head                                                        */
	int seen[2];     /* tokens of the block's first and second half that are not later   */
	const float *kv; /* of its sequence and head                                         */
};

static int ring_stride(const struct ring *ring, int arrays)
{
	return arrays * ring->s.channels;
}

/* The block is that of rank; NULL: none. */
static struct query query_of(const struct ring *ring, size_t number, int rank, const float *block)
{
	const struct context *c = ring->context;
	int length = ring->s.length, heads = ring->s.heads, token = (int)number % length;
	int sequence = (int)number / length / heads, size = ring->s.channels / heads;
	int position = part_position(c->rank, c->size, length, token);
	struct query q = {.number = number,
			  .row = sequence * length + token,
			  .at = (int)number / length % heads * size,
			  .size = size};

	for (int half = 0; block && half < 2; half++) {
		int first = part_position(rank, c->size, length, half * (length / 2));
		int seen = position + 1 - first;
		q.seen[half] = seen < 0 ? 0 : seen < length / 2 ? seen : length / 2;
	}
	q.kv = block ? block + sequence * length * ring_stride(ring, 2) + q.at : NULL;
	return q;
}

static int query_seen(const struct query *q)
{
	return q->seen[0] + q->seen[1];
}

/* Where the key of the i-th token that is seen lies in the block, from kv on; its value is channels
 * further. */
static size_t query_key(const struct ring *ring, const struct query *q, int i)
{
	int token = i < q->seen[0] ? i : ring->s.length / 2 + i - q->seen[0];

	return (size_t)(token * ring_stride(ring, 2));
}

/* The largest score of a query with a block's keys; scores: all of them. */
static float query_score(const struct ring *ring, const struct query *q)
{
	const float *vector = ring->qkv + q->row * ring_stride(ring, 3) + q->at;
	float most = -INFINITY, scale = 1 / sqrtf((float)q->size);

	for (int i = 0; i < query_seen(q); i++) {
		ring->scores[i] =
			scale * layers_dot(vector, q->kv + query_key(ring, q, i), q->size);
		most = ring->scores[i] > most ? ring->scores[i] : most;
	}
	return most;
}

static void query_attend(const struct ring *ring, const struct query *q)
{
	float *out = ring->out + q->row * ring->s.channels + q->at;
	float before = ring->most[q->number], most = query_score(ring, q);

	most = most > before ? most : before;
	float scale = expf(before - most), sum = ring->weights[q->number] * scale;
	for (int j = 0; j < q->size; j++)
		out[j] *= scale;
	for (int i = 0; i < query_seen(q); i++) {
		float weight = expf(ring->scores[i] - most);
		sum += weight;
		layers_add_row(out, weight, q->kv + query_key(ring, q, i) + ring->s.channels,
			       q->size);
	}
	ring->most[q->number] = most;
	ring->weights[q->number] = sum;
}

/* Where a query sees nothing of a rank the largest score would be -infinity minus itself. */
static tutti_status ring_attend(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;

	(void)count;
	for (size_t i = 0; i < query_count(ring->s); i++) {
		struct query q = query_of(ring, i, rank, block);
		if (query_seen(&q) > 0)
			query_attend(ring, &q);
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
	struct ring ring = {.context = context, .s = s, .qkv = qkv, .kv = scratch};

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
		struct query q = query_of(&ring, i, 0, NULL);
		float *vector = out + q.row * s.channels + q.at;
		for (int j = 0; j < q.size; j++)
			vector[j] /= weights[i];
		weights[i] = ring.most[i] + logf(weights[i]);
	}
}

/* kv_grad: of q->kv */
static void query_attend_back(const struct ring *ring, const struct query *q, float *kv_grad)
{
	const float *vector = ring->qkv + q->row * ring_stride(ring, 3) + q->at;
	const float *dout = ring->out_grad + q->row * ring->s.channels + q->at;
	float *grad = ring->qkv_grad + q->row * ring_stride(ring, 3) + q->at;
	float scale = 1 / sqrtf((float)q->size), inner = ring->inner[q->number];

	query_score(ring, q);
	for (int i = 0; i < query_seen(q); i++) {
		size_t k = query_key(ring, q, i), v = k + (size_t)ring->s.channels;
		float weight = expf(ring->scores[i] - ring->weights[q->number]);
		float slope = weight * (layers_dot(dout, q->kv + v, q->size) - inner) * scale;
		layers_add_row(kv_grad + v, weight, dout, q->size);
		layers_add_row(kv_grad + k, slope, vector, q->size);
		layers_add_row(grad, slope, q->kv + k, q->size);
	}
}

static tutti_status ring_attend_back(void *arg, int rank, void *block, size_t count)
{
	const struct ring *ring = arg;
	float *kv_grad = ring->kv_grads + (size_t)rank * count;

	clear(kv_grad, count);
	for (size_t i = 0; i < query_count(ring->s); i++) {
		struct query q = query_of(ring, i, rank, block);
		query_attend_back(ring, &q, kv_grad + (q.kv - (float *)block));
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
		struct query q = query_of(&ring, i, 0, NULL);
		int at = q.row * s.channels + q.at;
		ring.inner[i] = layers_dot(out_grad + at, memory->out + at, q.size);
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
