/* no_tsan: it has one thread */
/* Breaks when a reduction differs by one bit from its plain definition: the fixed tree, one
 * rounding, canonical NaNs, wrapping and exact integers; when it writes beside its destinations; or
 * when two instruction sets disagree. What is right says twin.c. */
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "core/memory/reduce_kernels.h"
#include "tests/random.h"
#include "twin.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

#define SOURCES_MOST 40
#define GUARD        64

static int n_variants;

static uint64_t random_state;

static uint64_t random_u64(void)
{
	return random_next(&random_state);
}

static size_t draw_below(size_t n)
{
	return (size_t)(random_u64() % n);
}

static uint64_t special(tutti_dtype dtype)
{
	static const uint32_t f32[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000,
				       0xffc00001, 0x7f800001, 0xff812345, 1,          0x80000001,
				       0x007fffff, 0x00800000, 0x7f7fffff, 0xff7fffff, 0x3f800000};
	static const uint64_t f64[] = {0,
				       UINT64_C(1) << 63,
				       UINT64_C(0x7ff0000000000000),
				       UINT64_C(0xfff0000000000000),
				       UINT64_C(0x7ff8000000000000),
				       UINT64_C(0xfff0000000000001),
				       UINT64_C(0x7ff4123400000000),
				       1,
				       UINT64_C(0x8000000000000001),
				       UINT64_C(0x7fefffffffffffff)};
	if (dtype == TUTTI_F32)
		return f32[draw_below(sizeof f32 / sizeof f32[0])];
	if (dtype == TUTTI_F64)
		return f64[draw_below(sizeof f64 / sizeof f64[0])];
	if (dtype == TUTTI_BF16)
		return f32[draw_below(sizeof f32 / sizeof f32[0])] >> 16;
	static const uint64_t edges[] = {0, 1, UINT64_MAX, UINT64_MAX >> 1, UINT64_C(1) << 63};
	uint64_t edge = edges[draw_below(5)];
	return edge >> (64 - 8 * dtype_bytes(dtype));
}

/* Three flavours: any bits; near one, so that sums round; and specials among them. */
static uint64_t random_bits(tutti_dtype dtype, int flavour)
{
	uint64_t bits = random_u64();

	if (flavour == 2 && draw_below(3) == 0)
		return special(dtype);
	if (flavour == 0 || !dtype_is_float(dtype))
		return bits;
	double x = ldexp((double)(bits >> 11), -53) * 4 - 2;
	float f = (float)x;
	if (dtype == TUTTI_F64)
		memcpy(&bits, &x, sizeof x);
	else if (dtype == TUTTI_F32)
		memcpy(&bits, &f, sizeof f);
	else
		bits = twin_encode((double)f, twin_format(dtype));
	return bits;
}

/* Buffers of one call, at random misalignments, with guards around each. */
struct buffers {
	char *memory[2 * SOURCES_MOST];
	char *at[2 * SOURCES_MOST];
	size_t bytes;
	int n;
};

static char *buffer_add(struct buffers *b)
{
	char *memory = malloc(b->bytes + 3 * GUARD);
	assert_non_null(memory);
	memset(memory, 0xa5, b->bytes + 3 * GUARD);
	b->memory[b->n] = memory;
	b->at[b->n] = memory + GUARD + draw_below(GUARD);
	return b->at[b->n++];
}

static void buffers_check_guards(const struct buffers *b)
{
	for (int i = 0; i < b->n; i++) {
		const char *end = b->memory[i] + b->bytes + 3 * GUARD;
		for (const char *p = b->memory[i]; p < b->at[i]; p++)
			assert_int_equal((unsigned char)*p, 0xa5);
		for (const char *p = b->at[i] + b->bytes; p < end; p++)
			assert_int_equal((unsigned char)*p, 0xa5);
	}
}

static void buffers_free(struct buffers *b)
{
	for (int i = 0; i < b->n; i++)
		free(b->memory[i]);
	b->n = 0;
}

struct shape {
	tutti_dtype dtype;
	tutti_op op;
	int n_src, n_dst, divisor, flavour;
	size_t count;
	int in_place; /* the source that is also a destination; -1: none */
};

static void check_result(const struct shape *s, const char *who, char *const *dst,
			 const uint64_t *expected)
{
	size_t bytes = dtype_bytes(s->dtype);
	for (int d = 0; d < s->n_dst; d++) {
		for (size_t i = 0; i < s->count; i++) {
			uint64_t got = 0, want = expected[i];
			memcpy(&got, dst[d] + i * bytes, bytes);
			if (bytes < 8)
				want &= (UINT64_C(1) << (8 * bytes)) - 1;
			if (got == want)
				continue;
			fail_msg("%s: %s of %s, %d sources, count %zu, divisor %d, destination %d, "
				 "element %zu: got %#llx, want %#llx",
				 who, op_name(s->op), dtype_name(s->dtype), s->n_src, s->count,
				 s->divisor, d, i, (unsigned long long)got,
				 (unsigned long long)want);
		}
	}
}

static void check_variant(const struct shape *s, const struct reduce_kernels *k,
			  struct buffers *sources, const uint64_t *expected)
{
	struct buffers results = {.bytes = sources->bytes};
	const void *src[SOURCES_MOST];
	void *dst[SOURCES_MOST];
	char *same = NULL;

	for (int i = 0; i < s->n_src; i++)
		src[i] = sources->at[i];
	for (int d = 0; d < s->n_dst; d++)
		dst[d] = buffer_add(&results);
	if (s->in_place >= 0) {
		same = dst[s->n_dst - 1];
		if (sources->bytes)
			memcpy(same, src[s->in_place], sources->bytes);
		src[s->in_place] = same;
	}
	struct reduction r = {dst, src, s->n_dst, s->n_src, s->count, s->dtype, s->op, s->divisor};
	if (k)
		reduce_with(k, &r);
	else
		reduce(dst, s->n_dst, src, s->n_src, s->count, s->dtype, s->op, s->divisor);
	check_result(s, k ? simd_name(k->level) : "reduce", (char **)dst, expected);
	buffers_check_guards(&results);
	buffers_free(&results);
}

static void check_shape(const struct shape *s)
{
	size_t bytes = dtype_bytes(s->dtype);
	struct buffers sources = {.bytes = s->count * bytes};
	const void *src[SOURCES_MOST];
	uint64_t *expected = calloc(s->count + 1, sizeof *expected);

	assert_non_null(expected);
	for (int i = 0; i < s->n_src; i++) {
		src[i] = buffer_add(&sources);
		for (size_t e = 0; e < s->count; e++) {
			uint64_t bits = random_bits(s->dtype, s->flavour);
			memcpy(sources.at[i] + e * bytes, &bits, bytes);
		}
	}
	struct reduction r = {NULL, src, 0, s->n_src, s->count, s->dtype, s->op, s->divisor};
	for (size_t e = 0; e < s->count; e++)
		expected[e] = twin_reduce(&r, e);
	for (int v = 0; v < n_variants; v++)
		check_variant(s, reduce_kernels_of((enum simd_level)v), &sources, expected);
	check_variant(s, NULL, &sources, expected);
	buffers_free(&sources);
	free(expected);
}

static size_t random_count(void)
{
	switch (draw_below(4)) {
	case 0:
		return draw_below(20);
	case 1:
		return draw_below(200);
	default:
		return draw_below(1100);
	}
}

/* Sums to one, or to as many as there are sources, have loops of their own. */
static int random_destinations(int n_src)
{
	switch (draw_below(3)) {
	case 0:
		return 1;
	case 1:
		return n_src;
	default:
		return 1 + (int)draw_below(9);
	}
}

static void check_dtype_and_op(tutti_dtype dtype, tutti_op op)
{
	static const int n_srcs[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};

	for (size_t n = 0; n < sizeof n_srcs / sizeof n_srcs[0]; n++) {
		for (int flavour = 0; flavour < 3; flavour++) {
			struct shape s = {.dtype = dtype,
					  .op = op,
					  .n_src = n_srcs[n],
					  .n_dst = random_destinations(n_srcs[n]),
					  .divisor = (int)draw_below(2) * n_srcs[n],
					  .flavour = flavour,
					  .count = random_count(),
					  .in_place = -1};
			if (draw_below(2))
				s.in_place = (int)draw_below((size_t)s.n_src);
			check_shape(&s);
		}
	}
}

static void every_dtype_op_and_shape(void **state)
{
	for (int dtype = 0; dtype < REDUCE_DTYPES; dtype++) {
		for (int op = 0; op < OPS_BUILT_IN; op++) {
			if (op_fits((tutti_op)op, (tutti_dtype)dtype))
				check_dtype_and_op((tutti_dtype)dtype, (tutti_op)op);
		}
	}
}

/* Every value of a small float comes back from a reduction of one source as itself. */
static void every_small_float_is_itself(void **state)
{
	static const tutti_dtype small[] = {TUTTI_F16, TUTTI_BF16, TUTTI_F8_E4M3, TUTTI_F8_E5M2};
	for (size_t d = 0; d < 4; d++) {
		size_t bytes = dtype_bytes(small[d]), n = (size_t)1 << (8 * bytes);
		char *in = calloc(n, bytes), *out = calloc(n, bytes);
		const void *src = in;
		void *dst = out;
		for (size_t i = 0; i < n; i++)
			memcpy(in + i * bytes, &i, bytes);
		for (int v = 0; v < n_variants; v++) {
			struct reduction r = {&dst, &src, 1, 1, n, small[d], TUTTI_SUM, 0};
			reduce_with(reduce_kernels_of((enum simd_level)v), &r);
			for (size_t i = 0; i < n; i++) {
				uint64_t got = 0, want = twin_reduce(&r, i);
				memcpy(&got, out + i * bytes, bytes);
				assert_int_equal(got, want);
			}
		}
		free(in);
		free(out);
	}
}

/* A few results written down by hand, so that the twin is not its own witness. */
static uint64_t pair(tutti_dtype dtype, tutti_op op, uint64_t a, uint64_t b, int divisor)
{
	uint64_t result = 0;
	const void *src[] = {&a, &b};
	void *dst = &result;
	reduce(&dst, 1, src, 2, 1, dtype, op, divisor);
	return result;
}

static void results_by_hand(void **state)
{
	assert_int_equal(pair(TUTTI_F32, TUTTI_SUM, 0x3f800000, 0x40000000, 0), 0x40400000);
	assert_int_equal(pair(TUTTI_F32, TUTTI_SUM, 0x7f800000, 0xff800000, 0), 0x7fc00000);
	assert_int_equal(pair(TUTTI_F32, TUTTI_MIN, 0, 0x80000000, 0), 0x80000000);
	assert_int_equal(pair(TUTTI_F32, TUTTI_MAX, 0x80000000, 0, 0), 0);
	assert_int_equal(pair(TUTTI_F32, TUTTI_MAX, 0xffc12345, 0x7f800000, 0), 0x7fc00000);
	assert_int_equal(pair(TUTTI_F64, TUTTI_MIN, UINT64_C(0x7ff0000000000001), 0, 0),
			 UINT64_C(0x7ff8000000000000));
	/* f16: 2048 + 1 is a tie and goes to 2048; 65504 + 32 is infinite. */
	assert_int_equal(pair(TUTTI_F16, TUTTI_SUM, 0x6800, 0x3c00, 0), 0x6800);
	assert_int_equal(pair(TUTTI_F16, TUTTI_SUM, 0x7bff, 0x5000, 0), 0x7c00);
	/* bf16: 1 + 1/256 is a tie and goes to 1; 1 + 3/256 goes to 1 + 1/64. */
	assert_int_equal(pair(TUTTI_BF16, TUTTI_SUM, 0x3f80, 0x3b80, 0), 0x3f80);
	assert_int_equal(pair(TUTTI_BF16, TUTTI_SUM, 0x3f80, 0x3c40, 0), 0x3f82);
	/* e4m3: 448 + 16 is a tie and stays 448; 448 + 18 overflows to NaN. */
	assert_int_equal(pair(TUTTI_F8_E4M3, TUTTI_SUM, 0x7e, 0x58, 0), 0x7e);
	assert_int_equal(pair(TUTTI_F8_E4M3, TUTTI_SUM, 0x7e, 0x59, 0), 0x7f);
	assert_int_equal(pair(TUTTI_F8_E4M3, TUTTI_SUM, 0xfe, 0xfe, 0), 0x7f);
	assert_int_equal(pair(TUTTI_F8_E5M2, TUTTI_SUM, 0x7b, 0x7b, 0), 0x7c);
	assert_int_equal(pair(TUTTI_F8_E5M2, TUTTI_SUM, 0x7c, 0xfc, 0), 0x7e);
	assert_int_equal(pair(TUTTI_I8, TUTTI_SUM, 127, 1, 0), 0x80);
	assert_int_equal(pair(TUTTI_U16, TUTTI_PROD, 0xffff, 0xffff, 0), 1);
	/* Averages of integers: exact, toward zero. (-3 + 0) / 2 = -1; (2^63-1 + 2^63-1) / 2. */
	assert_int_equal(pair(TUTTI_I32, TUTTI_AVG, (uint32_t)-3, 0, 2), (uint32_t)-1);
	assert_int_equal(pair(TUTTI_I64, TUTTI_AVG, INT64_MAX, INT64_MAX, 2), INT64_MAX);
	assert_int_equal(pair(TUTTI_U64, TUTTI_AVG, UINT64_MAX, UINT64_MAX, 2), UINT64_MAX);
	assert_int_equal(pair(TUTTI_U8, TUTTI_AVG, 255, 254, 2), 254);
	/* divisor 0 leaves the sum. */
	assert_int_equal(pair(TUTTI_U8, TUTTI_AVG, 255, 2, 0), 1);
	assert_int_equal(pair(TUTTI_F32, TUTTI_AVG, 0x3f800000, 0x40400000, 2), 0x40000000);
}

/* (1 + tiny) + (-1 + tiny) in the tree differs from the sum in a row. */
static void the_association_is_the_tree(void **state)
{
	float x[5] = {1e30f, 1.0f, -1e30f, 1.0f, 0.5f}, sum = 0;
	const void *src[] = {&x[0], &x[1], &x[2], &x[3], &x[4]};
	void *dst = &sum;
	reduce(&dst, 1, src, 5, 1, TUTTI_F32, TUTTI_SUM, 0);
	assert_true(sum == 0.5f);
	x[1] = -1e30f;
	x[2] = 1.0f;
	reduce(&dst, 1, src, 4, 1, TUTTI_F32, TUTTI_SUM, 0);
	assert_true(sum == 2.0f);
}

static void finish_divides_averages_only(void **state)
{
	float f[3] = {3, -1, 7};
	int32_t i[2] = {-7, 9};
	uint16_t bf[1] = {0x4040}; /* 3 */
	reduce_finish(f, 3, TUTTI_F32, TUTTI_SUM, 2);
	assert_true(f[0] == 3 && f[1] == -1 && f[2] == 7);
	reduce_finish(f, 3, TUTTI_F32, TUTTI_AVG, 2);
	assert_true(f[0] == 1.5f && f[1] == -0.5f && f[2] == 3.5f);
	reduce_finish(i, 2, TUTTI_I32, TUTTI_AVG, 2);
	assert_true(i[0] == -3 && i[1] == 4);
	reduce_finish(bf, 1, TUTTI_BF16, TUTTI_AVG, 2);
	assert_int_equal(bf[0], 0x3fc0);
	reduce_finish(f, 3, TUTTI_F32, TUTTI_AVG, 0);
	assert_true(f[0] == 1.5f);
}

int main(void)
{
	const char *seed = getenv("SEED");
	random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	n_variants = (int)simd_highest() + 1;
	for (int v = 0; v < n_variants; v++)
		printf("%s ", simd_name((enum simd_level)v));
	printf("SEED=%llu\n", (unsigned long long)random_state);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(results_by_hand),
		cmocka_unit_test(the_association_is_the_tree),
		cmocka_unit_test(finish_divides_averages_only),
		cmocka_unit_test(every_small_float_is_itself),
		cmocka_unit_test(every_dtype_op_and_shape),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
