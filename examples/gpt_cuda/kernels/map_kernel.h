/* Element by element: sums, gelu, rows, wider floats; and the embedding. */
#ifndef EXAMPLES_GPT_CUDA_KERNELS_MAP_KERNEL_H
#define EXAMPLES_GPT_CUDA_KERNELS_MAP_KERNEL_H

#include "examples/gpt_cuda/kernels/core.h"

DEVICE float gelu_tanh(float x)
{
	float z = 0.7978845608f * (x + 0.044715f * x * x * x);
	return 1 - 2 / (expf(2 * z) + 1);
}

DEVICE float gelu_slope(float x)
{
	float t = gelu_tanh(x), slope = 0.7978845608f * (1 + 3 * 0.044715f * x * x);
	return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * slope;
}

DEVICE float mapped(const struct gpt_map_args *a, int64_t i)
{
	const float *x = (const float *)a->a;

	switch (a->what) {
	case GPT_ADD:
		return get(x, i) + get(a->b, i);
	case GPT_GELU:
		return 0.5f * get(x, i) * (1 + gelu_tanh(get(x, i)));
	case GPT_GELU_BACKWARD:
		return get(a->b, i) * gelu_slope(get(x, i));
	case GPT_ROWS:
		return get(x, i % a->cols);
	default:
		return widened(a->dtype, (uint32_t)load_8((const char *)a->a + 2 * i, 2));
	}
}

DEVICE void gpt_map_body(const struct gpt_map_args *a, struct kernel_block *block)
{
	uint64_t threads = (uint64_t)block->count * GPT_THREADS;

	EACH_THREAD(t)
		for (uint64_t i = (uint64_t)block->index * GPT_THREADS + (unsigned)t; i < a->count; i += threads)
			put(a->out, (int64_t)i, mapped(a, (int64_t)i));
}
KERNEL(gpt_map)

DEVICE void gpt_embed_body(const struct gpt_embed_args *a, struct kernel_block *block)
{
	int64_t count = (int64_t)a->n * a->c, threads = (int64_t)block->count * GPT_THREADS;

	EACH_THREAD(t)
		for (int64_t i = (int64_t)block->index * GPT_THREADS + t; i < count; i += threads) {
			int64_t r = i / a->c, j = i % a->c;
			int64_t token = get_byte(a->tokens, r), position = r % a->length;
			put(a->out, i, get(a->token_w, token * a->c + j) + get(a->position_w, position * a->c + j));
		}
}
KERNEL(gpt_embed)

#endif
