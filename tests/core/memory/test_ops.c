/* Breaks when a created operation is lost, found after it was destroyed or under another's number;
 * when a caller's function is not called in the fixed association, on aligned and non-empty pieces;
 * or when a scaled input differs by one bit from its plain definition. */
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "core/memory/reduce_kernels.h"
#include "tests/random.h"
#include "twin.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

static uint64_t random_state;

static uint64_t random_u64(void)
{
	return random_next(&random_state);
}

static void none(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	(void)inout, (void)in, (void)count, (void)dtype, (void)arg;
}

static tutti_op create(const char *name)
{
	tutti_op op;
	assert_int_equal(op_add_user(&op, name, (struct op_user){none, NULL}), TUTTI_OK);
	return op;
}

static void a_created_op_is_found_until_destroyed(void **state)
{
	tutti_op op = create("first");
	assert_true((int)op >= OPS_FIRST);
	assert_true(op_is_known(op));
	assert_string_equal(op_name(op), "user op 'first'");
	assert_ptr_equal(op_user(op)->fn, none);
	assert_null(op_scalar(op));
	assert_int_equal(op_kernel(op), op);
	for (int dtype = 0; dtype < REDUCE_DTYPES; dtype++)
		assert_true(op_fits(op, (tutti_dtype)dtype));
	assert_false(op_fits(op, (tutti_dtype)REDUCE_DTYPES));
	assert_false(op_is_known((tutti_op)(op + 1)));
	op_remove(op);
	op_remove(op);
	assert_false(op_is_known(op));
	assert_false(op_fits(op, TUTTI_F32));
	tutti_op next = create("first");
	assert_int_not_equal(next, op);
	assert_false(op_is_known(op));
	op_remove(next);
}

static void a_scaled_sum_has_one_dtype_and_a_copy(void **state)
{
	double half = 0.5;
	tutti_op op;
	assert_int_equal(op_add_scaled(&op, &half, TUTTI_F64), TUTTI_OK);
	half = 7;
	assert_true(*(const double *)op_scalar(op) == 0.5);
	assert_int_equal(op_kernel(op), TUTTI_SUM);
	assert_null(op_user(op));
	assert_string_equal(op_name(op), "scaled sum");
	assert_true(op_fits(op, TUTTI_F64));
	assert_false(op_fits(op, TUTTI_F32));
	op_remove(op);
}

/* Ranks number their ops differently; what they compare must not. */
static void identities_follow_names(void **state)
{
	char text[80];
	float f = 1;
	int8_t i = 2;
	tutti_op a = create("max abs"), b = create("max abs"), c = create("min abs"), s, t;
	assert_int_equal(op_add_scaled(&s, &f, TUTTI_F32), TUTTI_OK);
	assert_int_equal(op_add_scaled(&t, &i, TUTTI_I8), TUTTI_OK);
	assert_int_not_equal(a, b);
	assert_int_equal(op_identity(a), op_identity(b));
	assert_int_not_equal(op_identity(a), op_identity(c));
	assert_int_equal(op_identity(s), op_identity(t));
	assert_int_not_equal(op_identity(s), op_identity(a));
	for (int op = 0; op < OPS_BUILT_IN; op++) {
		assert_int_equal(op_identity((tutti_op)op), op);
		assert_int_not_equal(op_identity(s), op);
		assert_string_equal(op_identity_name((uint32_t)op, text, sizeof text),
				    op_name((tutti_op)op));
	}
	assert_string_equal(op_identity_name(op_identity(c), text, sizeof text),
			    "user op 'min abs'");
	assert_string_equal(op_identity_name(op_identity(s), text, sizeof text), "scaled sum");
	assert_string_equal(op_identity_name(1u << 31, text, sizeof text),
			    "a user op not known on this rank");
	assert_string_equal(op_identity_name(12345, text, sizeof text), "?");
	tutti_op all[] = {a, b, c, s, t};
	for (int n = 0; n < 5; n++)
		op_remove(all[n]);
}

static void a_held_op_outlives_its_end(void **state)
{
	static tutti_op others[OPS_MOST];
	tutti_op op = create("held"), late;
	op_hold(op);
	op_remove(op);
	for (int i = 0; i < OPS_MOST - 1; i++)
		others[i] = create("another");
	assert_int_equal(op_add_user(&late, "late", (struct op_user){none, NULL}),
			 TUTTI_ERR_MEMORY);
	assert_false(op_is_known(op));
	assert_non_null(op_user(op));
	assert_string_equal(op_name(op), "user op 'held'");
	op_release(op);
	late = create("late");
	assert_null(op_user(op));
	assert_int_not_equal(late, op);
	for (int i = 0; i < OPS_MOST - 1; i++)
		op_remove(others[i]);
	op_remove(late);
}

static void built_in_ops_are_not_held_nor_destroyed(void **state)
{
	for (int op = -1; op < OPS_BUILT_IN; op++) {
		op_hold((tutti_op)op);
		op_release((tutti_op)op);
		op_remove((tutti_op)op);
		assert_int_equal(op_is_known((tutti_op)op), op >= 0);
		assert_null(op_scalar((tutti_op)op));
		assert_null(op_user((tutti_op)op));
		assert_int_equal(op_kernel((tutti_op)op), (tutti_op)op);
	}
}

struct seen {
	size_t pieces, elements;
	bool is_bad;
};

/* Not associative: tells the tree from any other order, and left from right. */
static void three_a_plus_b(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	struct seen *seen = arg;
	size_t bytes = dtype_bytes(dtype);
	seen->pieces++;
	seen->elements += count;
	seen->is_bad |= count == 0 || (uintptr_t)inout % bytes || (uintptr_t)in % bytes;
	for (size_t i = 0; i < count * bytes; i++)
		((uint8_t *)inout)[i] =
			(uint8_t)(3 * ((uint8_t *)inout)[i] + ((const uint8_t *)in)[i]);
}

static uint8_t expected_byte(const uint8_t *const *src, int n, size_t at)
{
	uint8_t v[40] = {0};
	for (int s = 0; s < n; s++)
		v[s] = src[s][at];
	for (int far = 1; far < n; far *= 2)
		for (int s = 0; s + far < n; s += 2 * far)
			v[s] = (uint8_t)(3 * v[s] + v[s + far]);
	return v[0];
}

static void check_user(tutti_op op, tutti_dtype dtype, int n_src, size_t count)
{
	enum { MOST = 4096 * 8 + 16 };
	static uint8_t memory[40][MOST], results[2][MOST], expected[MOST];
	const uint8_t *src[40];
	size_t bytes = count * dtype_bytes(dtype);
	int in_place = (int)(random_u64() % (unsigned)(n_src + 1));

	for (int s = 0; s < n_src; s++) {
		src[s] = memory[s] + random_u64() % 16;
		for (size_t i = 0; i < MOST; i++)
			memory[s][i] = (uint8_t)random_u64();
	}
	for (size_t i = 0; i < bytes; i++)
		expected[i] = expected_byte(src, n_src, i);
	memset(results, 0x5a, sizeof results);
	uint8_t *own = results[1] + random_u64() % 8;
	void *dst[] = {results[0] + random_u64() % 8, own};
	if (in_place < n_src) {
		memcpy(own, src[in_place], bytes);
		src[in_place] = own;
	}
	reduce(dst, 2, (const void *const *)src, n_src, count, dtype, op, n_src);
	for (int d = 0; d < 2; d++) {
		assert_memory_equal(dst[d], expected, bytes);
		for (uint8_t *p = (uint8_t *)dst[d] + bytes; p < results[d] + MOST; p++)
			assert_int_equal(*p, 0x5a);
	}
}

static void a_callers_function_walks_the_tree(void **state)
{
	struct seen seen = {0};
	tutti_op op;
	assert_int_equal(op_add_user(&op, "3a+b", (struct op_user){three_a_plus_b, &seen}),
			 TUTTI_OK);
	static const int n_srcs[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 33};
	static const size_t counts[] = {0, 1, 5, 255, 256, 257, 2048, 2049, 4000};
	for (int n = 0; n < 10; n++)
		for (int c = 0; c < 9; c++)
			check_user(op, (tutti_dtype)(random_u64() % REDUCE_DTYPES), n_srcs[n],
				   counts[c]);
	assert_false(seen.is_bad);
	seen = (struct seen){0};
	check_user(op, TUTTI_U8, 5, 4000);
	assert_int_equal(seen.elements, 4 * 4000);
	assert_int_equal(seen.pieces, 4 * 2);
	op_remove(op);
}

static uint64_t twin_scale(uint64_t x, uint64_t by, tutti_dtype dtype)
{
	size_t bits = 8 * dtype_bytes(dtype);
	if (!dtype_is_float(dtype))
		return x * by & (UINT64_MAX >> (64 - bits));
	if (dtype == TUTTI_F64) {
		double a, b;
		memcpy(&a, &x, 8);
		memcpy(&b, &by, 8);
		a *= b;
		memcpy(&x, &a, 8);
		return isnan(a) ? UINT64_C(0x7ff8000000000000) : x;
	}
	if (dtype != TUTTI_F32) {
		struct twin_format f = twin_format(dtype);
		float product =
			(float)twin_decode((uint32_t)x, f) * (float)twin_decode((uint32_t)by, f);
		return twin_encode((double)product, f);
	}
	float a, b;
	uint32_t low = (uint32_t)x, low_by = (uint32_t)by;
	memcpy(&a, &low, 4);
	memcpy(&b, &low_by, 4);
	a *= b;
	memcpy(&low, &a, 4);
	return isnan(a) ? 0x7fc00000 : low;
}

/* Zeros, ones, infinities and NaNs among any bits. */
static uint64_t random_element(tutti_dtype dtype)
{
	static const uint64_t edges[] = {0,
					 UINT64_C(1) << 63,
					 UINT64_C(0x7ff0) << 48,
					 UINT64_C(0xfff0) << 48,
					 UINT64_C(0x7f80) << 48,
					 UINT64_C(0xff80) << 48,
					 UINT64_C(0x7c00) << 48,
					 UINT64_C(0xfc00) << 48,
					 UINT64_MAX,
					 UINT64_C(1) << 56,
					 UINT64_C(0x3f80) << 48};
	uint64_t x = random_u64();
	if (x % 4 == 0)
		x = edges[random_u64() % (sizeof edges / sizeof edges[0])];
	return x >> (64 - 8 * dtype_bytes(dtype));
}

static void check_scale(const struct reduce_kernels *k, tutti_dtype dtype, size_t count)
{
	static char in[3000 * 8 + 16], out[3000 * 8 + 16];
	size_t bytes = dtype_bytes(dtype);
	char *src = in + random_u64() % 16, *dst = random_u64() % 2 ? src : out + random_u64() % 8;
	uint64_t by = random_element(dtype), *expected = malloc((count + 1) * sizeof *expected);

	assert_non_null(expected);
	for (size_t i = 0; i < count; i++) {
		uint64_t x = random_element(dtype);
		memcpy(src + i * bytes, &x, bytes);
		expected[i] = twin_scale(x, by, dtype);
	}
	dst[count * bytes] = 0x5a;
	struct scaling s = {dst, src, &by, count, dtype};
	if (k)
		scale_with(k, &s);
	else
		scale(dst, src, &by, count, dtype);
	for (size_t i = 0; i < count; i++) {
		uint64_t got = 0;
		memcpy(&got, dst + i * bytes, bytes);
		if (got != expected[i])
			fail_msg("%s: element %zu of %zu %s is %#llx, not %#llx",
				 k ? simd_name(k->level) : "scale", i, count, dtype_name(dtype),
				 (unsigned long long)got, (unsigned long long)expected[i]);
	}
	assert_int_equal(dst[count * bytes], 0x5a);
	free(expected);
}

static void scaled_inputs_have_the_plain_bits(void **state)
{
	int n = (int)simd_highest() + 1;
	static const size_t counts[] = {0, 1, 3, 100, 511, 512, 513, 3000};
	for (int v = 0; v <= n; v++) /* the last is NULL: scale() itself */
		for (int dtype = 0; dtype < REDUCE_DTYPES; dtype++)
			for (int c = 0; c < 8; c++)
				for (int again = 0; again < 4; again++)
					check_scale(v < n ? reduce_kernels_of((enum simd_level)v)
							  : NULL,
						    (tutti_dtype)dtype, counts[c]);
}

#define THREADS 4

static void add_one(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	(void)in, (void)dtype;
	for (size_t i = 0; i < count; i++)
		((int32_t *)inout)[i] = *(const int32_t *)arg;
}

/* Creates, uses and destroys its own; every op must stay this thread's. Returns how many were not.
 */
static void *create_and_reduce(void *arg)
{
	intptr_t wrong = 0;
	int32_t mark = *(int *)arg;
	for (int round = 0; round < 2000; round++) {
		tutti_op op, scaled;
		int32_t in = 0, out = -1;
		const void *src[] = {&in, &in};
		void *dst = &out;
		mark += THREADS;
		if (op_add_user(&op, "mine", (struct op_user){add_one, &mark}) != TUTTI_OK ||
		    op_add_scaled(&scaled, &mark, TUTTI_I32) != TUTTI_OK)
			return (void *)(intptr_t)1000;
		op_hold(op);
		reduce(&dst, 1, src, 2, 1, TUTTI_I32, op, 0);
		wrong += out != mark || *(const int32_t *)op_scalar(scaled) != mark;
		op_remove(op);
		wrong += op_is_known(op) || op_user(op)->arg != &mark;
		op_release(op);
		op_remove(scaled);
	}
	return (void *)wrong;
}

static void threads_do_not_meet_in_the_table(void **state)
{
	pthread_t thread[THREADS];
	int mark[THREADS];
	for (int i = 0; i < THREADS; i++) {
		mark[i] = i;
		assert_int_equal(pthread_create(&thread[i], NULL, create_and_reduce, &mark[i]), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		void *wrong;
		pthread_join(thread[i], &wrong);
		assert_ptr_equal(wrong, NULL);
	}
}

int main(void)
{
	const char *seed = getenv("SEED");
	random_state = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)random_state);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_created_op_is_found_until_destroyed),
		cmocka_unit_test(a_scaled_sum_has_one_dtype_and_a_copy),
		cmocka_unit_test(identities_follow_names),
		cmocka_unit_test(a_held_op_outlives_its_end),
		cmocka_unit_test(built_in_ops_are_not_held_nor_destroyed),
		cmocka_unit_test(a_callers_function_walks_the_tree),
		cmocka_unit_test(scaled_inputs_have_the_plain_bits),
		cmocka_unit_test(threads_do_not_meet_in_the_table),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
