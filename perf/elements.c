/* The names of element types and operations, and floats as bits. */
#include "elements.h"

#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <math.h>
#include <string.h>

struct dtype {
	const char *name;  /* nccl-tests' */
	int fraction_bits; /* of a float; -1: an integer */
	int exponent_min;  /* of a normal float */
	bool is_signed;
};

static const struct dtype dtypes[DTYPES] = {
	[TUTTI_F32] = {"float", 23, -126, true},   [TUTTI_F64] = {"double", 52, -1022, true},
	[TUTTI_F16] = {"half", 10, -14, true},     [TUTTI_BF16] = {"bfloat16", 7, -126, true},
	[TUTTI_F8_E4M3] = {"f8e4m3", 3, -6, true}, [TUTTI_F8_E5M2] = {"f8e5m2", 2, -14, true},
	[TUTTI_I8] = {"int8", -1, 0, true},        [TUTTI_U8] = {"uint8", -1, 0, false},
	[TUTTI_I16] = {"int16", -1, 0, true},      [TUTTI_U16] = {"uint16", -1, 0, false},
	[TUTTI_I32] = {"int32", -1, 0, true},      [TUTTI_U32] = {"uint32", -1, 0, false},
	[TUTTI_I64] = {"int64", -1, 0, true},      [TUTTI_U64] = {"uint64", -1, 0, false},
};
_Static_assert((int)DTYPES == (int)DTYPE_COUNT && (int)OPS == (int)OPS_BUILT_IN, "all are here");

const char *element_name(tutti_dtype dtype)
{
	return dtypes[dtype].name;
}

size_t element_bytes(tutti_dtype dtype)
{
	return dtype_bytes(dtype);
}

bool element_is_float(tutti_dtype dtype)
{
	return dtypes[dtype].fraction_bits >= 0;
}

bool element_is_signed(tutti_dtype dtype)
{
	return dtypes[dtype].is_signed;
}

int64_t element_exact(tutti_dtype dtype)
{
	const struct dtype *d = &dtypes[dtype];
	int bits = d->fraction_bits >= 0 ? d->fraction_bits + 1
					 : (int)dtype_bytes(dtype) * 8 - d->is_signed;

	if (bits > 62)
		bits = 62;
	return d->fraction_bits >= 0 ? (int64_t)1 << bits : ((int64_t)1 << bits) - 1;
}

bool element_parse(const char *name, tutti_dtype *dtype)
{
	for (int i = 0; i < DTYPES; i++) {
		if (strcmp(name, dtypes[i].name) == 0 ||
		    strcmp(name, dtype_name((tutti_dtype)i)) == 0) {
			*dtype = (tutti_dtype)i;
			return true;
		}
	}
	return false;
}

bool operation_parse(const char *name, tutti_op *op)
{
	for (int i = 0; i < OPS; i++) {
		if (strcmp(name, op_name((tutti_op)i)) == 0) {
			*op = (tutti_op)i;
			return true;
		}
	}
	return false;
}

/* A float is fraction * 2^(exponent - fraction_bits), and its bits count up: a carry out of the
 * fraction is the next exponent, and subnormals need no case of their own. */
uint64_t float_bits(tutti_dtype dtype, double value)
{
	const struct dtype *d = &dtypes[dtype];
	uint64_t sign = (uint64_t)(signbit(value) != 0) << (dtype_bytes(dtype) * 8 - 1);
	int exponent;
	double fraction;

	if (value == 0)
		return sign;
	exponent = ilogb(value);
	if (exponent < d->exponent_min)
		exponent = d->exponent_min;
	fraction = nearbyint(ldexp(fabs(value), d->fraction_bits - exponent));
	return sign |
	       (((uint64_t)(exponent - d->exponent_min) << d->fraction_bits) + (uint64_t)fraction);
}
