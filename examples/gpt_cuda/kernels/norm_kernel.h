/* Layernorm. Each row has a group of lanes. */
#ifndef EXAMPLES_GPT_CUDA_KERNELS_NORM_KERNEL_H
#define EXAMPLES_GPT_CUDA_KERNELS_NORM_KERNEL_H

#include "examples/gpt_cuda/kernels/core.h"

/* The sum of each row, and that of its squared distances from the mean. */
DEVICE void sum_rows(const struct gpt_norm_args *a, struct groups *sums, struct groups *squares, int first)
{
	block_barrier(); /* the rows before may still be read */
	EACH_THREAD(t) {
		int g = group_of(t), r = first + g;
		float sum = 0;
		for (int j = lane_of(t); r < a->n && j < a->c; j += LANES)
			sum += get(a->in, (int64_t)r * a->c + j);
		sums->part[g][lane_of(t)] = sum;
	}
	sum_lanes(sums);
	EACH_THREAD(t) {
		int g = group_of(t), r = first + g;
		float sum = 0, mean = sums->all[g] / (float)a->c;
		for (int j = lane_of(t); r < a->n && j < a->c; j += LANES) {
			float x = get(a->in, (int64_t)r * a->c + j) - mean;
			sum += x * x;
		}
		squares->part[g][lane_of(t)] = sum;
	}
	sum_lanes(squares);
}

DEVICE void gpt_norm_body(const struct gpt_norm_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct groups sums, squares;

	for (int first = (int)block->index * GROUPS; first < a->n; first += (int)block->count * GROUPS) {
		sum_rows(a, &sums, &squares, first);
		EACH_THREAD(t) {
			int g = group_of(t), r = first + g;
			float mean = sums.all[g] / (float)a->c;
			float rstd = 1 / square_root(squares.all[g] / (float)a->c + 1e-5f);
			if (lane_of(t) == 0 && r < a->n) {
				put(a->mean, r, mean);
				put(a->rstd, r, rstd);
			}
			for (int j = lane_of(t); r < a->n && j < a->c; j += LANES) {
				int64_t i = (int64_t)r * a->c + j;
				float normal = (get(a->in, i) - mean) * rstd;
				put(a->out, i, normal * get(a->weight, j) + get(a->bias, j));
			}
		}
	}
}
KERNEL(gpt_norm)

DEVICE float normal_at(const float *in, const float *mean, const float *rstd, int64_t r, int64_t i)
{
	return (get(in, i) - get(mean, r)) * get(rstd, r);
}

/* The sums of a row's gradients, and of their products with what was normal. */
DEVICE void sum_norm_rows(const struct gpt_norm_backward_args *a, struct groups *sums, struct groups *products,
			  int first)
{
	block_barrier();
	EACH_THREAD(t) {
		int g = group_of(t), r = first + g;
		float sum = 0, product = 0;
		for (int j = lane_of(t); r < a->n && j < a->c; j += LANES) {
			int64_t i = (int64_t)r * a->c + j;
			float x = get(a->out_grad, i) * get(a->weight, j);
			sum += x;
			product += x * normal_at(a->in, a->mean, a->rstd, r, i);
		}
		sums->part[g][lane_of(t)] = sum;
		products->part[g][lane_of(t)] = product;
	}
	sum_lanes(sums);
	sum_lanes(products);
}

DEVICE void gpt_norm_backward_body(const struct gpt_norm_backward_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct groups sums, products;

	for (int first = (int)block->index * GROUPS; first < a->n; first += (int)block->count * GROUPS) {
		sum_norm_rows(a, &sums, &products, first);
		EACH_THREAD(t) {
			int g = group_of(t), r = first + g;
			for (int j = lane_of(t); r < a->n && j < a->c; j += LANES) {
				int64_t i = (int64_t)r * a->c + j;
				float normal = normal_at(a->in, a->mean, a->rstd, r, i);
				float x = get(a->out_grad, i) * get(a->weight, j);
				float all = (sums.all[g] + normal * products.all[g]) / (float)a->c;
				put(a->in_grad, i, get(a->in_grad, i) + get(a->rstd, r) * (x - all));
			}
		}
	}
}
KERNEL(gpt_norm_backward)

#endif
