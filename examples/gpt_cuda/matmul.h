/* Matrix products on the GPU, by cuBLAS or by a kernel of our own. */
#ifndef EXAMPLES_GPT_CUDA_MATMUL_H
#define EXAMPLES_GPT_CUDA_MATMUL_H

#include <stdbool.h>
#include <stdint.h>

/* c (rows, cols) = alpha * a (rows, inner) * b (inner, cols), or c += that with add: so many products, of which
 * matrix i begins i batch strides further. A transposed a lies as (inner, rows), a transposed b as (cols, inner).
 * Strides are from row to row as it lies. */
struct matmul {
	float *c;
	const float *a, *b;
	int rows, inner, cols;
	int a_stride, b_stride, c_stride;
	int64_t a_batch, b_batch, c_batch;
	int batches;
	float alpha;
	bool a_transposed, b_transposed, add;
};

/* how: "cublas" or "plain"; NULL: cublas, or plain with a message where there is none. Returns 0, or -1 after
 * saying why. */
int matmul_open(const char *how);
/* In stream_handle(); returns at once. */
void matmul(const struct matmul *m);

#endif
