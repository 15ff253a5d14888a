/* Elements in registers: their bits, their accumulators, and the operations on these. Callers give
 * dtypes as constants, so that no switch is left.
 *
 * Accumulators: f32 for floats of up to 32 bits, f64, u32 for integers of up to 32 bits, extended
 * by their sign, and u64. Integers wrap, whatever their sign is. */
#ifndef CUDA_KERNELS_ELEMENTS_H
#define CUDA_KERNELS_ELEMENTS_H

#include "cuda/kernels/kernel_machine.h"
#include "core/memory/small_float.h"

/* For the numbers of dtypes and ops. Its function of this name is not the kernel's entry. */
#define tutti_reduce tutti_reduce_of_the_host
#include <tutti/tutti.h>
#undef tutti_reduce

DEVICE int element_bytes(int dtype)
{
	switch (dtype) {
	case TUTTI_F8_E4M3:
	case TUTTI_F8_E5M2:
	case TUTTI_I8:
	case TUTTI_U8:
		return 1;
	case TUTTI_F16:
	case TUTTI_BF16:
	case TUTTI_I16:
	case TUTTI_U16:
		return 2;
	case TUTTI_F64:
	case TUTTI_I64:
	case TUTTI_U64:
		return 8;
	default:
		return 4;
	}
}

DEVICE uint64_t vector_get(const struct vector *v, int i, int bytes)
{
	switch (bytes) {
	case 1:
		return (v->w[i / 4] >> (8 * (i % 4))) & 0xff;
	case 2:
		return (v->w[i / 2] >> (16 * (i % 2))) & 0xffff;
	case 4:
		return v->w[i];
	default:
		return v->w[2 * i] | (uint64_t)v->w[2 * i + 1] << 32;
	}
}

DEVICE struct vector vector_zero(void)
{
	struct vector v = {{0, 0, 0, 0}};
	return v;
}

/* Element 1 becomes element 0, and so on; of elements of 1 or 2 bytes only the first 8 bytes. */
DEVICE void vector_shift(struct vector *v, int bytes)
{
	if (bytes <= 2) {
		v->w[0] = v->w[0] >> (8 * bytes) | v->w[1] << (32 - 8 * bytes);
		v->w[1] >>= 8 * bytes;
	} else if (bytes == 4) {
		v->w[0] = v->w[1];
		v->w[1] = v->w[2];
		v->w[2] = v->w[3];
	} else {
		v->w[0] = v->w[2];
		v->w[1] = v->w[3];
	}
}

/* Element i of v is zero before. */
DEVICE void vector_put(struct vector *v, int i, int bytes, uint64_t bits)
{
	switch (bytes) {
	case 1:
		v->w[i / 4] |= (uint32_t)bits << (8 * (i % 4));
		break;
	case 2:
		v->w[i / 2] |= (uint32_t)bits << (16 * (i % 2));
		break;
	case 4:
		v->w[i] = (uint32_t)bits;
		break;
	default:
		v->w[2 * i] = (uint32_t)bits;
		v->w[2 * i + 1] = (uint32_t)(bits >> 32);
	}
}

DEVICE float get_f32(int dtype, uint64_t bits)
{
	switch (dtype) {
	case TUTTI_F16:
		return widen_f16((uint32_t)bits);
	case TUTTI_BF16:
		return bf16_widen((uint16_t)bits);
	case TUTTI_F8_E4M3:
		return small_widen((uint32_t)bits, SMALL_E4M3);
	case TUTTI_F8_E5M2:
		return small_widen((uint32_t)bits, SMALL_E5M2);
	default:
		return f32_of_bits((uint32_t)bits);
	}
}

DEVICE uint64_t put_f32(int dtype, float x)
{
	x = x != x ? f32_of_bits(F32_NAN) : x;
	switch (dtype) {
	case TUTTI_F16:
		return narrow_f16(x);
	case TUTTI_BF16:
		return bf16_narrow(x);
	case TUTTI_F8_E4M3:
		return small_narrow(x, SMALL_E4M3);
	case TUTTI_F8_E5M2:
		return small_narrow(x, SMALL_E5M2);
	default:
		return bits_of_f32(x);
	}
}

DEVICE double get_f64(int dtype, uint64_t bits)
{
	double x;
	(void)dtype;
	memcpy(&x, &bits, sizeof x);
	return x;
}

DEVICE uint64_t put_f64(int dtype, double x)
{
	uint64_t bits;
	(void)dtype;
	memcpy(&bits, &x, sizeof bits);
	return x != x ? F64_NAN : bits;
}

DEVICE uint32_t get_u32(int dtype, uint64_t bits)
{
	switch (dtype) {
	case TUTTI_I8:
		return (uint32_t)(int32_t)(int8_t)bits;
	case TUTTI_I16:
		return (uint32_t)(int32_t)(int16_t)bits;
	default:
		return (uint32_t)bits;
	}
}

DEVICE uint64_t put_u32(int dtype, uint32_t x)
{
	int bytes = element_bytes(dtype);
	return bytes == 4 ? x : x & ((1u << (8 * bytes)) - 1);
}

DEVICE uint64_t get_u64(int dtype, uint64_t bits)
{
	(void)dtype;
	return bits;
}

DEVICE uint64_t put_u64(int dtype, uint64_t x)
{
	(void)dtype;
	return x;
}

/* Equal floats differ at most in the sign of zero: a set sign wins MIN, a clear one MAX. x + y is
 * the shortest way to a NaN. */
#define MERGE_FLOATS(tag, type, dtype_of_acc)                                                      \
	DEVICE type merge_##tag(int dtype, int op, type x, type y)                                 \
	{                                                                                          \
		uint64_t a = put_##tag(dtype_of_acc, x), b = put_##tag(dtype_of_acc, y);           \
		(void)dtype;                                                                       \
		if (op == TUTTI_SUM)                                                               \
			return x + y;                                                              \
		if (op == TUTTI_PROD)                                                              \
			return x * y;                                                              \
		if (x == y)                                                                        \
			return get_##tag(dtype_of_acc, op == TUTTI_MIN ? a | b : a & b);           \
		if (x < y)                                                                         \
			return op == TUTTI_MIN ? x : y;                                            \
		if (x > y)                                                                         \
			return op == TUTTI_MIN ? y : x;                                            \
		return x + y;                                                                      \
	}                                                                                          \
	DEVICE type divide_##tag(type x, int divisor)                                              \
	{                                                                                          \
		return divisor ? x / (type)divisor : x;                                            \
	}
MERGE_FLOATS(f32, float, TUTTI_F32)
MERGE_FLOATS(f64, double, TUTTI_F64)

#define MERGE_INTEGERS(tag, type, signed_type, unsigned_dtype)                                     \
	DEVICE type merge_##tag(int dtype, int op, type x, type y)                                 \
	{                                                                                          \
		int less = dtype == unsigned_dtype ? x < y : (signed_type)x < (signed_type)y;      \
		switch (op) {                                                                      \
		case TUTTI_PROD:                                                                   \
			return x * y;                                                              \
		case TUTTI_MIN:                                                                    \
			return less ? x : y;                                                       \
		case TUTTI_MAX:                                                                    \
			return less ? y : x;                                                       \
		case TUTTI_BAND:                                                                   \
			return x & y;                                                              \
		case TUTTI_BOR:                                                                    \
			return x | y;                                                              \
		case TUTTI_BXOR:                                                                   \
			return x ^ y;                                                              \
		default:                                                                           \
			return x + y;                                                              \
		}                                                                                  \
	}                                                                                          \
	DEVICE type divide_##tag(type x, int divisor)                                              \
	{                                                                                          \
		(void)divisor; /* averages of integers are exact: average_of() */                  \
		return x;                                                                          \
	}
MERGE_INTEGERS(u32, uint32_t, int32_t, TUTTI_U32)
MERGE_INTEGERS(u64, uint64_t, int64_t, TUTTI_U64)

#endif
