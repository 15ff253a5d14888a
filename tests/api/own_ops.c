/* Operations that callers make: exact, associative and commutative ones, and a sum scaled on each
 * rank by its own scalar. */
#include "data.h"

#include "api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULUS UINT64_C(4294967291) /* the largest prime of 32 bits */

static double max_abs(double x, double y)
{
	return fabs(x) < fabs(y) ? fabs(y) : fabs(x);
}

/* Complex numbers of two residues, one in each half: the exact stand-in for two floats. */
static uint64_t complex_product(uint64_t x, uint64_t y)
{
	uint64_t a = x >> 32, b = x & UINT32_MAX, c = y >> 32, d = y & UINT32_MAX;
	uint64_t minus = MODULUS - b % MODULUS;
	uint64_t real = (a * c % MODULUS + minus * d % MODULUS) % MODULUS;
	return real << 32 | (a * d % MODULUS + b * c % MODULUS) % MODULUS;
}

/* Of other types the bits: 1 where both are the same. NaNs among them are bits too. */
static uint64_t apply(uint64_t x, uint64_t y, tutti_dtype dtype)
{
	double a, b;

	if (dtype == TUTTI_U64)
		return complex_product(x, y);
	if (dtype != TUTTI_F64)
		return ~(x ^ y);
	memcpy(&a, &x, sizeof a);
	memcpy(&b, &y, sizeof b);
	a = max_abs(a, b);
	memcpy(&x, &a, sizeof a);
	return x;
}

/* What the header promises to such a function. */
static void check_promises(const void *inout, const void *in, size_t count, size_t bytes)
{
	if (count > 0 && (uintptr_t)inout % bytes == 0 && (uintptr_t)in % bytes == 0)
		return;
	fprintf(stderr, "an op was called with %p, %p, %zu elements of %zu bytes\n", inout, in,
		count, bytes);
	abort();
}

static void apply_all(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	size_t bytes = data_bytes(dtype);

	check_promises(inout, in, count, bytes);
	if (dtype != *(const tutti_dtype *)arg)
		abort();
	for (size_t i = 0; i < count; i++) {
		uint64_t x = 0, y = 0;
		memcpy(&x, (char *)inout + i * bytes, bytes);
		memcpy(&y, (const char *)in + i * bytes, bytes);
		x = apply(x, y, dtype);
		memcpy((char *)inout + i * bytes, &x, bytes);
	}
}

uint64_t own_op_expect(const struct data *d, size_t i)
{
	uint64_t x = data_element(d, 0, i);
	for (int rank = 1; rank < d->ranks; rank++)
		x = apply(x, data_element(d, rank, i), d->dtype);
	return x;
}

void own_op_draw(struct data *d, uint64_t *random)
{
	uint64_t r = random_below(random, 10);
	d->maker = r == 0 ? DATA_USER : r == 1 ? DATA_SCALED : DATA_BUILT_IN;
	if (d->maker != DATA_BUILT_IN)
		d->op = TUTTI_SUM;
}

tutti_status own_op_open(const struct data *d, int rank, tutti_op *op)
{
	static tutti_dtype args[DTYPES] = {TUTTI_F32,     TUTTI_F64,     TUTTI_F16, TUTTI_BF16,
					   TUTTI_F8_E4M3, TUTTI_F8_E5M2, TUTTI_I8,  TUTTI_U8,
					   TUTTI_I16,     TUTTI_U16,     TUTTI_I32, TUTTI_U32,
					   TUTTI_I64,     TUTTI_U64};
	int scalar = data_scalar(d, rank);
	uint64_t bits = data_is_float(d->dtype) ? data_bits_of(scalar, d->dtype) : (uint64_t)scalar;

	*op = d->op;
	if (d->maker == DATA_SCALED)
		return tutti_op_create_scaled(op, &bits, d->dtype);
	if (d->maker == DATA_USER)
		return tutti_op_create(op, data_dtype_name(d->dtype), apply_all, &args[d->dtype]);
	return TUTTI_OK;
}

void own_op_close(const struct data *d, tutti_op op)
{
	if (d->maker != DATA_BUILT_IN)
		tutti_op_destroy(op);
}
