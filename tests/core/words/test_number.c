/* no_tsan: it has one thread */
/* What would break: a value that is taken for another one: half a number, one that does not fit,
 * one with another unit. */
#include "core/words/number.h"

#include <limits.h>

#include "tests/unit.h"

static void whole_numbers(void **state)
{
	static const char *const wrong[] = {"",   "-1",  "+1", " 1",  "1 ",
					    "1x", "0x1", "1.", "256", "99999999999999999999"};
	int n = 7;

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(number_read_int(wrong[i], 0, 255, &n));
	assert_false(number_read_int("0", 1, 255, &n));
	assert_int_equal(n, 7);
	assert_true(number_read_int("0255", 0, 255, &n));
	assert_int_equal(n, 255);
	assert_true(number_read_int("2147483647", 0, INT_MAX, &n));
	assert_int_equal(n, INT_MAX);
	assert_false(number_read_int("2147483648", 0, INT_MAX, &n));
}

static void real_numbers(void **state)
{
	static const char *const wrong[] = {"",    "inf",   "nan", "0x10",  " 1",
					    "1,5", "1.2.3", ".",   "1e999", "3.001"};
	double n = 7;

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(number_read_real(wrong[i], -1, 3, &n));
	assert_true(n == 7);
	assert_true(number_read_real("25e-1", -1, 3, &n) && n == 2.5);
	assert_true(number_read_real("-.5", -1, 3, &n) && n == -0.5);
}

static void bytes_have_units(void **state)
{
	static const struct {
		const char *text;
		size_t bytes;
	} right[] = {{"0", 0},         {"8", 8},        {"64K", 65536},        {"64KiB", 65536},
		     {"0.5M", 524288}, {"1m", 1048576}, {"64 MiB", 67108864},  {"1G", 1073741824},
		     {"12B", 12},      {"1e3", 1000},   {"65536G", 1ull << 46}};
	static const char *const wrong[] = {"",    "K",   "-1",     "+8",   "1T3", "64KB/s", "1 2",
					    "nan", "inf", "65537G", "0x10", "1KK", "16Q",    " 8"};
	size_t bytes = 7;

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		assert_false(number_read_bytes(wrong[i], &bytes));
	assert_int_equal(bytes, 7);
	for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
		assert_true(number_read_bytes(right[i].text, &bytes));
		assert_int_equal(bytes, right[i].bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(whole_numbers),
		cmocka_unit_test(real_numbers),
		cmocka_unit_test(bytes_have_units),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
