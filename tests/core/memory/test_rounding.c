/* no_asan: one thread that computes for long in plain arrays */
/* no_tsan: it has one thread */
/* Breaks when a result is not rounded to the nearest number of its type, ties to even, once; and
 * when the calling thread's own settings of the floating point unit (rounding, flushing of
 * subnormals, traps) change a bit or do not come back. Neighbours are taken from the lists of all
 * numbers, so nothing is converted here the way core/memory does. */
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "core/memory/reduce_kernels.h"
#include "twin.h"

#include <fenv.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif
#include "tests/unit.h"

static int n_variants;
static const tutti_dtype small[] = {TUTTI_F16, TUTTI_BF16, TUTTI_F8_E4M3, TUTTI_F8_E5M2};

struct case_list {
	float *x;
	uint32_t *expected;
	size_t count;
};

static void add(struct case_list *c, double x, uint32_t expected)
{
	c->x[c->count] = (float)x;
	assert_true(isnan(x) || (double)c->x[c->count] == x);
	c->expected[c->count++] = expected;
}

static float next(float x, bool up)
{
	return nextafterf(x, up ? INFINITY : -INFINITY);
}

/* Between the numbers of low and of the bits after it, upwards. beyond: what the bits after the
 * largest stand for, and where they would lie. */
static void add_between(struct case_list *c, uint32_t low, double from, uint32_t high, double to,
			uint32_t sign)
{
	double middle = (from + to) / 2, s = sign ? -1 : 1;

	add(c, s * from, low | sign);
	add(c, s * (double)next((float)from, true), low | sign);
	add(c, s * (double)next((float)middle, false), low | sign);
	add(c, s * middle, (low & 1 ? high : low) | sign);
	add(c, s * (double)next((float)middle, true), high | sign);
	add(c, s * (double)next((float)to, false), high | sign);
}

/* bf16's largest number lies so high that what follows would be beyond f32's. */
static void add_beyond(struct case_list *c, tutti_dtype dtype, uint32_t largest, uint32_t overflow,
		       uint32_t sign)
{
	struct twin_format f = twin_format(dtype);
	double from = twin_decode(largest, f), step = from - twin_decode(largest - 1, f);
	double s = sign ? -1 : 1, middle = from + step / 2;
	/* A largest number with an even last bit keeps the tie: only f8_e4m3's, whose next one is
	 * its NaN. */
	uint32_t tie = largest & 1 ? overflow : largest | sign;

	add(c, s * from, largest | sign);
	add(c, s * (double)next((float)middle, false), largest | sign);
	add(c, s * middle, tie);
	add(c, s * (double)next((float)middle, true), overflow);
	add(c, s * (double)FLT_MAX, overflow);
	add(c, s * (double)INFINITY, overflow);
}

static void add_all(struct case_list *c, tutti_dtype dtype)
{
	struct twin_format f = twin_format(dtype);
	uint32_t sign_bit = 1u << (8 * dtype_bytes(dtype) - 1);
	uint32_t infinity = f.is_e4m3 ? 0x7f : ((1u << f.exponent) - 1) << f.mantissa;

	for (uint32_t sign = 0; sign <= sign_bit; sign += sign_bit) {
		for (uint32_t low = 0; low + 1 < infinity; low++)
			add_between(c, low, twin_decode(low, f), low + 1, twin_decode(low + 1, f),
				    sign);
		add_beyond(c, dtype, infinity - 1, f.is_e4m3 ? 0x7f : infinity | sign, sign);
	}
	add(c, (double)NAN, f.is_e4m3 ? 0x7f : infinity | 1u << (f.mantissa - 1));
}

static void check_narrow(const struct reduce_kernels *k, tutti_dtype dtype,
			 const struct case_list *c)
{
	size_t bytes = dtype_bytes(dtype);
	char *narrow = malloc(c->count * bytes);

	assert_non_null(narrow);
	k->narrow[dtype](narrow, c->x, c->count);
	for (size_t i = 0; i < c->count; i++) {
		uint32_t got = 0;
		memcpy(&got, narrow + i * bytes, bytes);
		if (got != c->expected[i])
			fail_msg("%s: %a as %s is %#x, not %#x", simd_name(k->level),
				 (double)c->x[i], dtype_name(dtype), got, c->expected[i]);
	}
	free(narrow);
}

static void narrowing_is_to_the_nearest(void **state)
{
	for (int d = 0; d < 4; d++) {
		struct case_list c = {malloc(8 * 65536 * sizeof(float)),
				      malloc(8 * 65536 * sizeof(uint32_t)), 0};
		assert_true(c.x && c.expected);
		add_all(&c, small[d]);
		for (int v = 0; v < n_variants; v++)
			check_narrow(reduce_kernels_of((enum simd_level)v), small[d], &c);
		/* The twin of all other tests is held to the same. */
		for (size_t i = 0; i < c.count; i++)
			assert_int_equal(twin_encode((double)c.x[i], twin_format(small[d])),
					 c.expected[i]);
		free(c.x);
		free(c.expected);
	}
}

#define COUNT 203

static float a[COUNT], b[COUNT], sums[COUNT], scaled[COUNT];
static uint16_t half_a[COUNT], half_b[COUNT], half_sums[COUNT];

/* Subnormals, what rounds up or down by the mode, and inf - inf. */
static void fill(void)
{
	for (int i = 0; i < COUNT; i++) {
		a[i] = i % 3 == 0 ? 1e-40f : i % 3 == 1 ? 1.0f : INFINITY;
		b[i] = i % 3 == 0 ? 3e-40f : i % 3 == 1 ? 1e-9f : -INFINITY;
		half_a[i] = i % 3 == 0 ? 0x0003 : i % 3 == 1 ? 0x3c00 : 0x7c00;
		half_b[i] = i % 3 == 0 ? 0x8001 : i % 3 == 1 ? 0x1001 : 0xfc00;
	}
}

static void reduce_all(tutti_dtype dtype)
{
	const void *src[] = {a, b}, *half_src[] = {half_a, half_b};
	void *dst = sums, *half_dst = half_sums;
	float by = 0.3f;

	reduce(&dst, 1, src, 2, COUNT, TUTTI_F32, TUTTI_AVG, 3);
	reduce(&half_dst, 1, half_src, 2, COUNT, dtype, TUTTI_SUM, 0);
	scale(scaled, a, &by, COUNT, TUTTI_F32);
}

static void check_unit(void)
{
	static float plain[COUNT], plain_scaled[COUNT];
	static uint16_t plain_half[COUNT];
	fenv_t odd, *settings = &odd;

	for (int d = 0; d < 2; d++) {
		assert_int_equal(fegetenv(settings), 0);
		assert_int_equal(fesetenv(FE_DFL_ENV), 0);
		reduce_all(small[d]);
		memcpy(plain, sums, sizeof sums);
		memcpy(plain_half, half_sums, sizeof half_sums);
		memcpy(plain_scaled, scaled, sizeof scaled);
		assert_int_equal(fesetenv(settings), 0);
		reduce_all(small[d]);
		assert_memory_equal(sums, plain, sizeof plain);
		assert_memory_equal(half_sums, plain_half, sizeof plain_half);
		assert_memory_equal(scaled, plain_scaled, sizeof plain_scaled);
	}
}

static void the_callers_rounding_mode_does_not_matter(void **state)
{
	static const int modes[] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
	fill();
	for (int m = 0; m < 3; m++) {
		fesetround(modes[m]);
		check_unit();
		assert_int_equal(fegetround(), modes[m]);
		fesetround(FE_TONEAREST);
	}
}

static void the_callers_traps_do_not_spring(void **state)
{
	fill();
	if (feenableexcept(FE_INVALID | FE_OVERFLOW) < 0)
		skip_because("this CPU has no floating point traps"); /* many of ARM's */
	check_unit();
	int enabled = fegetexcept();
	fedisableexcept(FE_ALL_EXCEPT);
	assert_int_equal(enabled, FE_INVALID | FE_OVERFLOW);
}

/* To zero and, on x86, numbers that are read as well. */
#if defined(__x86_64__)
#define FLUSHES      0x8040u
#define OF_ANYBODY   0x3fu /* what has happened so far */
#define unit_get()   _mm_getcsr()
#define unit_set(to) _mm_setcsr(to)
#elif defined(__aarch64__)
#define FLUSHES    (1u << 24)
#define OF_ANYBODY 0u
static unsigned unit_get(void)
{
	uint64_t fpcr;
	__asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
	return (unsigned)fpcr;
}

static void unit_set(unsigned to)
{
	__asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)to));
}
#endif

static void flushed_subnormals_do_not_matter(void **state)
{
#ifndef FLUSHES
	skip();
#else
	unsigned before = unit_get();
	fill();
	unit_set(before | FLUSHES);
	check_unit();
	unsigned after = unit_get();
	unit_set(before);
	assert_int_equal(after & ~OF_ANYBODY, (before | FLUSHES) & ~OF_ANYBODY);
	assert_true(sums[0] > 1.3e-40f && sums[0] < 1.4e-40f);
#endif
}

int main(void)
{
	n_variants = (int)simd_highest() + 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(narrowing_is_to_the_nearest),
		cmocka_unit_test(the_callers_rounding_mode_does_not_matter),
		cmocka_unit_test(flushed_subnormals_do_not_matter),
		cmocka_unit_test(the_callers_traps_do_not_spring),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
