/* Without this tutti-plan could take a rate of bits for one of bytes, or print a wrong unit. */
#include "tools/tutti-plan/units.h"

#include <stdint.h>
#include <stdlib.h>

#include "tests/unit.h"

static void assert_close(double a, double b)
{
	assert_true(a > b * 0.999999 && a < b * 1.000001);
}

static void test_times_and_rates(void **state)
{
	double x;
	(void)state;
	assert_true(units_seconds("2us", &x));
	assert_close(x, 2e-6);
	assert_true(units_seconds("1.5 ms", &x));
	assert_close(x, 1.5e-3);
	assert_true(units_seconds("500ns", &x));
	assert_close(x, 5e-7);
	assert_false(units_seconds("2", &x));
	assert_false(units_seconds("-2us", &x));
	assert_true(units_rate("25GB/s", &x));
	assert_close(1 / x, 25e9);
	assert_true(units_rate("200Gbit/s", &x));
	assert_close(1 / x, 25e9);
	assert_true(units_rate("1 GiB/s", &x));
	assert_close(1 / x, 1073741824.0);
	assert_false(units_rate("0GB/s", &x));
	assert_false(units_rate("25GB", &x));
}

static void test_words(void **state)
{
	(void)state;
	assert_string_equal(units_bytes_in_words(8).text, "8 B");
	assert_string_equal(units_bytes_in_words(65536).text, "64 KiB");
	assert_string_equal(units_bytes_in_words(1.5 * 1048576).text, "1.5 MiB");
	assert_string_equal(units_seconds_in_words(2e-6).text, "2.00 us");
	assert_string_equal(units_seconds_in_words(12.34e-3).text, "12.3 ms");
	assert_string_equal(units_seconds_in_words(0.99996).text, "1.00 s");
	assert_string_equal(units_seconds_in_words(123e-9).text, "123 ns");
	assert_string_equal(units_seconds_in_words(240).text, "240 s");
	assert_string_equal(units_rate_in_words(4e-11).text, "25 GB/s");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times_and_rates),
		cmocka_unit_test(test_words),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
