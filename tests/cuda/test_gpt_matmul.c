/* What would break: a product by cuBLAS that is not the one by the kernel of examples/gpt_cuda,
 * with any shape, strides, transposed matrices and batches; one in TF32; and numbers written beside
 * the product. The cuBLAS is that of tests/cuda/cublas. */
#include "examples/gpt_cuda/matmul.h"

#include "examples/gpt/place.h"
#include "gpu.h"
#include "tests/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

enum { ROUNDS = 60, ROOM = 4 * 40 * 50 };

static uint64_t seed;

static int draw(int least, int most)
{
	return least + (int)random_below(&seed, (uint64_t)(most - least + 1));
}

static float *numbers(void)
{
	static float host[ROOM];
	float *device = place_alloc(sizeof host);

	assert_non_null(device);
	for (int i = 0; i < ROOM; i++)
		host[i] = (float)draw(-1000000, 1000000) * 1e-6f;
	place_upload(device, host, sizeof host);
	return device;
}

/* Matrices in rows that may be longer than they are, one behind the other. */
static struct matmul draw_matmul(void)
{
	struct matmul m = {.rows = draw(1, 40),
			   .inner = draw(1, 40),
			   .cols = draw(1, 40),
			   .batches = draw(1, 4),
			   .alpha = (float)draw(1, 8) / 4,
			   .a_transposed = draw(0, 1),
			   .b_transposed = draw(0, 1),
			   .add = draw(0, 1)};

	m.a_stride = (m.a_transposed ? m.rows : m.inner) + draw(0, 10);
	m.b_stride = (m.b_transposed ? m.inner : m.cols) + draw(0, 10);
	m.c_stride = m.cols + draw(0, 10);
	m.a_batch = (int64_t)m.a_stride * (m.a_transposed ? m.inner : m.rows);
	m.b_batch = (int64_t)m.b_stride * (m.b_transposed ? m.cols : m.inner);
	m.c_batch = (int64_t)m.c_stride * m.rows;
	return m;
}

static void multiply(struct matmul m, const char *how, const float *c, float *result)
{
	float host[ROOM];

	m.c = place_alloc(sizeof host);
	assert_non_null(m.c);
	gpu_read(host, c, sizeof host);
	place_upload(m.c, host, sizeof host);
	assert_int_equal(matmul_open(how), 0);
	matmul(&m);
	memcpy(result, place_view(m.c, sizeof host), sizeof host);
	place_free(m.c);
}

static void test_products(void **state)
{
	struct options options = {.matmul = "plain"};
	float plain[ROOM], cublas[ROOM];

	assert_true(gpu_open());
	assert_int_equal(place_open(&options), 0);
	for (int round = 0; round < ROUNDS; round++) {
		struct matmul m = draw_matmul();
		float *a = numbers(), *b = numbers(), *c = numbers();
		m.a = a;
		m.b = b;
		place_view(c, sizeof *c); /* they have arrived */
		multiply(m, "plain", c, plain);
		multiply(m, "cublas", c, cublas);
		for (int i = 0; i < ROOM; i++)
			if (!(fabsf(plain[i] - cublas[i]) <= 2e-5f))
				fail_msg("number %d of %d x %d x %d, %d batches%s%s%s: %.9g by "
					 "cuBLAS, not %.9g",
					 i, m.rows, m.inner, m.cols, m.batches,
					 m.a_transposed ? ", a transposed" : "",
					 m.b_transposed ? ", b transposed" : "",
					 m.add ? ", added" : "", (double)cublas[i],
					 (double)plain[i]);
		place_free(a);
		place_free(b);
		place_free(c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_products)};
	const char *given = getenv("SEED");

	seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
