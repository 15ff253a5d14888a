/* Breaks when a dtype has the wrong size or name, or when an op is let through that cannot work. */
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <stdint.h>
#include <string.h>

#include "tests/unit.h"

static void sizes_and_names(void **state)
{
	static const struct {
		tutti_dtype dtype;
		size_t bytes;
		const char *name;
	} expected[] = {
		{TUTTI_F32, 4, "f32"},         {TUTTI_F64, 8, "f64"},
		{TUTTI_F16, 2, "f16"},         {TUTTI_BF16, 2, "bf16"},
		{TUTTI_F8_E4M3, 1, "f8_e4m3"}, {TUTTI_F8_E5M2, 1, "f8_e5m2"},
		{TUTTI_I8, 1, "i8"},           {TUTTI_U8, 1, "u8"},
		{TUTTI_I16, 2, "i16"},         {TUTTI_U16, 2, "u16"},
		{TUTTI_I32, 4, "i32"},         {TUTTI_U32, 4, "u32"},
		{TUTTI_I64, 8, "i64"},         {TUTTI_U64, 8, "u64"},
	};
	for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
		assert_int_equal(dtype_bytes(expected[i].dtype), expected[i].bytes);
		assert_string_equal(dtype_name(expected[i].dtype), expected[i].name);
		assert_int_equal(dtype_is_float(expected[i].dtype),
				 expected[i].name[0] == 'f' || expected[i].name[0] == 'b');
	}
}

static void unknown_values(void **state)
{
	static const int unknown[] = {-1, TUTTI_U64 + 1, 1000, TUTTI_DTYPE_MAX_};
	for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++) {
		tutti_dtype dtype = (tutti_dtype)unknown[i];
		assert_int_equal(dtype_bytes(dtype), 0);
		assert_string_equal(dtype_name(dtype), "?");
		assert_false(dtype_is_float(dtype));
		assert_false(op_fits(TUTTI_SUM, dtype));
		assert_false(op_is_known((tutti_op)unknown[i]));
		assert_false(op_is_bitwise((tutti_op)unknown[i]));
		assert_string_equal(op_name((tutti_op)unknown[i]), "?");
		assert_false(op_fits((tutti_op)unknown[i], TUTTI_I32));
	}
}

static void which_ops_fit(void **state)
{
	for (int op = TUTTI_SUM; op < OPS_BUILT_IN; op++) {
		bool is_bitwise = op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR;
		assert_int_equal(op_is_bitwise((tutti_op)op), is_bitwise);
		assert_true(op_is_known((tutti_op)op));
		assert_true(strlen(op_name((tutti_op)op)) >= 3);
		for (int dtype = TUTTI_F32; dtype <= TUTTI_U64; dtype++) {
			bool fits = op_fits((tutti_op)op, (tutti_dtype)dtype);
			assert_int_equal(fits, !is_bitwise || dtype >= TUTTI_I8);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_and_names),
		cmocka_unit_test(unknown_values),
		cmocka_unit_test(which_ops_fit),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
