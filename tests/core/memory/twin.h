/* The plain twins of core/memory/small_float.h and of reductions, sharing nothing with them: small
 * floats go through exact doubles. */
#ifndef TESTS_CORE_MEMORY_TWIN_H
#define TESTS_CORE_MEMORY_TWIN_H

#include <tutti/tutti.h>

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* What a twin does with an op that it has no case for: a sum in its place would pass for it. */
_Noreturn static inline void twin_lacks_op(tutti_op op)
{
	fprintf(stderr, "the twin does not know op %d\n", (int)op);
	abort();
}

/* Of integers; less: x is less than y. The bits above the dtype's do not count. */
static inline uint64_t twin_combine(uint64_t x, uint64_t y, bool less, tutti_op op)
{
	switch (op) { /* without a default: an op that has no case does not compile */
	case TUTTI_SUM:
	case TUTTI_AVG:
		return x + y;
	case TUTTI_PROD:
		return x * y;
	case TUTTI_MIN:
		return less ? x : y;
	case TUTTI_MAX:
		return less ? y : x;
	case TUTTI_BAND:
		return x & y;
	case TUTTI_BOR:
		return x | y;
	case TUTTI_BXOR:
		return x ^ y;
	case TUTTI_OP_MAX_:
		break;
	}
	twin_lacks_op(op);
}

struct twin_format {
	int exponent, mantissa; /* bits */
	bool is_e4m3;           /* no infinities, one NaN a sign */
};

static inline struct twin_format twin_format(tutti_dtype dtype)
{
	switch ((int)dtype) {
	case TUTTI_F16:
		return (struct twin_format){5, 10, false};
	case TUTTI_BF16:
		return (struct twin_format){8, 7, false};
	case TUTTI_F8_E5M2:
		return (struct twin_format){5, 2, false};
	default:
		return (struct twin_format){4, 3, true};
	}
}

static inline double twin_decode(uint32_t bits, struct twin_format f)
{
	int e = (int)(bits >> f.mantissa) & ((1 << f.exponent) - 1);
	int m = (int)bits & ((1 << f.mantissa) - 1), bias = (1 << (f.exponent - 1)) - 1;
	double sign = bits >> (f.exponent + f.mantissa) ? -1.0 : 1.0;

	if (f.is_e4m3 && e == 15 && m == 7)
		return (double)NAN;
	if (!f.is_e4m3 && e == (1 << f.exponent) - 1)
		return m ? (double)NAN : sign * (double)INFINITY;
	if (e == 0)
		return sign * ldexp(m, 1 - bias - f.mantissa);
	return sign * ldexp((1 << f.mantissa) + m, e - bias - f.mantissa);
}

/* The nearest number, ties to even; NaN and overflow as core/memory/small_float.h says. */
static inline uint32_t twin_encode(double x, struct twin_format f)
{
	int bias = (1 << (f.exponent - 1)) - 1, e;
	uint32_t sign = signbit(x) ? 1u << (f.exponent + f.mantissa) : 0;
	uint32_t all = (1u << f.exponent) - 1;
	uint32_t nan = f.is_e4m3 ? 0x7f : all << f.mantissa | 1u << (f.mantissa - 1);
	uint32_t infinite = f.is_e4m3 ? nan : all << f.mantissa | sign;
	double largest = twin_decode(f.is_e4m3 ? 0x7e : (all << f.mantissa) - 1, f);

	if (isnan(x))
		return nan;
	if (isinf(x))
		return infinite;
	if (x == 0)
		return sign;
	frexp(x, &e); /* |x| is in [2^(e-1), 2^e) */
	e = e - 1 < 1 - bias ? 1 - bias : e - 1;
	double steps = nearbyint(ldexp(fabs(x), f.mantissa - e));
	if (ldexp(steps, e - f.mantissa) > largest)
		return infinite;
	/* Steps of the smallest exponent count subnormals too; a carry moves to the next exponent.
	 */
	return sign | (((uint32_t)(e - 1 + bias) << f.mantissa) + (uint32_t)steps);
}

#define TWIN_SOURCES 1024

/* The bits of element i of the result, by the fixed tree. Integers: as many bits as the dtype has
 * count. */
struct reduction;
uint64_t twin_reduce(const struct reduction *r, size_t i);

#endif
