/* Conversions between f32 and the 16- and 8-bit floats, as bits, without a branch, so that
 * compilers make vector code of loops over them. Narrowing rounds once, to the nearest, ties to
 * even.
 *
 *            sign exponent mantissa   beyond the largest       NaN of results
 *   f16        1      5       10      infinity                 0x7e00
 *   bf16       1      8        7      infinity                 0x7fc0
 *   f8_e5m2    1      5        2      infinity                 0x7e
 *   f8_e4m3    1      4        3      NaN (has no infinity)    0x7f
 *
 * f8_e4m3 is the OCP format that others call float8_e4m3fn: its largest number is 448, and what
 * rounds beyond (more than 464, infinities too) becomes NaN, as PyTorch's and ml_dtypes'
 * conversions have it, so that an overflow is seen; it does not saturate. */
#ifndef CORE_MEMORY_SMALL_FLOAT_H
#define CORE_MEMORY_SMALL_FLOAT_H

#include <stdint.h>
#include <string.h>

#define F32_NAN          UINT32_C(0x7fc00000)
#define F64_NAN          UINT64_C(0x7ff8000000000000)
#define F32_ONE_EXPONENT (UINT32_C(1) << 23)

struct small_float {
	unsigned exponent, mantissa; /* how many bits                                         */
	uint32_t overflow;           /* what follows the largest finite magnitude             */
	uint32_t nan;                /* the canonical NaN; all magnitudes from nan_first on are */
	uint32_t nan_first;
};

/* nvcc reads this, too: for GPUs, as C++. */
#ifdef __CUDACC__
#define SMALL_FLOAT_INLINE static __device__ __forceinline__
#define SMALL_FLOAT(...)   (small_float{__VA_ARGS__})
#else
#define SMALL_FLOAT_INLINE static inline
#define SMALL_FLOAT(...)   ((struct small_float){__VA_ARGS__})
#endif

#define SMALL_F16  SMALL_FLOAT(5, 10, 0x7c00, 0x7e00, 0x7c01)
#define SMALL_E5M2 SMALL_FLOAT(5, 2, 0x7c, 0x7e, 0x7d)
#define SMALL_E4M3 SMALL_FLOAT(4, 3, 0x7f, 0x7f, 0x7f)

SMALL_FLOAT_INLINE float f32_of_bits(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

SMALL_FLOAT_INLINE uint32_t bits_of_f32(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* The number to add to the exponent field of f to get f32's. */
SMALL_FLOAT_INLINE uint32_t small_bias(struct small_float f)
{
	return (128u - (1u << (f.exponent - 1))) << 23;
}

/* The f32 with the value of small's bits; a NaN of any payload stays a NaN. */
SMALL_FLOAT_INLINE float small_widen(uint32_t small, struct small_float f)
{
	uint32_t magnitude = small & ((1u << (f.exponent + f.mantissa)) - 1);
	uint32_t sign = (small >> (f.exponent + f.mantissa)) << 31;
	uint32_t bias = small_bias(f);
	uint32_t bits = (magnitude << (23 - f.mantissa)) + bias;
	/* Subnormal: with a leading one put in front, and then subtracted, the value is exact. */
	uint32_t one = bias + F32_ONE_EXPONENT;
	uint32_t subnormal = bits_of_f32(f32_of_bits(bits + F32_ONE_EXPONENT) - f32_of_bits(one));

	bits = magnitude < (1u << f.mantissa) ? subnormal : bits;
	bits = magnitude >= f.overflow ? UINT32_C(0x7f800000) : bits;
	bits = magnitude >= f.nan_first ? F32_NAN : bits;
	return f32_of_bits(bits | sign);
}

/* The nearest of f's numbers. */
SMALL_FLOAT_INLINE uint32_t small_narrow(float x, struct small_float f)
{
	uint32_t all = bits_of_f32(x), magnitude = all & 0x7fffffff;
	uint32_t sign = (all >> 31) << (f.exponent + f.mantissa);
	uint32_t bias = small_bias(f);
	unsigned cut = 23 - f.mantissa;
	uint32_t half = (1u << (cut - 1)) - 1 + ((magnitude >> cut) & 1);
	uint32_t small = (magnitude - bias + half) >> cut;
	/* Subnormal: next to this number an ulp of f32 is one of f's subnormal steps. */
	uint32_t step = bias + ((24 - f.mantissa) << 23);
	uint32_t subnormal = bits_of_f32(f32_of_bits(magnitude) + f32_of_bits(step)) - step;

	small = magnitude < bias + F32_ONE_EXPONENT ? subnormal : small;
	small = small > f.overflow ? f.overflow : small;
	small = magnitude > UINT32_C(0x7f800000) ? f.nan : small;
	return small >= f.nan_first ? f.nan : small | sign;
}

SMALL_FLOAT_INLINE float bf16_widen(uint16_t small)
{
	return f32_of_bits((uint32_t)small << 16);
}

/* x is no NaN, or the canonical one. */
SMALL_FLOAT_INLINE uint16_t bf16_narrow(float x)
{
	uint32_t bits = bits_of_f32(x);
	return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#endif
