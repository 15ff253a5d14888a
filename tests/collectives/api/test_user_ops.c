/* Breaks when a reduction of the caller's own gives wrong elements over the window or messages,
 * when it ends while a call still uses it, or when a bad one is not refused with a message. */
#include <tutti/tutti.h>

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define RANKS_MAX 5
#define COUNT     30011

/* arg: the sum of counts, so that a test sees it called; by several threads at once, as the header
 * says. */
static void max_abs(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	double *x = inout;
	const double *y = in;
	assert_int_equal(dtype, TUTTI_F64);
	atomic_fetch_add((atomic_size_t *)arg, count);
	for (size_t i = 0; i < count; i++)
		x[i] = fabs(x[i]) < fabs(y[i]) ? fabs(y[i]) : fabs(x[i]);
}

#define MODULUS UINT64_C(65521)

/* Complex numbers modulo a prime, two to an element: the exact stand-in for those of floats. */
static uint64_t complex_product(uint64_t x, uint64_t y)
{
	uint64_t a = x >> 32, b = x & UINT32_MAX, c = y >> 32, d = y & UINT32_MAX;
	uint64_t real = (a * c + (MODULUS - b) * d) % MODULUS;
	return real << 32 | (a * d + b * c) % MODULUS;
}

static void multiply_complex(void *inout, const void *in, size_t count, tutti_dtype dtype,
			     void *arg)
{
	uint64_t *x = inout;
	const uint64_t *y = in;
	(void)dtype, (void)arg;
	for (size_t i = 0; i < count; i++)
		x[i] = complex_product(x[i], y[i]);
}

static uint64_t complex_of(int rank, size_t i)
{
	uint64_t h = (uint64_t)(rank + 1) * 2654435761u + i * 40503u;
	return h % MODULUS << 32 | h / MODULUS % MODULUS;
}

static double real_of(int rank, size_t i)
{
	return (double)((int)((i * 7 + (size_t)rank * 13) % 101) - 50);
}

struct world {
	tutti_comm *comm[RANKS_MAX];
	tutti_work *work[RANKS_MAX];
	void *send[RANKS_MAX], *recv[RANKS_MAX];
	int size;
};

static void world_open(struct world *w, int size, const char *transports)
{
	tutti_config config = {.transports = transports, .timeout_ms = 60000};
	w->size = size;
	if (tutti_init_all(w->comm, size, &config) != TUTTI_OK)
		fail_msg("%d ranks over %s: %s", size, transports ? transports : "all",
			 tutti_comm_error(NULL));
	for (int r = 0; r < size; r++) {
		w->send[r] = malloc(COUNT * 8 * RANKS_MAX);
		w->recv[r] = malloc(COUNT * 8);
		assert_non_null(w->send[r]);
		assert_non_null(w->recv[r]);
	}
}

static void world_close(struct world *w)
{
	for (int r = 0; r < w->size; r++) {
		tutti_comm_destroy(w->comm[r]);
		free(w->send[r]);
		free(w->recv[r]);
	}
}

static void start_all_reduce(struct world *w, size_t count, tutti_dtype dtype, const tutti_op *op)
{
	for (int r = 0; r < w->size; r++) {
		tutti_call call = {.work = &w->work[r]};
		assert_int_equal(tutti_all_reduce(w->send[r], w->recv[r], count, dtype, op[r],
						  w->comm[r], &call),
				 TUTTI_OK);
	}
}

static void wait_all(struct world *w)
{
	for (int r = 0; r < w->size; r++)
		if (tutti_work_wait(&w->work[r], 0) != TUTTI_OK)
			fail_msg("rank %d: %s", r, tutti_comm_error(w->comm[r]));
}

static void reduces_max_abs(struct world *w, size_t count)
{
	tutti_op op[RANKS_MAX];
	atomic_size_t calls[RANKS_MAX] = {0};
	for (int r = 0; r < w->size; r++) {
		assert_int_equal(tutti_op_create(&op[r], "max abs", max_abs, &calls[r]), TUTTI_OK);
		for (size_t i = 0; i < count; i++)
			((double *)w->send[r])[i] = real_of(r, i);
	}
	start_all_reduce(w, count, TUTTI_F64, op);
	for (int r = 0; r < w->size; r++)
		tutti_op_destroy(op[r]); /* calls in flight keep it */
	wait_all(w);
	size_t all = 0;
	for (int r = 0; r < w->size; r++) {
		all += calls[r];
		for (size_t i = 0; i < count; i++) {
			double most = fabs(real_of(0, i));
			for (int s = 1; s < w->size; s++)
				most = fmax(most, fabs(real_of(s, i)));
			assert_true(((double *)w->recv[r])[i] ==
				    (w->size == 1 ? real_of(0, i) : most));
		}
	}
	assert_true(all >= count * (size_t)(w->size - 1));
}

static void scatters_complex_products(struct world *w, size_t count)
{
	tutti_op op[RANKS_MAX];
	for (int r = 0; r < w->size; r++) {
		tutti_call call = {.work = &w->work[r]};
		assert_int_equal(tutti_op_create(&op[r], "complex", multiply_complex, NULL),
				 TUTTI_OK);
		for (size_t i = 0; i < count * (size_t)w->size; i++)
			((uint64_t *)w->send[r])[i] = complex_of(r, i);
		assert_int_equal(tutti_reduce_scatter(w->send[r], w->recv[r], count, TUTTI_U64,
						      op[r], w->comm[r], &call),
				 TUTTI_OK);
	}
	wait_all(w);
	for (int r = 0; r < w->size; r++) {
		for (size_t i = 0; i < count; i++) {
			size_t at = (size_t)r * count + i;
			uint64_t product = complex_of(0, at);
			for (int s = 1; s < w->size; s++)
				product = complex_product(product, complex_of(s, at));
			assert_int_equal(((uint64_t *)w->recv[r])[i], product);
		}
		tutti_op_destroy(op[r]);
	}
}

static void user_ops_reduce_everywhere(void **state)
{
	static const char *const transports[] = {"tcp", "shm", NULL};
	static const int sizes[] = {1, 2, 3, 5};
	static const size_t counts[] = {0, 1, 5, 777, COUNT};
	for (int t = 0; t < 3; t++) {
		for (int s = 0; s < 4; s++) {
			struct world w;
			world_open(&w, sizes[s], transports[t]);
			for (int c = 0; c < 5; c++) {
				reduces_max_abs(&w, counts[c]);
				scatters_complex_products(&w, counts[c]);
			}
			world_close(&w);
		}
	}
}

static void assert_error(tutti_status status, tutti_status expected, const char *words)
{
	assert_int_equal(status, expected);
	if (!strstr(tutti_comm_error(NULL), words))
		fail_msg("\"%s\" does not say \"%s\"", tutti_comm_error(NULL), words);
}

/* Between a member call and the group's end its op may go. */
static void a_group_keeps_its_ops(void **state)
{
	struct world w;
	atomic_size_t calls = 0;
	world_open(&w, 3, NULL);
	assert_int_equal(tutti_group_begin(), TUTTI_OK);
	for (int r = 0; r < 3; r++) {
		tutti_op op;
		assert_int_equal(tutti_op_create(&op, "max abs", max_abs, &calls), TUTTI_OK);
		((double *)w.send[r])[0] = r == 1 ? -7 : r;
		assert_int_equal(
			tutti_all_reduce(w.send[r], w.recv[r], 1, TUTTI_F64, op, w.comm[r], NULL),
			TUTTI_OK);
		tutti_op_destroy(op);
	}
	for (int i = 0; i < 1024; i++) { /* their places would all be taken again */
		tutti_op other;
		assert_int_equal(tutti_op_create(&other, "other", multiply_complex, NULL),
				 TUTTI_OK);
		tutti_op_destroy(other);
	}
	assert_int_equal(tutti_group_end(NULL), TUTTI_OK);
	for (int r = 0; r < 3; r++)
		assert_true(((double *)w.recv[r])[0] == 7);
	world_close(&w);
}

static void different_names_are_a_mismatch(void **state)
{
	struct world w;
	tutti_op op[2];
	assert_int_equal(tutti_op_create(&op[0], "one", multiply_complex, NULL), TUTTI_OK);
	assert_int_equal(tutti_op_create(&op[1], "another", multiply_complex, NULL), TUTTI_OK);
	world_open(&w, 2, NULL);
	memset(w.send[0], 0, 16);
	memset(w.send[1], 0, 16);
	start_all_reduce(&w, 2, TUTTI_U64, op);
	for (int r = 0; r < 2; r++)
		assert_error(tutti_work_wait(&w.work[r], 0), TUTTI_ERR_MISMATCH,
			     "user op 'one') as #0");
	world_close(&w);
	tutti_op_destroy(op[0]);
	tutti_op_destroy(op[1]);
}

static void bad_ops_are_refused(void **state)
{
	char name[65];
	float f = 2;
	tutti_op op;
	memset(name, 'x', 64);
	name[64] = 0;
	assert_error(tutti_op_create(NULL, "a", max_abs, NULL), TUTTI_ERR_INVALID, "op is NULL");
	assert_error(tutti_op_create(&op, NULL, max_abs, NULL), TUTTI_ERR_INVALID, "name is");
	assert_error(tutti_op_create(&op, "a", NULL, NULL), TUTTI_ERR_INVALID, "fn is NULL");
	assert_error(tutti_op_create(&op, "", max_abs, NULL), TUTTI_ERR_INVALID, "0 bytes");
	assert_error(tutti_op_create(&op, name, max_abs, NULL), TUTTI_ERR_INVALID, "64 bytes");
	assert_error(tutti_op_create_scaled(NULL, &f, TUTTI_F32), TUTTI_ERR_INVALID, "op is");
	assert_error(tutti_op_create_scaled(&op, NULL, TUTTI_F32), TUTTI_ERR_INVALID, "scalar");
	assert_error(tutti_op_create_scaled(&op, &f, (tutti_dtype)99), TUTTI_ERR_INVALID, "99");
	name[63] = 0;
	assert_int_equal(tutti_op_create(&op, name, max_abs, NULL), TUTTI_OK);
	tutti_op_destroy(op);
}

static void a_bad_op_in_a_call_is_refused(void **state)
{
	struct world w;
	float f = 2;
	atomic_size_t calls = 0;
	tutti_op gone, scaled;
	world_open(&w, 1, NULL);
	assert_int_equal(tutti_op_create(&gone, "gone", max_abs, &calls), TUTTI_OK);
	assert_int_equal(tutti_op_create_scaled(&scaled, &f, TUTTI_F32), TUTTI_OK);
	tutti_op_destroy(gone);
	assert_error(tutti_all_reduce(w.send[0], w.recv[0], 1, TUTTI_F64, gone, w.comm[0], NULL),
		     TUTTI_ERR_INVALID, "destroyed");
	assert_error(tutti_all_reduce(w.send[0], w.recv[0], 1, TUTTI_F64, scaled, w.comm[0], NULL),
		     TUTTI_ERR_INVALID, "scaled sum does not work on f64");
	assert_int_equal(tutti_comm_status(w.comm[0]), TUTTI_OK);
	assert_int_equal(tutti_comm_sequence(w.comm[0]), 0);
	tutti_op_destroy(scaled);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_ops_are_refused),
		cmocka_unit_test(a_bad_op_in_a_call_is_refused),
		cmocka_unit_test(user_ops_reduce_everywhere),
		cmocka_unit_test(a_group_keeps_its_ops),
		cmocka_unit_test(different_names_are_a_mismatch),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
