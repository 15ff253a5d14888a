/* no_asan: one thread that computes for long in plain arrays */
/* no_tsan: it has one thread */
/* Breaks when NaNs, infinities, signed zeros, subnormals or overflows give other bits by the order
 * of two operands, by a grouping that algorithms use, by their place in a buffer, by the
 * instruction set. Roundings and the floating point unit's own settings are test_rounding.c's. */
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "core/memory/reduce_kernels.h"
#include "twin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define MOST 70000 /* elements of one check */

static int n_variants;
static uint64_t random_state;

static size_t random_below(size_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (size_t)(random_state >> 33) % n;
}

/* f32's, and of the upper half bf16's: zeros, NaNs quiet and not, infinities, the ends of
 * subnormal, of normal, ones, and what rounds to a tie when added to one. */
static const uint32_t f32_values[] = {
	0x00000000, 0x80000000, 0x7fc00000, 0xffc00000, 0x7fc12345, 0xffffffff, 0x7f800001,
	0xff812345, 0x7f800000, 0xff800000, 0x00000001, 0x80000001, 0x007fffff, 0x807fffff,
	0x00800000, 0x80800000, 0x7f7fffff, 0xff7fffff, 0x7f000000, 0xff000000, 0x3f800000,
	0xbf800000, 0x3f800001, 0x33800000, 0x33800001, 0x40400000, 0x1fffffff, 0x20000000};
static const uint16_t f16_values[] = {0x0000, 0x8000, 0x7e00, 0xfe00, 0x7e12, 0xffff, 0x7c01,
				      0xfd23, 0x7c00, 0xfc00, 0x0001, 0x8001, 0x03ff, 0x83ff,
				      0x0400, 0x8400, 0x7bff, 0xfbff, 0x7800, 0xf800, 0x3c00,
				      0xbc00, 0x3c01, 0x1000, 0x1001, 0x4200, 0x5000, 0x4fff};
static const uint64_t f64_values[] = {
	0,
	UINT64_C(0x8000000000000000),
	UINT64_C(0x7ff8000000000000),
	UINT64_C(0xfff8000000000000),
	UINT64_C(0x7ff8000012345678),
	UINT64_C(0xffffffffffffffff),
	UINT64_C(0x7ff0000000000001),
	UINT64_C(0xfff4123400000000),
	UINT64_C(0x7ff0000000000000),
	UINT64_C(0xfff0000000000000),
	1,
	UINT64_C(0x8000000000000001),
	UINT64_C(0x000fffffffffffff),
	UINT64_C(0x0010000000000000),
	UINT64_C(0x7fefffffffffffff),
	UINT64_C(0xffefffffffffffff),
	UINT64_C(0x3ff0000000000000),
	UINT64_C(0xbff0000000000000),
	UINT64_C(0x3ca0000000000000),
	UINT64_C(0x3ca0000000000001),
};
static const uint64_t integer_values[] = {
	0, 1, 2, 3, 100, UINT64_MAX, UINT64_MAX - 1, UINT64_MAX >> 1, UINT64_C(1) << 63};

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/* Value i of a dtype's list; all values of 8 bits. Returns how many there are. */
static size_t value(tutti_dtype dtype, size_t i, uint64_t *bits)
{
	size_t size = 8 * dtype_bytes(dtype);

	if (size == 8) {
		*bits = i;
		return 256;
	}
	if (!dtype_is_float(dtype)) {
		uint64_t x = integer_values[i % LENGTH(integer_values)];
		*bits = x > UINT64_MAX / 4 ? x >> (64 - size) : x;
		return LENGTH(integer_values);
	}
	if (dtype == TUTTI_F16)
		*bits = f16_values[i % LENGTH(f16_values)];
	else if (dtype == TUTTI_F64)
		*bits = f64_values[i % LENGTH(f64_values)];
	else
		*bits = f32_values[i % LENGTH(f32_values)] >> (32 - size);
	return dtype == TUTTI_F16   ? LENGTH(f16_values)
	       : dtype == TUTTI_F64 ? LENGTH(f64_values)
				    : LENGTH(f32_values);
}

static size_t values(tutti_dtype dtype)
{
	uint64_t bits;
	return value(dtype, 0, &bits);
}

static void put(void *buffer, size_t i, tutti_dtype dtype, uint64_t bits)
{
	memcpy((char *)buffer + i * dtype_bytes(dtype), &bits, dtype_bytes(dtype));
}

static uint64_t get(const void *buffer, size_t i, tutti_dtype dtype)
{
	uint64_t bits = 0;
	memcpy(&bits, (const char *)buffer + i * dtype_bytes(dtype), dtype_bytes(dtype));
	return bits;
}

static void put_random(void *buffer, size_t count, tutti_dtype dtype)
{
	for (size_t i = 0; i < count; i++) {
		uint64_t bits;
		value(dtype, random_below(values(dtype)), &bits);
		put(buffer, i, dtype, bits);
	}
}

static void check_same(const struct reduction *r, const char *who, const void *got,
		       const void *expected)
{
	size_t bytes = r->count * dtype_bytes(r->dtype), i = 0;

	if (memcmp(got, expected, bytes) == 0)
		return;
	while (get(got, i, r->dtype) == get(expected, i, r->dtype))
		i++;
	fail_msg(
		"%s: %s of %s, element %zu, sources %#llx, %#llx ... of %d, divisor %d: %#llx, not "
		"%#llx",
		who, op_name(r->op), dtype_name(r->dtype), i,
		(unsigned long long)get(r->src[0], i, r->dtype),
		(unsigned long long)get(r->src[r->n_src > 1], i, r->dtype), r->n_src, r->divisor,
		(unsigned long long)get(got, i, r->dtype),
		(unsigned long long)get(expected, i, r->dtype));
}

static char expected[MOST * 8], result[MOST * 8];

/* Of one element the loops of single elements are asked, of many those of vectors. */
static void check_variant(const struct reduce_kernels *k, const struct reduction *r)
{
	void *dst = result;
	struct reduction all = *r;
	all.dst = &dst;
	all.n_dst = 1;
	reduce_with(k, &all);
	check_same(r, simd_name(k->level), result, expected);
	memset(result, 0, r->count * dtype_bytes(r->dtype));
	size_t stride = r->count / 2000 + 1, bytes = dtype_bytes(r->dtype);
	for (size_t i = 0; i < r->count; i += stride) {
		const void *src[TWIN_SOURCES];
		dst = result + i * bytes;
		for (int s = 0; s < r->n_src; s++)
			src[s] = (const char *)r->src[s] + i * bytes;
		struct reduction one = all;
		one.src = src;
		one.count = 1;
		reduce_with(k, &one);
		if (get(result, i, r->dtype) != get(expected, i, r->dtype))
			check_same(&one, simd_name(k->level), dst, expected + i * bytes);
	}
}

static void check(const struct reduction *r)
{
	for (size_t i = 0; i < r->count; i++)
		put(expected, i, r->dtype, twin_reduce(r, i));
	for (int v = 0; v < n_variants; v++)
		check_variant(reduce_kernels_of((enum simd_level)v), r);
}

typedef void each_fn(tutti_dtype dtype, tutti_op op);

static void every_dtype_and_op(each_fn *each)
{
	for (int dtype = 0; dtype < REDUCE_DTYPES; dtype++)
		for (int op = 0; op < OPS_BUILT_IN; op++)
			if (op_fits((tutti_op)op, (tutti_dtype)dtype))
				each((tutti_dtype)dtype, (tutti_op)op);
}

static char left[MOST * 8], right[MOST * 8];

/* Both orders, against one expectation. */
static void check_pairs(tutti_dtype dtype, tutti_op op, size_t count)
{
	const void *src[] = {left, right};
	struct reduction r = {.src = src, .n_src = 2, .count = count, .dtype = dtype, .op = op};

	assert_true(count <= MOST);
	for (r.divisor = 0; r.divisor <= (op == TUTTI_AVG ? 3 : 0); r.divisor += 3) {
		for (size_t i = 0; i < r.count; i++)
			put(expected, i, dtype, twin_reduce(&r, i));
		for (int v = 0; v < 2 * n_variants; v++) {
			src[0] = v % 2 ? right : left;
			src[1] = v % 2 ? left : right;
			check_variant(reduce_kernels_of((enum simd_level)(v / 2)), &r);
		}
	}
}

static void pairs_of(tutti_dtype dtype, tutti_op op)
{
	size_t n = values(dtype), count = 0;

	for (size_t i = 0; i < n; i++) {
		for (size_t j = 0; j < n; j++, count++) {
			uint64_t a, b;
			value(dtype, i, &a);
			value(dtype, j, &b);
			put(left, count, dtype, a);
			put(right, count, dtype, b);
		}
	}
	check_pairs(dtype, op, count);
}

static void pairs_in_both_orders(void **state)
{
	every_dtype_and_op(pairs_of);
}

/* Every 16-bit float with some partners. */
static void all_halves_in_both_orders(void **state)
{
	static const tutti_dtype dtypes[] = {TUTTI_F16, TUTTI_BF16};
	static const size_t partners[] = {0, 1, 7, 9, 10, 16, 21};
	for (int d = 0; d < 2; d++) {
		for (size_t p = 0; p < LENGTH(partners); p++) {
			uint64_t partner;
			value(dtypes[d], partners[p], &partner);
			for (size_t i = 0; i < 65536; i++) {
				put(left, i, dtypes[d], i);
				put(right, i, dtypes[d], partner);
			}
			check_pairs(dtypes[d], p % 2 ? TUTTI_SUM : TUTTI_MAX, 65536);
			check_pairs(dtypes[d], p % 2 ? TUTTI_MIN : TUTTI_PROD, 65536);
		}
	}
}

/* Every 16-bit float added to many: all exponents with some mantissas, and at random. Against the
 * first variant, which has no instructions of its own for them and is held to the twin above. */
static void sums_of_halves_with_many_partners(void **state)
{
	static const uint64_t mantissas[] = {0, 1, 2, 63, 64, 65, 127, 511, 512, 1023};
	static const tutti_dtype dtypes[] = {TUTTI_F16, TUTTI_BF16};
	const void *src[] = {left, right};
	void *dst[] = {expected, result};

	for (size_t i = 0; i < 65536; i++)
		put(right, i, TUTTI_BF16, i);
	for (size_t p = 0; p < 1024; p++) {
		tutti_dtype dtype = dtypes[p % 2];
		int bits = dtype == TUTTI_F16 ? 10 : 7;
		uint64_t mantissa =
			p % 64 < 48 ? mantissas[p / 64 % LENGTH(mantissas)] : random_below(1024);
		uint64_t partner =
			(random_below(65536) >> bits << bits) | (mantissa & ((1u << bits) - 1));
		struct reduction r = {
			.src = src, .n_src = 2, .n_dst = 1, .count = 65536, .dtype = dtype};

		for (size_t i = 0; i < 65536; i++)
			put(left, i, dtype, partner);
		r.dst = &dst[0];
		reduce_with(reduce_kernels_of(SIMD_BASE), &r);
		r.dst = &dst[1];
		for (int v = 1; v < n_variants; v++) {
			reduce_with(reduce_kernels_of((enum simd_level)v), &r);
			check_same(&r, simd_name((enum simd_level)v), result, expected);
		}
	}
}

#define SOURCES 33
#define ROW     64

static char rows[SOURCES][ROW * 8];

static uint64_t one_of(tutti_dtype dtype)
{
	static const uint64_t ones[] = {
		[TUTTI_F32] = 0x3f800000, [TUTTI_F64] = UINT64_C(0x3ff0000000000000),
		[TUTTI_F16] = 0x3c00,     [TUTTI_BF16] = 0x3f80,
		[TUTTI_F8_E4M3] = 0x38,   [TUTTI_F8_E5M2] = 0x3c};
	return dtype_is_float(dtype) ? ones[dtype] : 1;
}

/* Of the hundreds, eight: -0, NaNs, infinities, subnormals, the largest. */
static uint64_t one_of_eight(tutti_dtype dtype, size_t i)
{
	static const size_t of_bytes[] = {0x80, 0x7f, 0xff, 0x7e, 0xfe, 0x7c, 0xfc, 0x01};
	static const size_t of_others[] = {1, 2, 5, 7, 8, 9, 10, 16};
	uint64_t bits;
	value(dtype, dtype_bytes(dtype) == 1 ? of_bytes[i] : of_others[i], &bits);
	return bits;
}

/* Two special values in all places among ones: element i of a row is the i-th pair of the eight. */
static void places_of(tutti_dtype dtype, tutti_op op)
{
	static const int n_srcs[] = {2, 3, 5, 8, 9};
	const void *src[SOURCES];

	for (int s = 0; s < SOURCES; s++)
		src[s] = rows[s];
	for (size_t n = 0; n < LENGTH(n_srcs); n++) {
		int n_src = n_srcs[n];
		struct reduction r = {NULL, src, 0, n_src, ROW, dtype, op, n_src};
		for (int s = 0; s < n_src * n_src; s++) {
			for (size_t i = 0; i < (size_t)n_src * ROW; i++)
				put(rows[i / ROW], i % ROW, dtype, one_of(dtype));
			for (size_t i = 0; i < ROW; i++) {
				put(rows[s / n_src], i, dtype, one_of_eight(dtype, i / 8));
				put(rows[s % n_src], i, dtype, one_of_eight(dtype, i % 8));
			}
			check(&r);
		}
	}
}

static void two_special_values_in_all_places(void **state)
{
	every_dtype_and_op(places_of);
}

/* left = left (op) right of two rows. */
static void merge_rows(const struct reduce_kernels *k, const struct reduction *of, char *a, char *b)
{
	void *dst = a;
	const void *src[] = {a, b};
	struct reduction r = {&dst, src, 1, 2, ROW, of->dtype, of->op, 0};
	if (random_below(2)) {
		src[0] = b;
		src[1] = a;
	}
	reduce_with(k, &r);
}

/* Exact ops may be grouped at will: any two partial results of any ranks, in any order. */
static void merge_at_random(const struct reduce_kernels *k, const struct reduction *of)
{
	char *node[SOURCES];
	for (int s = 0; s < of->n_src; s++)
		node[s] = rows[s];
	for (size_t n = (size_t)of->n_src; n > 1; n--) {
		size_t a = random_below(n), b = (a + 1 + random_below(n - 1)) % n;
		merge_rows(k, of, node[a], node[b]);
		char *merged = node[a];
		node[b] = node[n - 1];
		if (a == n - 1)
			node[b] = merged;
	}
	memmove(rows[0], node[0], sizeof rows[0]);
}

/* Sums and products of f32 and f64 may be built by messages in the fixed tree, either side first.
 */
static void merge_by_distance(const struct reduce_kernels *k, const struct reduction *of)
{
	for (int far = 1; far < of->n_src; far *= 2)
		for (int s = 0; s + far < of->n_src; s += 2 * far)
			merge_rows(k, of, rows[s], rows[s + far]);
}

/* No association rounds, so that all give the same bits. */
static bool is_exact(tutti_dtype dtype, tutti_op op)
{
	switch (op) { /* without a default: an op that has no case does not compile */
	case TUTTI_SUM:
	case TUTTI_PROD:
		return !dtype_is_float(dtype);
	case TUTTI_MIN:
	case TUTTI_MAX:
	case TUTTI_BAND:
	case TUTTI_BOR:
	case TUTTI_BXOR:
		return true;
	case TUTTI_AVG:
	case TUTTI_OP_MAX_:
		break;
	}
	return false;
}

static void groupings_of(tutti_dtype dtype, tutti_op op)
{
	static char kept[SOURCES][ROW * 8];
	const void *src[SOURCES], *sum = rows[0];
	bool is_wide = dtype == TUTTI_F32 || dtype == TUTTI_F64;

	for (int s = 0; s < SOURCES; s++)
		src[s] = kept[s];
	for (int again = 0; again < 60 && (is_wide || is_exact(dtype, op)); again++) {
		const struct reduce_kernels *k =
			reduce_kernels_of((enum simd_level)(again % n_variants));
		int n = 1 + (int)random_below(SOURCES);
		struct reduction r = {NULL, src, 0, n, ROW, dtype, op, n};
		for (int s = 0; s < n; s++)
			put_random(kept[s], ROW, dtype);
		memcpy(rows, kept, sizeof rows);
		for (size_t i = 0; i < ROW; i++)
			put(expected, i, dtype, twin_reduce(&r, i));
		if (is_exact(dtype, op))
			merge_at_random(k, &r);
		else
			merge_by_distance(k, &r);
		void *dst = result;
		reduce_with(k, &(struct reduction){&dst, &sum, 1, 1, ROW, dtype, op, n});
		check_same(&r, simd_name(k->level), result, expected);
	}
}

static void partial_results_in_any_allowed_grouping(void **state)
{
	every_dtype_and_op(groupings_of);
}

static void averages_of(tutti_dtype dtype, tutti_op op)
{
	const void *src[TWIN_SOURCES];
	static const int n_srcs[] = {2, 3, 127, 128, 1000, 1024};
	size_t n = values(dtype);

	if (op != TUTTI_AVG || dtype_is_float(dtype))
		return;
	for (size_t i = 0; i < LENGTH(n_srcs); i++) {
		struct reduction r = {NULL, src, 0, n_srcs[i], n, dtype, op, n_srcs[i]};
		for (size_t e = 0; e < n; e++) {
			uint64_t bits;
			value(dtype, e, &bits);
			put(left, e, dtype, bits);
			put(right, e, dtype, ~bits);
		}
		for (int s = 0; s < r.n_src; s++)
			src[s] = left;
		check(&r);
		assert_memory_equal(result, left, n * dtype_bytes(dtype));
		for (int s = 0; s < r.n_src; s += 2)
			src[s] = right;
		check(&r);
	}
}

/* Of 1,024 times the largest the average is the largest. */
static void averages_of_large_integers(void **state)
{
	every_dtype_and_op(averages_of);
}

int main(void)
{
	const char *seed = getenv("SEED");
	random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	n_variants = (int)simd_highest() + 1;
	printf("SEED=%llu\n", (unsigned long long)random_state);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pairs_in_both_orders),
		cmocka_unit_test(all_halves_in_both_orders),
		cmocka_unit_test(sums_of_halves_with_many_partners),
		cmocka_unit_test(two_special_values_in_all_places),
		cmocka_unit_test(partial_results_in_any_allowed_grouping),
		cmocka_unit_test(averages_of_large_integers),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
