/* no_tsan: it has one thread */
/* Breaks when a kernel of the training layer differs by one bit from its plain definition, on any
 * instruction set, at any count and alignment, with subnormal numbers, infinities and NaNs; when it
 * writes beside its arrays; or when the thread's floating point settings change a result. */
#include "core/simd.h"
#include "train/precision/precision.h"

#include "tests/core/memory/twin.h"
#include "tests/train/precision/random_bits.h"

#include <fenv.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __x86_64__
#include <xmmintrin.h>
#endif
#include "tests/unit.h"

#define MOST   3000 /* elements: some blocks and a rest */
#define GUARD  16
#define ROUNDS 30

static int n_levels;
static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};

/* Any bits at all; numbers near one; or specials among those. */
static float random_f32(int flavour)
{
	static const uint32_t special[] = {
		0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001,
		0x7f800001, 0xff812345, 1,          0x80000001, 0x007fffff, 0x00800000,
		0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x7f7f0000, 0x3f808000, 0x3f818000,
		0x477fe000, 0x477fefff, 0x477ff000, 0x33000000, 0x33000001, 0x387fe000};
	if (flavour == 0)
		return of_bits((uint32_t)random_u64());
	if (flavour == 2 && draw_below(3) == 0)
		return of_bits(special[draw_below(sizeof special / sizeof special[0])]);
	return (float)draw_below(1 << 24) / (1 << 22) - 2;
}

static size_t bytes_of(tutti_dtype dtype)
{
	return dtype == TUTTI_F32 ? 4 : 2;
}

/* An array at a random place. Its bytes and those around it are saved. */
struct array {
	_Alignas(64) unsigned char memory[(MOST + 2 * GUARD) * 4];
	unsigned char before[(MOST + 2 * GUARD) * 4];
	size_t offset, count;
	tutti_dtype dtype;
};

static void *at(struct array *a)
{
	return a->memory + a->offset;
}

static void put(struct array *a, size_t i, float x)
{
	uint16_t small = (uint16_t)random_u64();

	if (a->dtype == TUTTI_F32)
		memcpy(a->memory + a->offset + 4 * i, &x, sizeof x);
	else {
		if (bits_of(x) != 0x7fc00000) /* else all payloads */
			small = (uint16_t)twin_encode((double)x, twin_format(a->dtype));
		memcpy(a->memory + a->offset + 2 * i, &small, sizeof small);
	}
}

static void array_fill(struct array *a, tutti_dtype dtype, size_t count, int flavour)
{
	memset(a->memory, 0xa5, sizeof a->memory);
	a->offset = (1 + draw_below(GUARD - 1)) * bytes_of(dtype);
	a->count = count;
	a->dtype = dtype;
	for (size_t i = 0; i < count; i++)
		put(a, i, random_f32(flavour));
	memcpy(a->before, a->memory, sizeof a->memory);
}

/* Element i as it was when the array was filled. */
static float was(const struct array *a, size_t i)
{
	const unsigned char *from = a->before + a->offset + i * bytes_of(a->dtype);
	uint16_t small;
	float x;

	if (a->dtype == TUTTI_F32) {
		memcpy(&x, from, sizeof x);
		return x;
	}
	memcpy(&small, from, sizeof small);
	return (float)twin_decode(small, twin_format(a->dtype));
}

static uint32_t bits_at(const struct array *a, size_t i)
{
	uint32_t bits = 0;
	memcpy(&bits, a->memory + a->offset + i * bytes_of(a->dtype), bytes_of(a->dtype));
	return bits;
}

/* x in a's type: NaNs canonical, rounded once. */
static uint32_t encoded(tutti_dtype dtype, float x)
{
	if (dtype == TUTTI_F32)
		return isnan(x) ? 0x7fc00000 : bits_of(x);
	return twin_encode((double)x, twin_format(dtype));
}

static void expect_at(const struct array *a, size_t i, float x, const char *what)
{
	if (bits_at(a, i) != encoded(a->dtype, x))
		fail_msg("%s: element %zu of %zu of dtype %d is %#x instead of %#x (%a)", what, i,
			 a->count, (int)a->dtype, bits_at(a, i), encoded(a->dtype, x), (double)x);
}

static void expect_around(const struct array *a)
{
	size_t end = a->offset + a->count * bytes_of(a->dtype);

	assert_memory_equal(a->memory, a->before, a->offset);
	assert_memory_equal(a->memory + end, a->before + end, sizeof a->memory - end);
}

static void expect_kept(const struct array *a)
{
	assert_memory_equal(a->memory, a->before, sizeof a->memory);
}

static struct array a1, a2, a3, a4;

/* Calls test with every instruction set, each gradient type, some counts and flavours. */
static void for_all(void (*test)(tutti_dtype dtype, size_t count, int flavour))
{
	for (int t = 0; t < n_levels; t++) {
		assert_int_equal(simd_use(simd_name((enum simd_level)t)), TUTTI_OK);
		for (int i = 0; i < 3 * ROUNDS; i++) {
			size_t count = i < 60 ? (size_t)i / 3 : draw_below(MOST);
			test(dtypes[i % 3], count, (int)draw_below(3));
		}
	}
	assert_int_equal(simd_use(NULL), TUTTI_OK);
}

static const tutti_optimizer adam = {.lr = 3e-4f,
				     .beta1 = 0.9f,
				     .beta2 = 0.95f,
				     .eps = 1e-8f,
				     .weight_decay = 0.1f,
				     .momentum = 0.9f};

static void one_adamw(tutti_dtype dtype, size_t count, int flavour)
{
	double number = (double)(1 + draw_below(1000));
	float scale = draw_below(2) ? 1.0f / 3 : 1, keep = 1 - adam.lr * adam.weight_decay;
	float rate = (float)(adam.lr / (1 - pow(adam.beta1, number)));
	float bias2 = (float)(1 / sqrt(1 - pow(adam.beta2, number)));

	array_fill(&a1, TUTTI_F32, count, flavour);
	array_fill(&a2, TUTTI_F32, count, flavour);
	array_fill(&a3, TUTTI_F32, count, flavour);
	array_fill(&a4, dtype, count, flavour);
	kernel_adamw(
		&(struct kernel_update){at(&a1), at(&a2), at(&a3), at(&a4), dtype, count, scale},
		&adam, number);
	for (size_t i = 0; i < count; i++) {
		float g = was(&a4, i) * scale;
		float m = adam.beta1 * was(&a2, i) + (1 - adam.beta1) * g;
		float v = adam.beta2 * was(&a3, i) + (1 - adam.beta2) * g * g;
		expect_at(&a2, i, m, "m");
		expect_at(&a3, i, v, "v");
		expect_at(&a1, i, keep * was(&a1, i) - rate * m / (sqrtf(v) * bias2 + adam.eps),
			  "value");
	}
	expect_around(&a1);
	expect_around(&a2);
	expect_around(&a3);
	expect_kept(&a4);
}

static void test_adamw(void **unused)
{
	for_all(one_adamw);
}

static void one_sgd(tutti_dtype dtype, size_t count, int flavour)
{
	bool has_m = draw_below(2);
	float scale = draw_below(2) ? 1.0f / 3 : 1;

	array_fill(&a1, TUTTI_F32, count, flavour);
	array_fill(&a2, TUTTI_F32, count, flavour);
	array_fill(&a4, dtype, count, flavour);
	kernel_sgd(&(struct kernel_update){at(&a1), has_m ? at(&a2) : NULL, NULL, at(&a4), dtype,
					   count, scale},
		   &adam);
	for (size_t i = 0; i < count; i++) {
		float g = was(&a4, i) * scale + adam.weight_decay * was(&a1, i);
		if (has_m)
			g = adam.momentum * was(&a2, i) + g;
		if (has_m)
			expect_at(&a2, i, g, "m");
		expect_at(&a1, i, was(&a1, i) - adam.lr * g, "value");
	}
	expect_around(&a1);
	expect_around(&a2);
	expect_kept(&a4);
}

static void test_sgd(void **unused)
{
	for_all(one_sgd);
}

static void one_conversion(tutti_dtype dtype, size_t count, int flavour)
{
	array_fill(&a1, TUTTI_F32, count, flavour);
	array_fill(&a2, dtype, count, flavour);
	kernel_convert(at(&a2), dtype, at(&a1), TUTTI_F32, count);
	for (size_t i = 0; i < count && dtype != TUTTI_F32; i++)
		expect_at(&a2, i, was(&a1, i), "narrow");
	if (dtype == TUTTI_F32)
		assert_memory_equal(at(&a2), at(&a1), 4 * count);
	expect_around(&a2);
	expect_kept(&a1);
}

static void test_narrow(void **unused)
{
	for_all(one_conversion);
}

/* All there are, BF16's NaNs with their payloads. */
static void test_widen(void **unused)
{
	static uint16_t small[65536 + 1];
	static float wide[65536 + 1];

	for (uint32_t i = 0; i < 65536; i++)
		small[i + 1] = (uint16_t)i;
	for (int t = 0; t < n_levels; t++) {
		assert_int_equal(simd_use(simd_name((enum simd_level)t)), TUTTI_OK);
		for (int d = 0; d < 3; d++) {
			tutti_dtype dtype = dtypes[d];
			memset(wide, 0xa5, sizeof wide);
			kernel_convert(wide, TUTTI_F32, small + 1, dtype,
				       dtype == TUTTI_F32 ? 32768 : 65536);
			for (uint32_t i = 0; i < 65536 && dtype != TUTTI_F32; i++) {
				float x = (float)twin_decode(i, twin_format(dtype));
				uint32_t nan = dtype == TUTTI_BF16 ? i << 16 : 0x7fc00000;
				assert_int_equal(bits_of(wide[i]), isnan(x) ? nan : bits_of(x));
			}
			if (dtype == TUTTI_F32)
				assert_memory_equal(wide, small + 1, 32768 * 4);
			assert_int_equal(bits_of(wide[65536]), 0xa5a5a5a5);
		}
	}
	assert_int_equal(simd_use(NULL), TUTTI_OK);
}

static void one_add(tutti_dtype dtype, size_t count, int flavour)
{
	array_fill(&a1, dtypes[draw_below(3)], count, flavour);
	array_fill(&a2, dtype, count, flavour);
	kernel_add(at(&a1), a1.dtype, at(&a2), dtype, count);
	for (size_t i = 0; i < count; i++)
		expect_at(&a1, i, was(&a1, i) + was(&a2, i), "add");
	expect_around(&a1);
	expect_kept(&a2);
}

static void test_add(void **unused)
{
	for_all(one_add);
}

static void one_scale(tutti_dtype dtype, size_t count, int flavour)
{
	float by = random_f32(flavour);

	array_fill(&a1, dtype, count, flavour);
	array_fill(&a2, TUTTI_F32, count, flavour);
	kernel_scale(at(&a2), TUTTI_F32, at(&a1), dtype, count, by);
	expect_kept(&a1);
	kernel_scale(at(&a1), dtype, at(&a1), dtype, count, by);
	for (size_t i = 0; i < count; i++) {
		expect_at(&a2, i, was(&a1, i) * by, "scale_to");
		expect_at(&a1, i, was(&a1, i) * by, "scale");
	}
	expect_around(&a1);
	expect_around(&a2);
}

static void test_scale(void **unused)
{
	for_all(one_scale);
}

static void one_sum_of_squares(tutti_dtype dtype, size_t count, int flavour)
{
	double sums[8] = {0}, sum = 0;

	array_fill(&a1, dtype, count, flavour);
	for (size_t i = 0; i < count; i++)
		sums[i < count - count % 8 ? i % 8 : 0] += (double)was(&a1, i) * was(&a1, i);
	for (int i = 0; i < 8; i++)
		sum += sums[i];
	double got = kernel_sum_of_squares(at(&a1), dtype, count), nan = (double)NAN;
	assert_memory_equal(&got, isnan(sum) ? &nan : &sum, sizeof got);
	expect_kept(&a1);
}

static void test_sum_of_squares(void **unused)
{
	for_all(one_sum_of_squares);
}

/* Its exponent is that of infinity but for the lowest bit. */
static float largest(tutti_dtype dtype)
{
	return dtype == TUTTI_F16 ? 65504.0f
				  : of_bits(dtype == TUTTI_BF16 ? 0x7f7f0000 : 0x7f7fffff);
}

static void one_first_nonfinite(tutti_dtype dtype, size_t count, int flavour)
{
	size_t first = 0;

	array_fill(&a1, dtype, count, 1);
	for (size_t left = draw_below(3); left > 0 && count; left--)
		put(&a1, draw_below(count), flavour ? largest(dtype) : -largest(dtype));
	for (size_t left = draw_below(3); left > 0 && count; left--)
		put(&a1, draw_below(count), flavour ? NAN : -INFINITY);
	memcpy(a1.before, a1.memory, sizeof a1.memory);
	while (first < count && isfinite(was(&a1, first)))
		first++;
	assert_int_equal(kernel_first_nonfinite(at(&a1), dtype, count), first);
}

static void test_first_nonfinite(void **unused)
{
	for_all(one_first_nonfinite);
}

/* Rounds up, and flushes subnormal numbers on machines where this test can set that. */
static void set_unit(void)
{
	assert_int_equal(fesetround(FE_UPWARD), 0);
#if defined(__x86_64__)
	_mm_setcsr(_mm_getcsr() | 0x8040);
#elif defined(__aarch64__)
	uint64_t unit;
	__asm__ volatile("mrs %0, fpcr" : "=r"(unit));
	__asm__ volatile("msr fpcr, %0" ::"r"(unit | 1 << 24) : "memory");
#endif
}

static void test_float_unit(void **unused)
{
	for (int t = 0; t < n_levels; t++) {
		float x[40], half[40];
		uint16_t small[40];
		for (uint32_t i = 0; i < 40; i++)
			x[i] = of_bits(0x0e4000 + i);
		assert_int_equal(simd_use(simd_name((enum simd_level)t)), TUTTI_OK);
		set_unit();
		kernel_scale(half, TUTTI_F32, x, TUTTI_F32, 40, 0.5f);
		kernel_convert(small, TUTTI_F16, x, TUTTI_F32, 40);
		double sum = kernel_sum_of_squares(x, TUTTI_F32, 40);
		int rounding = fegetround();
		fesetenv(FE_DFL_ENV);
		assert_int_equal(rounding, FE_UPWARD);
		for (uint32_t i = 0; i < 40; i++)
			assert_int_equal(bits_of(half[i]), (0x0e4000 + i + (i % 4 == 3)) / 2);
		for (int i = 0; i < 40; i++)
			assert_int_equal(small[i], 0);
		assert_true(sum > 0);
	}
	assert_int_equal(simd_use(NULL), TUTTI_OK);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_adamw),
		cmocka_unit_test(test_sgd),
		cmocka_unit_test(test_narrow),
		cmocka_unit_test(test_widen),
		cmocka_unit_test(test_add),
		cmocka_unit_test(test_scale),
		cmocka_unit_test(test_sum_of_squares),
		cmocka_unit_test(test_first_nonfinite),
		cmocka_unit_test(test_float_unit),
	};
	random_state = argc > 1 ? strtoull(argv[1], NULL, 0) : (uint64_t)time(NULL);
	n_levels = 1 + (int)(simd_highest() < SIMD_AVX512 ? simd_highest() : SIMD_AVX512);
	printf("seed %llu, %d instruction sets, the best is %s\n", (unsigned long long)random_state,
	       n_levels, simd_name((enum simd_level)(n_levels - 1)));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
