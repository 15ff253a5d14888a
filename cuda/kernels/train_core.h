/* Elements of training in registers: one, or four that a thread moves at once. The arithmetic is
 * that of train/precision/kernel_template.h, operation by operation. */
#ifndef CUDA_KERNELS_TRAIN_CORE_H
#define CUDA_KERNELS_TRAIN_CORE_H

#include "cuda/kernels/elements.h"

#ifndef __CUDACC__
#include <math.h>
#endif

#define FOUR 4

DEVICE float square_root(float x)
{
#ifdef __CUDACC__
	return __fsqrt_rn(x);
#else
	return sqrtf(x);
#endif
}

DEVICE float one_nan(float x)
{
	return x != x ? f32_of_bits(F32_NAN) : x;
}

/* A NaN of bf16 keeps its payload, one of f16 becomes the canonical one. */
DEVICE float widened(int dtype, uint32_t bits)
{
	if (dtype == TUTTI_F32)
		return f32_of_bits(bits);
	return dtype == TUTTI_BF16 ? f32_of_bits(bits << 16) : one_nan(widen_f16(bits));
}

/* To 16 bits. */
DEVICE uint32_t narrowed(int dtype, float x)
{
	return dtype == TUTTI_BF16 ? bf16_narrow(one_nan(x)) : narrow_f16(one_nan(x));
}

DEVICE uint32_t narrowed_at_random(const struct train_rounding *r, float x, uint64_t i)
{
	uint32_t bits = bits_of_f32(one_nan(x)), magnitude = bits & 0x7fffffffu;
	uint32_t drawn = (r->first + (uint32_t)i) ^ (uint32_t)r->key;
	uint32_t up, infinity = 0x7f800000u;

	drawn = (drawn ^ drawn >> 16) * 0x85ebca6bu + (uint32_t)(r->key >> 32);
	drawn = (drawn ^ drawn >> 13) * 0xc2b2ae35u;
	up = magnitude + (drawn >> 16);
	up = up >= infinity ? infinity - 1 : up;
	up = magnitude >= infinity ? magnitude : up;
	return (up | (bits ^ magnitude)) >> 16;
}

/* Elements i to i + n; n is a constant, 1 or FOUR. */
DEVICE void load_floats(float x[FOUR], const void *from, uint64_t i, int dtype, int n)
{
	int bytes = dtype == TUTTI_F32 ? 4 : 2;
	const char *at = (const char *)from + i * (uint64_t)bytes;

	if (n == 1) {
		x[0] = widened(dtype, (uint32_t)load_8(at, bytes));
	} else if (dtype == TUTTI_F32) {
		struct vector v = load_vector(at);
		UNROLL
		for (int e = 0; e < FOUR; e++)
			x[e] = f32_of_bits(v.w[e]);
	} else {
		uint64_t bits = load_8(at, 8);
		UNROLL
		for (int e = 0; e < FOUR; e++)
			x[e] = widened(dtype, (uint32_t)(bits >> (16 * e)) & 0xffff);
	}
}

/* rounding: NULL is to the nearest. */
DEVICE void store_floats(void *to, uint64_t i, const float x[FOUR], int dtype, int n,
			 const struct train_rounding *rounding)
{
	char *at = (char *)to + i * (dtype == TUTTI_F32 ? 4 : 2);
	struct vector v = {{0, 0, 0, 0}};
	uint64_t bits = 0;

	UNROLL
	for (int e = 0; e < n; e++) {
		if (dtype == TUTTI_F32)
			v.w[e] = bits_of_f32(x[e]);
		else if (rounding && rounding->is_random)
			bits |= (uint64_t)narrowed_at_random(rounding, x[e], i + (uint64_t)e)
				<< (16 * e);
		else
			bits |= (uint64_t)narrowed(dtype, x[e]) << (16 * e);
	}
	if (dtype == TUTTI_F32 && n == 1)
		store_8(at, v.w[0], 4);
	else if (dtype == TUTTI_F32)
		store_vector(at, v);
	else
		store_8(at, bits, n == 1 ? 2 : 8);
}

/* Whether four elements may be moved at once. NULL may. */
DEVICE int is_for_four(const void *p, int dtype)
{
	return ((uintptr_t)p & (dtype == TUTTI_F32 ? 15 : 7)) == 0;
}

#endif
