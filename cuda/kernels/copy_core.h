/* Copies by the threads of a block. */
#ifndef CUDA_KERNELS_COPY_CORE_H
#define CUDA_KERNELS_COPY_CORE_H

#include "cuda/kernels/kernel_machine.h"

#define COPY_UNROLL 8 /* vectors of a thread in flight */

DEVICE void copy_units(char *dst, const char *src, uint64_t n, int bytes, uint64_t thread,
		       uint64_t threads)
{
	NO_UNROLL
	for (uint64_t i = thread; i < n; i += threads)
		store_8(dst + i * (uint64_t)bytes, load_8(src + i * (uint64_t)bytes, bytes), bytes);
}

DEVICE void copy_vectors(char *dst, const char *src, uint64_t n, uint64_t thread, uint64_t threads)
{
	uint64_t i = thread;

	for (; i + (COPY_UNROLL - 1) * threads < n; i += COPY_UNROLL * threads) {
		struct vector v[COPY_UNROLL];
		UNROLL
		for (int k = 0; k < COPY_UNROLL; k++)
			v[k] = load_vector(src + (i + (unsigned)k * threads) * 16);
		UNROLL
		for (int k = 0; k < COPY_UNROLL; k++)
			store_vector(dst + (i + (unsigned)k * threads) * 16, v[k]);
	}
	NO_UNROLL
	for (; i < n; i += threads)
		store_vector(dst + i * 16, load_vector(src + i * 16));
}

/* Thread number `thread` of `threads` does its part. In units as large as both pointers allow. */
DEVICE_OUT void copy_bytes(void *to, const void *from, uint64_t bytes, uint64_t thread,
			   uint64_t threads)
{
	char *dst = (char *)to;
	const char *src = (const char *)from;
	uint64_t differ = ((uintptr_t)dst ^ (uintptr_t)src) | 16, unit = differ & (0 - differ);
	uint64_t head = (0 - (uintptr_t)dst) & (unit - 1), n;

	if (dst == src)
		return;
	head = head < bytes ? head : bytes;
	n = (bytes - head) / unit;
	if (unit == 16)
		copy_vectors(dst + head, src + head, n, thread, threads);
	else
		copy_units(dst + head, src + head, n, (int)unit, thread, threads);
	copy_units(dst, src, head, 1, thread, threads);
	copy_units(dst + head + n * unit, src + head + n * unit, bytes - head - n * unit, 1, thread,
		   threads);
}

#endif
