/* The kernels of the driver's own tests, and of its cuBLAS. */
#include "tests/cuda/driver/own_kernels.h"

#include "cuda/kernels/give_way.h"

#include <stdatomic.h>
#include <string.h>

void fake_fill_block(const struct fake_fill_args *args, struct kernel_block *block)
{
	for (size_t i = block->index; i < args->n; i += block->count)
		*(uint32_t *)kernel_reach(args->to + i, sizeof *args->to, 1) += args->add;
}

static uint32_t load(const uint32_t *word)
{
	return atomic_load((_Atomic uint32_t *)kernel_reach(word, sizeof *word, 0));
}

void fake_meet_block(const struct fake_meet_args *args, struct kernel_block *block)
{
	(void)block;
	atomic_fetch_add((_Atomic uint32_t *)kernel_reach(args->came, sizeof *args->came, 1), 1);
	while (load(args->came) < args->n)
		give_way();
}

void fake_wait_block(const struct fake_wait_args *args, struct kernel_block *block)
{
	(void)block;
	while (load(args->word) != args->value)
		give_way();
}

/* TF32 has 10 of the 23 bits behind the point. */
static float element(const float *x, int64_t i, bool in_tf32)
{
	uint32_t bits;
	float value;

	memcpy(&bits, kernel_reach(x + i, sizeof *x, 0), sizeof bits);
	bits &= in_tf32 ? ~UINT32_C(0x1fff) : ~UINT32_C(0);
	memcpy(&value, &bits, sizeof value);
	return value;
}

void fake_gemm_block(const struct fake_gemm_args *g, struct kernel_block *block)
{
	int64_t each = (int64_t)g->rows * g->cols;

	for (int64_t i = block->index; i < g->batches * each; i += block->count) {
		int64_t batch = i / each, r = i % each % g->rows, col = i % each / g->rows;
		const float *a = g->a + batch * g->a_batch, *b = g->b + batch * g->b_batch;
		float *c = g->c + batch * g->c_batch + col * g->c_stride + r, sum = 0;
		for (int64_t k = 0; k < g->inner; k++)
			sum += element(a,
				       g->a_transposed ? r * g->a_stride + k : k * g->a_stride + r,
				       g->in_tf32) *
			       element(b,
				       g->b_transposed ? k * g->b_stride + col
						       : col * g->b_stride + k,
				       g->in_tf32);
		/* With beta 0 c is not read: it may be NaN. */
		sum = g->alpha * sum + (g->beta != 0 ? g->beta * element(c, 0, false) : 0);
		memcpy(kernel_reach(c, sizeof *c, 1), &sum, sizeof sum);
	}
}
