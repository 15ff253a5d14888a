/* Matrix products by tiles, for where there is no cuBLAS, which is many times as fast. */
#ifndef EXAMPLES_GPT_CUDA_KERNELS_MATMUL_KERNEL_H
#define EXAMPLES_GPT_CUDA_KERNELS_MATMUL_KERNEL_H

#include "examples/gpt_cuda/kernels/core.h"

#define TILE 16 /* squared: a thread for each element of a tile */

/* A tile of each matrix, with a column more, so that a column's elements are in different banks. */
struct tiles {
	float a[TILE][TILE + 1], b[TILE][TILE + 1], c[TILE][TILE + 1];
};

/* Rows r to r + TILE, columns j to j + TILE of matrix number batch. */
DEVICE void multiply_tile(const struct gpt_matmul_args *m, struct tiles *tiles, int64_t batch, int row, int col)
{
	const float *a = m->a + batch * m->a_batch, *b = m->b + batch * m->b_batch;

	EACH_THREAD(t)
		tiles->c[t / TILE][t % TILE] = 0;
	for (int first = 0; first < m->inner; first += TILE) {
		block_barrier();
		EACH_THREAD(t) {
			int y = t / TILE, x = t % TILE, r = row + y, j = col + x;
			int has_a = r < m->rows && first + x < m->inner, has_b = j < m->cols && first + y < m->inner;
			tiles->a[y][x] = has_a ? get(a, (int64_t)r * m->a_row + (int64_t)(first + x) * m->a_col) : 0;
			tiles->b[y][x] = has_b ? get(b, (int64_t)(first + y) * m->b_row + (int64_t)j * m->b_col) : 0;
		}
		block_barrier();
		EACH_THREAD(t) {
			int y = t / TILE, x = t % TILE;
			float sum = tiles->c[y][x];
			for (int i = 0; i < TILE; i++)
				sum += tiles->a[y][i] * tiles->b[i][x];
			tiles->c[y][x] = sum;
		}
	}
	EACH_THREAD(t) {
		int r = row + t / TILE, j = col + t % TILE;
		int64_t i = batch * m->c_batch + (int64_t)r * m->c_row + j;
		if (r < m->rows && j < m->cols)
			put(m->c, i, m->alpha * tiles->c[t / TILE][t % TILE] + (m->add ? get(m->c, i) : 0));
	}
}

DEVICE void gpt_matmul_body(const struct gpt_matmul_args *m, struct kernel_block *block)
{
	BLOCK_SHARED struct tiles tiles;
	int64_t across = (m->cols + TILE - 1) / TILE, down = (m->rows + TILE - 1) / TILE;

	for (int64_t i = block->index; i < m->batches * across * down; i += block->count) {
		int64_t batch = i / (across * down), tile = i % (across * down);
		multiply_tile(m, &tiles, batch, (int)(tile / across) * TILE, (int)(tile % across) * TILE);
	}
}
KERNEL(gpt_matmul)

#endif
