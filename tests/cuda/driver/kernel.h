/* Kernels: the product's, those of examples/gpt_cuda, and a few of the driver's own tests. */
#ifndef TESTS_CUDA_KERNEL_H
#define TESTS_CUDA_KERNEL_H

#include "tests/cuda/driver/driver.h"
#include "tests/cuda/driver/own_kernels.h"

struct kernel {
	const char *name;
	unsigned threads; /* of a block */
	size_t argument_bytes;
	void (*run_block)(const void *arguments, struct kernel_block *block);
};

/* A kernel of one context. */
struct CUfunc_st {
	const struct kernel *kernel;
	CUcontext context;
};

#endif
