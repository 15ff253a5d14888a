/* The arguments of kernels: plain data, the same bytes on the host and on the GPU. Pointers are the
 * device's. Any grid is right; a block a multiprocessor or two is fast. Numbers of dtypes and ops
 * are those of tutti.h. */
#ifndef CUDA_KERNELS_ARGS_H
#define CUDA_KERNELS_ARGS_H

#include <stdint.h>

#define REDUCE_KERNEL_DSTS         8
#define REDUCE_KERNEL_SOURCES      32
#define REDUCE_WIDE_KERNEL_SOURCES 1024 /* above 4 KiB of arguments: for drivers of CUDA 12.1 on */

/* As reduce() of core/memory/reduce.h, with the same bits. A destination may be a source; other overlaps
 * are not allowed. Pointers need no alignment; it is fast where all of them are equally far from a
 * multiple of 16 bytes. */
struct reduce_args {
	void *dst[REDUCE_KERNEL_DSTS];
	const void *src[REDUCE_KERNEL_SOURCES];
	uint64_t count;
	int32_t n_dst, n_src, dtype, op, divisor, unused;
};

struct reduce_wide_args {
	void *dst[REDUCE_KERNEL_DSTS];
	const void *src[REDUCE_WIDE_KERNEL_SOURCES];
	uint64_t count;
	int32_t n_dst, n_src, dtype, op, divisor, unused;
};

/* As scale() of core/memory/ops.h. scalar: the bits of one element, in the low bytes. */
struct scale_args {
	void *dst;
	const void *src;
	uint64_t scalar, count;
	int32_t dtype, unused;
};

#endif
