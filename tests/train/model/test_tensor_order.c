/* Orders of split tensors: every element must be mapped to its own place, and back, and runs must
 * end where the places of one of the two orders jump. */
#include "train/model/tensor_order.h"

#include "tests/random.h"
#include "tests/unit.h"

#include <stdlib.h>
#include <string.h>

enum { DIMS = 4, ELEMENTS = 2000 };

struct tensor {
	int ndim;
	int64_t shape[DIMS];
	size_t count;
};

/* The plain twin: lists the elements in the order, by coordinates. */
static void list(struct tensor_order order, const struct tensor *t, size_t *elements)
{
	int parts = order.parts > 1 ? order.parts : 1;
	size_t n = 0;

	for (int part = 0; part < parts; part++)
		for (size_t e = 0; e < t->count; e++) {
			size_t inner = 1;
			for (int d = order.dim + 1; d < t->ndim; d++)
				inner *= (size_t)t->shape[d];
			int64_t row = (int64_t)(e / inner) % t->shape[order.dim];
			int64_t first = split_first(t->shape[order.dim], parts, part);
			if (row >= first &&
			    row < first + split_count(t->shape[order.dim], parts, part))
				elements[n++] = e;
		}
	assert_int_equal(n, t->count);
}

static struct tensor draw(uint64_t *seed)
{
	struct tensor t = {.ndim = 1 + (int)random_below(seed, DIMS), .count = 1};

	for (int d = 0; d < t.ndim; d++) {
		t.shape[d] = (int64_t)random_below(seed, 10) % 7;
		t.count *= (size_t)t.shape[d];
	}
	return t;
}

static struct tensor_order draw_order(uint64_t *seed, const struct tensor *t)
{
	int dim = (int)random_below(seed, (uint64_t)t->ndim);

	/* More parts than rows, too. */
	return (struct tensor_order){dim, (int)random_below(seed, (uint64_t)t->shape[dim] + 4)};
}

static void check(struct tensor_order from, struct tensor_order to, const struct tensor *t)
{
	size_t a[ELEMENTS], b[ELEMENTS], run;

	list(from, t, a);
	list(to, t, b);
	for (size_t i = 0; i < t->count; i++) {
		size_t place = order_map(from, to, t->ndim, t->shape, i, &run);
		assert_true(run >= 1 && i + run <= t->count && place + run <= t->count);
		for (size_t k = 0; k < run; k++)
			assert_int_equal(a[i + k], b[place + k]);
	}
	for (int part = 0; part < from.parts; part++) {
		size_t first = order_first(from, t->ndim, t->shape, part), inner = 1;
		for (int d = from.dim + 1; d < t->ndim; d++)
			inner *= (size_t)t->shape[d];
		int64_t size = t->shape[from.dim], row = split_first(size, from.parts, part);
		if (split_count(size, from.parts, part) == 0)
			assert_true(part == 1 || first == t->count); /* one part is C order */
		else if (t->count > 0)
			assert_int_equal((int64_t)(a[first] / inner) % size, row);
	}
}

static void test_random(void **state)
{
	uint64_t seed = 4;

	print_message("seed %d\n", (int)seed);
	for (int i = 0; i < 2000; i++) {
		struct tensor t = draw(&seed);
		check(draw_order(&seed, &t), draw_order(&seed, &t), &t);
	}
}

/* The last piece of uneven ones is shorter, and a run is as long as can be. */
static void test_runs(void **state)
{
	const int64_t shape[] = {3, 7, 2};
	const struct tensor_order plain = {0, 0}, split = {1, 3};
	size_t run;

	assert_int_equal(split_count(7, 3, 0), 3);
	assert_int_equal(split_first(7, 3, 2), 5);
	assert_int_equal(order_first(split, 3, shape, 1), 3 * 3 * 2);
	assert_int_equal(order_map(split, plain, 3, shape, 18, &run), 6);
	assert_int_equal(run, 4);
	assert_int_equal(order_map(plain, split, 3, shape, 15, &run), 7);
	assert_int_equal(run, 5);
	assert_int_equal(order_map(split, split, 3, shape, 5, &run), 5);
	assert_int_equal(run, 37);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_runs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
