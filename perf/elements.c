/* The names and sizes of element types and operations. */
#include "elements.h"

#include <math.h>
#include <string.h>

struct dtype {
	const char *name, *also; /* nccl-tests' name, and Tutti's */
	unsigned bytes;
	int fraction_bits; /* of a float; -1: an integer */
	int exponent_min;  /* of a normal float */
	bool is_signed;
};

static const struct dtype dtypes[DTYPES] = {
	[TUTTI_F32] = {"float", "f32", 4, 23, -126, true},
	[TUTTI_F64] = {"double", "f64", 8, 52, -1022, true},
	[TUTTI_F16] = {"half", "f16", 2, 10, -14, true},
	[TUTTI_BF16] = {"bfloat16", "bf16", 2, 7, -126, true},
	[TUTTI_F8_E4M3] = {"f8e4m3", "f8_e4m3", 1, 3, -6, true},
	[TUTTI_F8_E5M2] = {"f8e5m2", "f8_e5m2", 1, 2, -14, true},
	[TUTTI_I8] = {"int8", "i8", 1, -1, 0, true},
	[TUTTI_U8] = {"uint8", "u8", 1, -1, 0, false},
	[TUTTI_I16] = {"int16", "i16", 2, -1, 0, true},
	[TUTTI_U16] = {"uint16", "u16", 2, -1, 0, false},
	[TUTTI_I32] = {"int32", "i32", 4, -1, 0, true},
	[TUTTI_U32] = {"uint32", "u32", 4, -1, 0, false},
	[TUTTI_I64] = {"int64", "i64", 8, -1, 0, true},
	[TUTTI_U64] = {"uint64", "u64", 8, -1, 0, false},
};

#define WORD(name, word, ...) word,
static const char *const ops[OPS] = {OPERATIONS(WORD)};
#define CHECK(name, ...)                                                                           \
	_Static_assert((int)OPERATION_##name == (int)TUTTI_##name, "in tutti.h's order");
OPERATIONS(CHECK)

const char *element_name(tutti_dtype dtype)
{
	return dtypes[dtype].name;
}

size_t element_bytes(tutti_dtype dtype)
{
	return dtypes[dtype].bytes;
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
	int bits = d->fraction_bits >= 0 ? d->fraction_bits + 1 : (int)d->bytes * 8 - d->is_signed;

	if (bits > 62)
		bits = 62;
	return d->fraction_bits >= 0 ? (int64_t)1 << bits : ((int64_t)1 << bits) - 1;
}

bool element_parse(const char *name, tutti_dtype *dtype)
{
	for (int i = 0; i < DTYPES; i++) {
		if (strcmp(name, dtypes[i].name) == 0 || strcmp(name, dtypes[i].also) == 0) {
			*dtype = (tutti_dtype)i;
			return true;
		}
	}
	return false;
}

const char *operation_name(tutti_op op)
{
	return ops[op];
}

bool operation_is_bitwise(tutti_op op)
{
	switch (op) {
#define CASE(name, word, is_bitwise)                                                               \
	case TUTTI_##name:                                                                         \
		return is_bitwise;
		OPERATIONS(CASE)
	case TUTTI_OP_MAX_:
		break;
	}
	return false;
}

bool operation_fits(tutti_op op, tutti_dtype dtype)
{
	return !operation_is_bitwise(op) || !element_is_float(dtype);
}

bool operation_parse(const char *name, tutti_op *op)
{
	for (int i = 0; i < OPS; i++) {
		if (strcmp(name, ops[i]) == 0) {
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
	uint64_t sign = (uint64_t)(signbit(value) != 0) << (d->bytes * 8 - 1);
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
