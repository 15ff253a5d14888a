/* Element types: one table. */
#include "memory/dtype.h"

/* Order: tutti.h's. */
static const struct {
	size_t bytes;
	const char *name;
	bool is_float;
} dtypes[] = {
	[TUTTI_F32] = {4, "f32", true},         [TUTTI_F64] = {8, "f64", true},
	[TUTTI_F16] = {2, "f16", true},         [TUTTI_BF16] = {2, "bf16", true},
	[TUTTI_F8_E4M3] = {1, "f8_e4m3", true}, [TUTTI_F8_E5M2] = {1, "f8_e5m2", true},
	[TUTTI_I8] = {1, "i8", false},          [TUTTI_U8] = {1, "u8", false},
	[TUTTI_I16] = {2, "i16", false},        [TUTTI_U16] = {2, "u16", false},
	[TUTTI_I32] = {4, "i32", false},        [TUTTI_U32] = {4, "u32", false},
	[TUTTI_I64] = {8, "i64", false},        [TUTTI_U64] = {8, "u64", false},
};

/* Callers hand in whatever number they have: it is compared as unsigned, so negative is unknown. */
static bool dtype_is_known(tutti_dtype dtype)
{
	return (unsigned)dtype < sizeof dtypes / sizeof dtypes[0];
}

size_t dtype_bytes(tutti_dtype dtype)
{
	return dtype_is_known(dtype) ? dtypes[dtype].bytes : 0;
}

const char *dtype_name(tutti_dtype dtype)
{
	return dtype_is_known(dtype) ? dtypes[dtype].name : "?";
}

bool dtype_is_float(tutti_dtype dtype)
{
	return dtype_is_known(dtype) && dtypes[dtype].is_float;
}
