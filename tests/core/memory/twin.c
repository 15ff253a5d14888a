/* A reduction as its definition says, element by element, through exact doubles; nothing of
 * core/memory/ but its tables of types. */
#include "twin.h"

#include "core/memory/dtype.h"
#include "core/memory/reduce_kernels.h"

#include <string.h>

union value {
	float f;
	double d;
	uint64_t u;
};

static bool is_small(tutti_dtype dtype)
{
	return dtype_is_float(dtype) && dtype_bytes(dtype) <= 2;
}

static bool is_signed(tutti_dtype dtype)
{
	return dtype == TUTTI_I8 || dtype == TUTTI_I16 || dtype == TUTTI_I32 || dtype == TUTTI_I64;
}

/* Integers: sign or zero extended to 64 bits. */
static union value element(const void *p, size_t i, tutti_dtype dtype)
{
	union value v = {.u = 0};
	size_t bytes = dtype_bytes(dtype);

	memcpy(&v.u, (const char *)p + i * bytes, bytes);
	if (is_small(dtype))
		v.f = (float)twin_decode((uint32_t)v.u, twin_format(dtype));
	else if (is_signed(dtype) && bytes < 8 && v.u >> (8 * bytes - 1))
		v.u |= UINT64_MAX << (8 * bytes);
	return v;
}

static double min_max(double x, double y, bool min)
{
	if (isnan(x) || isnan(y))
		return (double)NAN;
	if (x == 0 && y == 0)
		return min == !!signbit(x) ? x : y;
	return (x < y) == min ? x : y;
}

static union value combine_floats(union value x, union value y, tutti_dtype dtype, tutti_op op)
{
	union value r = {.u = 0};

	switch ((int)op) {
	case TUTTI_SUM:
	case TUTTI_AVG:
		if (dtype == TUTTI_F64)
			r.d = x.d + y.d;
		else
			r.f = x.f + y.f;
		return r;
	case TUTTI_PROD:
		if (dtype == TUTTI_F64)
			r.d = x.d * y.d;
		else
			r.f = x.f * y.f;
		return r;
	case TUTTI_MIN:
	case TUTTI_MAX:
		if (dtype == TUTTI_F64)
			r.d = min_max(x.d, y.d, op == TUTTI_MIN);
		else
			r.f = (float)min_max(x.f, y.f, op == TUTTI_MIN);
		return r;
	default:
		twin_lacks_op(op);
	}
}

static uint64_t combine_integers(uint64_t x, uint64_t y, tutti_dtype dtype, tutti_op op)
{
	return twin_combine(x, y, is_signed(dtype) ? (int64_t)x < (int64_t)y : x < y, op);
}

static uint64_t average(const union value *v, int n, tutti_dtype dtype, int divisor)
{
	__int128 sum = 0;
	for (int i = 0; i < n; i++)
		sum += is_signed(dtype) ? (__int128)(int64_t)v[i].u : (__int128)v[i].u;
	return (uint64_t)(sum / divisor);
}

static uint64_t float_bits(union value v, tutti_dtype dtype)
{
	if (dtype == TUTTI_F64)
		return isnan(v.d) ? UINT64_C(0x7ff8000000000000) : v.u;
	if (is_small(dtype))
		return twin_encode((double)v.f, twin_format(dtype));
	uint32_t bits;
	memcpy(&bits, &v.f, sizeof bits);
	return isnan(v.f) ? 0x7fc00000 : bits;
}

uint64_t twin_reduce(const struct reduction *r, size_t i)
{
	union value v[TWIN_SOURCES];
	int n = r->n_src, divisor = r->op == TUTTI_AVG ? r->divisor : 0;
	bool is_float = dtype_is_float(r->dtype);

	for (int s = 0; s < n; s++)
		v[s] = element(r->src[s], i, r->dtype);
	if (divisor && !is_float)
		return average(v, n, r->dtype, divisor);
	for (int distance = 1; distance < n; distance *= 2) {
		for (int s = 0; s + distance < n; s += 2 * distance) {
			if (is_float)
				v[s] = combine_floats(v[s], v[s + distance], r->dtype, r->op);
			else
				v[s].u = combine_integers(v[s].u, v[s + distance].u, r->dtype,
							  r->op);
		}
	}
	if (!is_float)
		return v[0].u;
	if (divisor && r->dtype == TUTTI_F64)
		v[0].d /= divisor;
	else if (divisor)
		v[0].f /= (float)divisor;
	return float_bits(v[0], r->dtype);
}
