/* no_tsan: it has one thread */
/* Breaks when a copy or a reduction that is done a block at a time, among others, misses an
 * element, writes beside its destination, or comes to other bits than the same done alone. */
#include "core/memory/dtype.h"
#include "core/memory/reduce.h"
#include "core/memory/weave.h"
#include "core/simd.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define ROUNDS  400
#define SOURCES 11 /* more than one pass takes */
#define ROOM    (40u << 10)

static uint64_t random_state;

static size_t random_below(size_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (size_t)(random_state >> 33) % n;
}

/* Two arenas with the same random bytes: one is woven, the other done plainly. */
static uint8_t *woven, *plain;

static void fill(size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		woven[i] = plain[i] = (uint8_t)random_below(256);
}

static size_t add_copies(struct weave *w, size_t at)
{
	size_t n = random_below(3) ? random_below(7) : random_below(2 * WEAVE_COPIES);

	for (size_t i = 0; i < n; i++) {
		size_t bytes = random_below(random_below(4) ? 3000 : ROOM);
		size_t from = at + random_below(64), to = from + ROOM + random_below(64);
		weave_copy(w, woven + to, woven + from, bytes);
		memcpy(plain + to, plain + from, bytes);
		at += 2 * ROOM + 128;
	}
	return at;
}

/* Some destinations are sources. */
static void add_reduction(struct weave *w, void **dst, const void **src, size_t at)
{
	static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F64, TUTTI_F16,
					     TUTTI_I32};
	static const tutti_op ops[] = {TUTTI_SUM, TUTTI_SUM, TUTTI_AVG, TUTTI_MAX};
	tutti_dtype dtype = dtypes[random_below(5)];
	tutti_op op = ops[random_below(4)];
	int n_src = 1 + (int)random_below(SOURCES), n_dst = 1 + (int)random_below((size_t)n_src);
	size_t count = random_below(ROOM / dtype_bytes(dtype));
	void *plain_dst[SOURCES];
	const void *plain_src[SOURCES];
	struct reduction r = {dst, src, n_dst, n_src, count, dtype, op, 3};

	for (int i = 0; i < n_src; i++) {
		size_t from = at + (size_t)i * (ROOM + 64) + random_below(64);
		size_t to = random_below(2) ? from : from + SOURCES * (ROOM + 64);
		src[i] = woven + from;
		plain_src[i] = plain + from;
		dst[i] = woven + to;
		plain_dst[i] = plain + to;
	}
	weave_reduce(w, &r);
	reduce(plain_dst, n_dst, plain_src, n_src, count, dtype, op, 3);
}

static void test_same_as_alone(void **state)
{
	struct weave w = {.n_copies = 0};
	size_t most = 2 * WEAVE_COPIES * (2 * ROOM + 128) + 2 * SOURCES * (ROOM + 64) + 128;

	woven = malloc(most);
	plain = malloc(most);
	assert_true(woven && plain);
	fill(most);
	for (int round = 0; round < ROUNDS; round++) {
		void *dst[SOURCES];
		const void *src[SOURCES];
		size_t at = add_copies(&w, 0);
		if (random_below(3))
			add_reduction(&w, dst, src, at);
		weave_run(&w);
		assert_int_equal(w.n_copies, 0);
		assert_memory_equal(woven, plain, most);
	}
	free(woven);
	free(plain);
}

/* Another communicator's tutti_init may choose other instructions, which do not have every sum, at
 * any time. */
static void test_other_instructions(void **state)
{
	int n = (int)simd_highest() + 1;
	uint16_t one[100] = {0}, two[100] = {0}, sum[100];
	const void *src[] = {one, two};
	void *dst[] = {sum};

	for (int before = 0; before < n; before++)
		for (int after = 0; after < n; after++) {
			struct weave w = {.n_copies = 0};
			struct reduction r = {dst, src, 1, 2, 100, TUTTI_F16, TUTTI_SUM, 0};
			memset(sum, 1, sizeof sum);
			assert_int_equal(simd_use(simd_name((enum simd_level)before)), TUTTI_OK);
			weave_reduce(&w, &r);
			assert_int_equal(simd_use(simd_name((enum simd_level)after)), TUTTI_OK);
			weave_run(&w);
			assert_memory_equal(sum, one, sizeof sum);
		}
	assert_int_equal(simd_use(NULL), TUTTI_OK);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_alone),
					   cmocka_unit_test(test_other_instructions)};

	random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
	printf("seed %llu\n", (unsigned long long)random_state);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
