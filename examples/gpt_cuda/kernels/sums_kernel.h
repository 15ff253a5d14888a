/* Sums over rows: gradients of biases, norms and embeddings, and the loss. Each sum has one block, so that no atomics
 * are needed and its bits are the same in every run. */
#ifndef EXAMPLES_GPT_CUDA_KERNELS_SUMS_KERNEL_H
#define EXAMPLES_GPT_CUDA_KERNELS_SUMS_KERNEL_H

#include "examples/gpt_cuda/kernels/norm_kernel.h"

/* Neighbouring threads have neighbouring columns, which lie side by side. */
DEVICE void gpt_columns_body(const struct gpt_columns_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct groups sums, products;

	for (int first = (int)block->index * GROUPS; first < a->cols; first += (int)block->count * GROUPS) {
		block_barrier();
		EACH_THREAD(t) {
			int g = t % GROUPS, lane = t / GROUPS, j = first + g;
			float sum = 0, product = 0;
			for (int r = lane; j < a->cols && r < a->rows; r += LANES) {
				int64_t i = (int64_t)r * a->cols + j;
				float x = get(a->x, i);
				sum += x;
				if (a->products)
					product += x * normal_at(a->in, a->mean, a->rstd, r, i);
			}
			sums.part[g][lane] = sum;
			products.part[g][lane] = product;
		}
		block_barrier();
		EACH_THREAD(t) {
			int j = first + t;
			if (t >= GROUPS || j >= a->cols)
				continue;
			put(a->sums, j, get(a->sums, j) + sum_of_lanes(sums.part[t]));
			if (a->products)
				put(a->products, j, get(a->products, j) + sum_of_lanes(products.part[t]));
		}
	}
}
KERNEL(gpt_columns)

/* A block has one token, and a thread one of its columns: it goes through all rows in their order. */
DEVICE void gpt_tokens_body(const struct gpt_tokens_args *a, struct kernel_block *block)
{
	BLOCK_SHARED unsigned char tokens[GPT_THREADS];
	BLOCK_SHARED float sums[GPT_THREADS];
	int parts = (a->c + GPT_THREADS - 1) / GPT_THREADS;

	for (int item = (int)block->index; item < a->vocab * parts; item += (int)block->count) {
		int token = item / parts, col = item % parts * GPT_THREADS;
		EACH_THREAD(t)
			sums[t] = col + t < a->c ? get(a->token_grad, (int64_t)token * a->c + col + t) : 0;
		for (int first = 0; first < a->n; first += GPT_THREADS) {
			block_barrier();
			EACH_THREAD(t)
				if (first + t < a->n)
					tokens[t] = (unsigned char)get_byte(a->tokens, first + t);
			block_barrier();
			EACH_THREAD(t)
				for (int i = 0; col + t < a->c && i < GPT_THREADS && first + i < a->n; i++)
					if (tokens[i] == token)
						sums[t] += get(a->out_grad, (int64_t)(first + i) * a->c + col + t);
		}
		EACH_THREAD(t)
			if (col + t < a->c)
				put(a->token_grad, (int64_t)token * a->c + col + t, sums[t]);
	}
}
KERNEL(gpt_tokens)

DEVICE void gpt_loss_sum_body(const struct gpt_loss_sum_args *a, struct kernel_block *block)
{
	BLOCK_SHARED double part[GPT_THREADS];

	(void)block;
	EACH_THREAD(t) {
		double sum = 0;
		for (int r = t; r < a->n; r += GPT_THREADS)
			sum += (double)get(a->x, r);
		part[t] = sum;
	}
	block_barrier();
	EACH_THREAD(t) {
		uint64_t bits = t == 0 ? load_8(a->sum, 8) : 0;
		double sum;
		if (t != 0)
			continue;
		memcpy(&sum, &bits, sizeof sum);
		for (int i = 0; i < GPT_THREADS; i++)
			sum += part[i];
		memcpy(&bits, &sum, sizeof bits);
		store_8(a->sum, bits, 8);
	}
}
KERNEL(gpt_loss_sum)

#endif
