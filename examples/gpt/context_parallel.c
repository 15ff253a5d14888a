/* Whose tokens are where, and attention by heads. */
#include "context_parallel.h"

#include "gpt.h"

#include <string.h>

int context_position(const struct context *context, int rank, int row)
{
	int half = context->length / 2, at = row % context->length;

	return at < half ? rank * half + at : (2 * context->size - 1 - rank) * half + at - half;
}

/* This rank's heads of whole sequences. */
static struct attention_shape by_heads(const struct context *context, struct attention_shape s)
{
	return (struct attention_shape){s.sequences, s.length * context->size,
					s.channels / context->size, s.heads / context->size};
}

size_t context_weights(const struct context *context, struct attention_shape s)
{
	struct attention_shape own = by_heads(context, s);
	size_t rows = (size_t)s.sequences * (size_t)s.length * (size_t)s.heads;

	if (context->size > 1 && !context->by_heads)
		return rows;
	return rows * (size_t)own.length;
}

static size_t qkv_count(struct attention_shape s)
{
	return (size_t)s.sequences * (size_t)s.length * 3 * (size_t)s.channels;
}

/* Where the heads form has: what it sends, what it receives, whole gradients, whole outputs. */
static float *context_parallel_piece_of(float *scratch, struct attention_shape s, int which)
{
	return scratch + (size_t)which * qkv_count(s);
}

size_t context_scratch(const struct context *context, struct attention_shape s)
{
	if (context->size == 1)
		return attention_scratch(s);
	if (!context->by_heads)
		return ring_scratch(context, s);
	return 4 * qkv_count(s) + attention_scratch(by_heads(context, s));
}

/* An exchange of arrays of vectors that lie side by side in a row: 3 of qkv, 1 of out. */
struct exchange {
	const struct context *context;
	struct attention_shape shape;
	int arrays;
	float *sent, *received; /* (size, rows of a rank, arrays, channels of some heads) */
};

static struct exchange exchange_of(const struct context *context, struct attention_shape s,
				   int arrays, float *scratch)
{
	return (struct exchange){context, s, arrays, context_parallel_piece_of(scratch, s, 0),
				 context_parallel_piece_of(scratch, s, 1)};
}

static void context_parallel_swap(const struct exchange *x)
{
	struct attention_shape s = x->shape;
	size_t count = (size_t)s.sequences * (size_t)s.length * (size_t)x->arrays *
		       (size_t)s.channels / (size_t)x->context->size;

	must(tutti_all_to_all(x->sent, x->received, count, TUTTI_F32, x->context->comm, NULL));
}

/* A vector in the piece of a rank, (rows, arrays, width). */
static float *context_parallel_packed(const struct exchange *x, float *pieces, int rank, int row,
				      int array)
{
	struct attention_shape s = x->shape;
	int rows = s.sequences * s.length, width = s.channels / x->context->size;

	return pieces +
	       (((size_t)rank * (size_t)rows + (size_t)row) * (size_t)x->arrays + (size_t)array) *
		       (size_t)width;
}

/* A rank's heads in a row of rows (rows, arrays, channels). */
static float *in_rows(const struct exchange *x, float *rows, int rank, int row, int array)
{
	struct attention_shape s = x->shape;
	int width = s.channels / x->context->size;

	return rows + ((size_t)row * (size_t)x->arrays + (size_t)array) * (size_t)s.channels +
	       (size_t)rank * (size_t)width;
}

/* A row of a rank in whole sequences (sequences, whole length, arrays, width). */
static float *in_whole(const struct exchange *x, float *whole, int rank, int row, int array)
{
	struct attention_shape s = x->shape;
	int width = s.channels / x->context->size, length = s.length * x->context->size;
	int at = row / s.length * length + context_position(x->context, rank, row);

	return whole + ((size_t)at * (size_t)x->arrays + (size_t)array) * (size_t)width;
}

/* Copies between the pieces of all ranks and rows or whole sequences. */
typedef float *(*finder)(const struct exchange *, float *, int rank, int row, int array);

static void context_parallel_copy(const struct exchange *x, finder to_find, float *to,
				  finder from_find, float *from)
{
	struct attention_shape s = x->shape;
	size_t bytes = (size_t)(s.channels / x->context->size) * sizeof(float);

	for (int rank = 0; rank < x->context->size; rank++)
		for (int row = 0; row < s.sequences * s.length; row++)
			for (int a = 0; a < x->arrays; a++)
				memcpy(to_find(x, to, rank, row, a),
				       from_find(x, from, rank, row, a), bytes);
}

static void to_whole(const struct exchange *x, float *whole, const float *rows)
{
	context_parallel_copy(x, context_parallel_packed, x->sent, in_rows,
			      (float *)(uintptr_t)rows);
	context_parallel_swap(x);
	context_parallel_copy(x, in_whole, whole, context_parallel_packed, x->received);
}

static void to_rows(const struct exchange *x, float *rows, float *whole)
{
	context_parallel_copy(x, context_parallel_packed, x->sent, in_whole, whole);
	context_parallel_swap(x);
	context_parallel_copy(x, in_rows, rows, context_parallel_packed, x->received);
}

void context_attention_forward(const struct context *context, float *out,
			       const struct context_memory *memory, const float *qkv,
			       float *scratch, struct attention_shape s)
{
	struct exchange three = exchange_of(context, s, 3, scratch);
	struct exchange one = exchange_of(context, s, 1, scratch);
	float *whole_out = context_parallel_piece_of(scratch, s, 2);

	if (context->size == 1) {
		attention_forward(out, memory->weights, qkv, s);
		return;
	}
	if (!context->by_heads) {
		ring_attention_forward(context, out, memory->weights, qkv, scratch, s);
		return;
	}
	to_whole(&three, memory->qkv, qkv);
	attention_forward(whole_out, memory->weights, memory->qkv, by_heads(context, s));
	to_rows(&one, out, whole_out);
}

void context_attention_backward(const struct context *context, float *qkv_grad,
				const float *out_grad, const struct context_memory *memory,
				float *scratch, struct attention_shape s)
{
	struct exchange three = exchange_of(context, s, 3, scratch);
	struct exchange one = exchange_of(context, s, 1, scratch);
	float *whole_grad = context_parallel_piece_of(scratch, s, 2),
	      *whole_out_grad = context_parallel_piece_of(scratch, s, 3);

	if (context->size == 1) {
		attention_backward(qkv_grad, scratch, out_grad, memory->qkv, memory->weights, s);
		return;
	}
	if (!context->by_heads) {
		ring_attention_backward(context, qkv_grad, out_grad, memory, scratch, s);
		return;
	}
	to_whole(&one, whole_out_grad, out_grad);
	attention_backward(whole_grad, context_parallel_piece_of(scratch, s, 4), whole_out_grad,
			   memory->qkv, memory->weights, by_heads(context, s));
	to_rows(&three, qkv_grad, whole_grad);
}
