/* Would break: the checksum of messages. Known sums, the instruction against the table, and that it
 * does not matter how bytes are cut. */
#include "core/crc32c.h"

#include "core/clock.h"

#include <tutti/tutti.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define BYTES 5000

static uint64_t seed;

static size_t random_below(size_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (size_t)(seed >> 33) % n;
}

/* Those of RFC 3720, B.4, and the one that every catalogue of such sums has. */
static void test_known(void **state)
{
	uint8_t bytes[32];

	assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(crc32c(0, NULL, 0), 0);
	assert_int_equal(tutti_crc32c(tutti_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
	memset(bytes, 0, sizeof bytes);
	assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x8a9136aa);
	memset(bytes, 0xff, sizeof bytes);
	assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
	for (uint8_t i = 0; i < sizeof bytes; i++)
		bytes[i] = i;
	assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x46dd794e);
	assert_int_equal(crc32c_by_table(0, bytes, sizeof bytes), 0x46dd794e);
}

static void test_against_table(void **state)
{
	uint8_t bytes[BYTES];

	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)random_below(256);
	for (int i = 0; i < 3000; i++) {
		size_t from = random_below(64), n = random_below(i % 10 ? 100 : BYTES - from);
		size_t cut = random_below(n + 1);
		uint32_t expected = crc32c_by_table(0, bytes + from, n), sum;
		assert_int_equal(crc32c(0, bytes + from, n), expected);
		sum = crc32c(0, bytes + from, cut);
		assert_int_equal(crc32c(sum, bytes + from + cut, n - cut), expected);
	}
}

/* No single bit and no two neighbouring bytes can change unseen. */
static void test_sees_damage(void **state)
{
	uint8_t bytes[100];
	uint32_t sum;

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)random_below(256);
	sum = crc32c(0, bytes, sizeof bytes);
	for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_not_equal(crc32c(0, bytes, sizeof bytes), sum);
		bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t i = 0; i + 1 < sizeof bytes; i++) {
		uint8_t first = bytes[i];
		bytes[i] = bytes[i + 1];
		bytes[i + 1] = first;
		if (bytes[i] != first)
			assert_int_not_equal(crc32c(0, bytes, sizeof bytes), sum);
		bytes[i + 1] = bytes[i];
		bytes[i] = first;
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_against_table),
		cmocka_unit_test(test_sees_damage),
	};
	const char *given = getenv("TEST_SEED");

	seed = given ? strtoull(given, NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests_name("crc32c", tests, NULL, NULL);
}
