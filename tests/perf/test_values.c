/* What would break: benchmarks that accept wrong results, or call right ones wrong. The expected
 * values are compared with the library's own reductions in every order, and single errors must be
 * counted. */
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"
#include "perf/values.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS_MAX 17
#define COUNT     (2 * VALUES_PERIOD + 5)

static const int rank_counts[] = {1, 2, 3, 8, 9, 17};

struct world {
	struct values values;
	int ranks;
	tutti_dtype dtype;
	tutti_op op;
	size_t bytes;
	unsigned char *sent[RANKS_MAX], *result;
};

static const struct span everything = {.iteration = 3, .count = COUNT};

static void world_open(struct world *w, int ranks, tutti_dtype dtype, tutti_op op)
{
	*w = (struct world){.ranks = ranks, .dtype = dtype, .op = op};
	assert_true(values_init(&w->values, ranks, dtype, op, true));
	w->bytes = COUNT * dtype_bytes(dtype);
	w->result = malloc(w->bytes);
	for (int r = 0; r < ranks; r++) {
		w->sent[r] = malloc(w->bytes);
		values_fill(&w->values, r, everything, w->sent[r]);
	}
}

static void world_close(struct world *w)
{
	for (int r = 0; r < w->ranks; r++)
		free(w->sent[r]);
	free(w->result);
	values_finish(&w->values);
}

static void expect_right(const struct world *w, const char *how)
{
	uint64_t wrong = values_wrong(&w->values, VALUES_RESULT, everything, w->result);

	if (wrong)
		fail_msg("%s %s of %d ranks, %s: %llu wrong", dtype_name(w->dtype), op_name(w->op),
			 w->ranks, how, (unsigned long long)wrong);
}

/* One rank after the other, each partial result rounded to the type. */
static void fold(struct world *w, int first, int step)
{
	void *result = w->result;

	memcpy(w->result, w->sent[first], w->bytes);
	for (int r = first + step; r >= 0 && r < w->ranks; r += step) {
		const void *sources[2] = {w->result, w->sent[r]};

		reduce(&result, 1, sources, 2, COUNT, w->dtype, w->op, 0);
	}
	reduce_finish(w->result, COUNT, w->dtype, w->op, w->ranks);
}

static void check_all_orders(int ranks, tutti_dtype dtype, tutti_op op)
{
	struct world w;
	void *result;

	world_open(&w, ranks, dtype, op);
	result = w.result;
	reduce(&result, 1, (const void *const *)w.sent, ranks, COUNT, dtype, op, ranks);
	expect_right(&w, "all at once");
	if (op != TUTTI_AVG || dtype_is_float(dtype)) {
		fold(&w, 0, 1);
		expect_right(&w, "first to last");
		fold(&w, ranks - 1, -1);
		expect_right(&w, "last to first");
	}
	world_close(&w);
}

static void every_order_gives_the_result(void **state)
{
	(void)state;
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		for (int op = 0; op < OPS; op++) {
			if (!op_fits((tutti_op)op, (tutti_dtype)dtype))
				continue;
			for (size_t i = 0; i < sizeof rank_counts / sizeof *rank_counts; i++)
				check_all_orders(rank_counts[i], (tutti_dtype)dtype, (tutti_op)op);
		}
	}
}

static void one_error_is_counted_wherever_it_is(void **state)
{
	static const size_t places[] = {0, 1, VALUES_PERIOD - 1, VALUES_PERIOD, COUNT - 1};
	struct world w;

	(void)state;
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		world_open(&w, 2, (tutti_dtype)dtype, TUTTI_SUM);
		values_fill(&w.values, VALUES_RESULT, everything, w.result);
		for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
			w.result[places[i] * dtype_bytes(w.dtype)] ^= 1;
			assert_int_equal(
				values_wrong(&w.values, VALUES_RESULT, everything, w.result),
				i + 1);
		}
		world_close(&w);
	}
}

/* What a rank, an iteration or a place sends is not what another one sends. */
static void data_differ(void **state)
{
	static const struct span other_iteration = {.iteration = 4, .count = COUNT};
	static const struct span other_place = {.iteration = 3, .first = 4096, .count = COUNT};
	struct world w;

	(void)state;
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		world_open(&w, 4, (tutti_dtype)dtype, TUTTI_SUM);
		assert_int_equal(values_wrong(&w.values, 0, everything, w.sent[0]), 0);
		assert_true(values_wrong(&w.values, 1, everything, w.sent[0]) > COUNT / 3);
		assert_true(values_wrong(&w.values, 0, other_iteration, w.sent[0]) > COUNT / 3);
		assert_true(values_wrong(&w.values, 0, other_place, w.sent[0]) > COUNT / 3);
		world_close(&w);
	}
}

/* A reduction that leaves a rank out shows at once. */
static void a_missing_rank_shows(void **state)
{
	struct world w;
	void *result;

	(void)state;
	for (int dtype = 0; dtype < DTYPES; dtype++) {
		for (int op = 0; op < OPS; op++) {
			if (!op_fits((tutti_op)op, (tutti_dtype)dtype))
				continue;
			world_open(&w, 8, (tutti_dtype)dtype, (tutti_op)op);
			result = w.result;
			reduce(&result, 1, (const void *const *)w.sent, 7, COUNT, w.dtype, w.op, 8);
			assert_true(values_wrong(&w.values, VALUES_RESULT, everything, w.result) >
				    COUNT / 100);
			world_close(&w);
		}
	}
}

/* Ranks that are threads have one set of tables, for as long as one of them uses it. */
static void what_is_alike_is_there_once(void **state)
{
	static float data[COUNT];
	struct values a, b, other;

	(void)state;
	assert_true(values_init(&a, 64, TUTTI_F32, TUTTI_SUM, true));
	assert_true(values_init(&b, 64, TUTTI_F32, TUTTI_SUM, true));
	assert_ptr_equal(a.tables, b.tables);
	assert_true(values_init(&other, 64, TUTTI_F32, TUTTI_MAX, true));
	assert_ptr_not_equal(a.tables, other.tables);
	values_finish(&other);
	assert_true(values_init(&other, 63, TUTTI_F32, TUTTI_SUM, true));
	assert_ptr_not_equal(a.tables, other.tables);
	values_finish(&other);
	assert_true(values_init(&other, 64, TUTTI_F32, TUTTI_SUM, false));
	assert_ptr_not_equal(a.tables, other.tables);
	values_finish(&other);
	values_finish(&a);
	values_finish(&a); /* of what is not there nothing is given back */
	values_fill(&b, 3, everything, data);
	assert_int_equal(values_wrong(&b, 3, everything, data), 0);
	values_finish(&b);
	assert_int_equal(values_bytes(64, TUTTI_F32), 65 * VALUES_PERIOD * 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_alike_is_there_once),
		cmocka_unit_test(every_order_gives_the_result),
		cmocka_unit_test(one_error_is_counted_wherever_it_is),
		cmocka_unit_test(data_differ),
		cmocka_unit_test(a_missing_rank_shows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
