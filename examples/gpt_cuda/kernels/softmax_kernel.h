/* Softmax, of attention's weights and of the loss. Each row has a group of lanes. */
#ifndef EXAMPLES_GPT_CUDA_KERNELS_SOFTMAX_KERNEL_H
#define EXAMPLES_GPT_CUDA_KERNELS_SOFTMAX_KERNEL_H

#include "examples/gpt_cuda/kernels/core.h"

struct softmax_rows {
	const float *x; /* (n, stride)                                          */
	int n, stride;
	int is_causal;  /* row r has r % stride + 1 numbers, instead of stride  */
};

DEVICE int row_count(const struct softmax_rows *rows, int r)
{
	if (r >= rows->n)
		return 0;
	return rows->is_causal ? r % rows->stride + 1 : rows->stride;
}

/* The largest number of each row, and the sum of exponentials of what each is less than that. */
DEVICE void softmax_rows(const struct softmax_rows *rows, struct groups *most, struct groups *sums, int first)
{
	block_barrier(); /* the rows before may still be read */
	EACH_THREAD(t) {
		int g = group_of(t), r = first + g, count = row_count(rows, r);
		float x = -INFINITY;
		for (int j = lane_of(t); j < count; j += LANES) {
			float y = get(rows->x, (int64_t)r * rows->stride + j);
			x = y > x ? y : x;
		}
		most->part[g][lane_of(t)] = x;
	}
	block_barrier();
	EACH_THREAD(t)
		if (lane_of(t) == 0)
			most->all[group_of(t)] = most_of_lanes(most->part[group_of(t)]);
	block_barrier();
	EACH_THREAD(t) {
		int g = group_of(t), r = first + g, count = row_count(rows, r);
		float sum = 0;
		for (int j = lane_of(t); j < count; j += LANES)
			sum += expf(get(rows->x, (int64_t)r * rows->stride + j) - most->all[g]);
		sums->part[g][lane_of(t)] = sum;
	}
	sum_lanes(sums);
}

DEVICE void gpt_attend_body(const struct gpt_attend_args *a, struct kernel_block *block)
{
	struct softmax_rows rows = {a->weights, a->rows, a->length, 1};
	BLOCK_SHARED struct groups most, sums;

	for (int first = (int)block->index * GROUPS; first < a->rows; first += (int)block->count * GROUPS) {
		softmax_rows(&rows, &most, &sums, first);
		EACH_THREAD(t) {
			int g = group_of(t), r = first + g, count = row_count(&rows, r);
			for (int j = lane_of(t); r < a->rows && j < a->length; j += LANES) {
				int64_t i = (int64_t)r * a->length + j;
				put(a->weights, i,
				    j < count ? expf(get(a->weights, i) - most.all[g]) / sums.all[g] : 0);
			}
		}
	}
}
KERNEL(gpt_attend)

DEVICE void gpt_attend_backward_body(const struct gpt_attend_backward_args *a, struct kernel_block *block)
{
	struct softmax_rows rows = {a->weights, a->rows, a->length, 1};
	BLOCK_SHARED struct groups sums;

	for (int first = (int)block->index * GROUPS; first < a->rows; first += (int)block->count * GROUPS) {
		block_barrier();
		EACH_THREAD(t) {
			int g = group_of(t), r = first + g, count = row_count(&rows, r);
			float sum = 0;
			for (int j = lane_of(t); j < count; j += LANES) {
				int64_t i = (int64_t)r * a->length + j;
				sum += get(a->grad, i) * get(a->weights, i);
			}
			sums.part[g][lane_of(t)] = sum;
		}
		sum_lanes(&sums);
		EACH_THREAD(t) {
			int g = group_of(t), r = first + g, count = row_count(&rows, r);
			for (int j = lane_of(t); r < a->rows && j < a->length; j += LANES) {
				int64_t i = (int64_t)r * a->length + j;
				float by = j < count ? get(a->weights, i) * a->scale : 0;
				put(a->grad, i, j < count ? by * (get(a->grad, i) - sums.all[g]) : 0);
			}
		}
	}
}
KERNEL(gpt_attend_backward)

DEVICE void gpt_loss_body(const struct gpt_loss_args *a, struct kernel_block *block)
{
	struct softmax_rows rows = {a->logits, a->n, a->vocab, 0};
	BLOCK_SHARED struct groups most, sums;

	for (int first = (int)block->index * GROUPS; first < a->n; first += (int)block->count * GROUPS) {
		softmax_rows(&rows, &most, &sums, first);
		EACH_THREAD(t) {
			int g = group_of(t), r = first + g;
			if (lane_of(t) == 0 && r < a->n) {
				float right = get(a->logits, (int64_t)r * a->vocab + get_byte(a->targets, r));
				put(a->losses, r, logf(sums.all[g]) - (right - most.all[g]));
			}
		}
		block_barrier();
		EACH_THREAD(t) {
			int g = group_of(t), r = first + g;
			for (int j = lane_of(t); a->with_grad && r < a->n && j < a->vocab; j += LANES) {
				int64_t i = (int64_t)r * a->vocab + j;
				float x = expf(get(a->logits, i) - most.all[g]) / sums.all[g];
				put(a->logits, i, (j == get_byte(a->targets, r) ? x - 1 : x) * a->scale);
			}
		}
	}
}
KERNEL(gpt_loss)

#endif
