/* Kernels of which the driver's tests are made. As all kernels here, each takes one struct. */
#ifndef TESTS_CUDA_OWN_KERNELS_H
#define TESTS_CUDA_OWN_KERNELS_H

#include "cuda/kernels/block.h"

#define OWN_KERNELS(X)                                                                             \
	X(fake_fill, 32)                                                                           \
	X(fake_meet, 32)                                                                           \
	X(fake_wait, 32)

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

#define OWN_KERNEL(name, threads)                                                                  \
	void name##_block(const struct name##_args *args, struct kernel_block *block);
OWN_KERNELS(OWN_KERNEL)
#undef OWN_KERNEL

#endif
