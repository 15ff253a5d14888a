/* Kernels of which the driver's tests are made, and the cuBLAS of tests/cuda/cublas. As all kernels here, each takes one struct. */
#ifndef TESTS_CUDA_OWN_KERNELS_H
#define TESTS_CUDA_OWN_KERNELS_H

#include "cuda/kernels/block.h"

#include <stdbool.h>

#define FAKE_GEMM_THREADS 32

#define OWN_KERNELS(X)                                                                             \
	X(fake_fill, 32)                                                                           \
	X(fake_meet, 32)                                                                           \
	X(fake_wait, 32)                                                                           \
	X(fake_gemm, FAKE_GEMM_THREADS)

/* Block i adds to the words i, i + count, i + 2 count... */
struct fake_fill_args {
	uint32_t *to;
	size_t n;
	uint32_t add;
};

/* Each block counts itself, and waits until n blocks have come. */
struct fake_meet_args {
	uint32_t *came;
	uint32_t n;
};

/* Each block waits until the word has the value. */
struct fake_wait_args {
	const uint32_t *word;
	uint32_t value;
};

/* c = alpha * op(a) * op(b) + beta * c, batches times, of matrices by columns: those of cublasSgemmStridedBatched. */
struct fake_gemm_args {
	const float *a, *b;
	float *c;
	int64_t a_batch, b_batch, c_batch;
	int rows, cols, inner, batches, a_stride, b_stride, c_stride;
	bool a_transposed, b_transposed, in_tf32;
	float alpha, beta;
};

#define OWN_KERNEL(name, threads)                                                                  \
	void name##_block(const struct name##_args *args, struct kernel_block *block);
OWN_KERNELS(OWN_KERNEL)
#undef OWN_KERNEL

#endif
