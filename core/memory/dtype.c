/* Element types. Their sizes are a table of their own, since every call reads one. */
#include "core/memory/dtype.h"

/* Order: tutti.h's. */
const uint8_t dtype_sizes[DTYPE_COUNT] = {4, 8, 2, 2, 1, 1, 1, 1, 2, 2, 4, 4, 8, 8};

static const struct {
	const char *name;
	bool is_float;
} dtypes[DTYPE_COUNT] = {
	[TUTTI_F32] = {"f32", true},         [TUTTI_F64] = {"f64", true},
	[TUTTI_F16] = {"f16", true},         [TUTTI_BF16] = {"bf16", true},
	[TUTTI_F8_E4M3] = {"f8_e4m3", true}, [TUTTI_F8_E5M2] = {"f8_e5m2", true},
	[TUTTI_I8] = {"i8", false},          [TUTTI_U8] = {"u8", false},
	[TUTTI_I16] = {"i16", false},        [TUTTI_U16] = {"u16", false},
	[TUTTI_I32] = {"i32", false},        [TUTTI_U32] = {"u32", false},
	[TUTTI_I64] = {"i64", false},        [TUTTI_U64] = {"u64", false},
};

static bool dtype_is_known(tutti_dtype dtype)
{
	return (unsigned)dtype < DTYPE_COUNT;
}

const char *dtype_name(tutti_dtype dtype)
{
	return dtype_is_known(dtype) ? dtypes[dtype].name : "?";
}

bool dtype_is_float(tutti_dtype dtype)
{
	return dtype_is_known(dtype) && dtypes[dtype].is_float;
}
