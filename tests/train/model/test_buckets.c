/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: buckets of other sizes than DDP's, and large extern gradients that are copied.
 */
#include "tests/train/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { UNITS = 60 };

static void ready(tutti_trainer *t, int param, float value)
{
	float *grad = tutti_param_grad(t, param);
	grad[0] += value;
	grad[7] += 1;
	CHECK(tutti_grad_ready(t, param) == TUTTI_OK);
}

/* 60 units of 512 KiB: buckets of 1 MiB, 25 MiB and the remaining 4 MiB, the last units first. */
static void sizes(tutti_comm *comm, void *arg)
{
	const int64_t half_mib = 1 << 17;
	tutti_model *model;
	tutti_trainer *t;
	char name[32];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	for (int u = 0; u < UNITS; u++) {
		snprintf(name, sizeof name, "unit.%d", u);
		CHECK(tutti_model_unit(model, name) == u);
		CHECK(tutti_model_param(model, u, name, 1, &half_mib, 0) == u);
	}
	CHECK(tutti_trainer_create(&t, model, comm, NULL) == TUTTI_OK);
	tutti_model_destroy(model);
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	uint64_t sequence = collectives(t);
	for (int u = UNITS - 1; u >= 0; u--) {
		ready(t, u, (float)u);
		uint64_t started = u > UNITS - 2 ? 0 : u > UNITS - 52 ? 1 : u > 0 ? 2 : 3;
		CHECK(collectives(t) == sequence + started);
	}
	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	for (int u = 0; u < UNITS; u++) {
		const float *grad = tutti_param_grad(t, u);
		CHECK(grad[0] == (float)u && grad[7] == 1 && grad[8] == 0);
	}
	tutti_trainer_destroy(t);
}

/* The middle one of three extern gradients is large: reduced where it lies, while the small ones
 * share a bucket of copies. */
static void in_place(tutti_comm *comm, void *arg)
{
	const int64_t counts[] = {10, 1 << 18, 20};
	float *data[3], *grad[3];
	tutti_model *model;
	tutti_trainer *t;
	tutti_train_stats stats;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	for (int p = 0; p < 3; p++) {
		const char *names[] = {"small", "large", "other"};
		data[p] = calloc((size_t)counts[p], sizeof(float));
		grad[p] = calloc((size_t)counts[p], sizeof(float));
		CHECK(tutti_model_param_extern(model, 0, names[p], 1, &counts[p], TUTTI_F32,
					       data[p], grad[p], 0) == p);
	}
	CHECK(tutti_trainer_create(&t, model, comm, NULL) == TUTTI_OK);
	tutti_model_destroy(model);
	CHECK(tutti_trainer_stats(t, &stats) == TUTTI_OK);
	CHECK(stats.grad_bytes == sizeof(float) * (10 + (1 << 18) + 20 + 10 + 20));
	for (int step = 0; step < 2; step++) {
		CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
		uint64_t sequence = collectives(t);
		for (int p = 0; p < 3; p++) {
			CHECK(tutti_param_grad(t, p) == grad[p]);
			ready(t, p, (float)(p + tutti_rank(comm)));
		}
		CHECK(collectives(t) == sequence + 2);
		CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
		for (int p = 0; p < 3; p++) {
			float mean = (float)p + (float)(tutti_size(comm) - 1) / 2;
			CHECK(grad[p][0] == mean && grad[p][7] == 1 && grad[p][8] == 0);
		}
	}
	tutti_trainer_destroy(t);
	for (int p = 0; p < 3; p++) {
		free(data[p]);
		free(grad[p]);
	}
}

static void test_in_place(void **state)
{
	assert_int_equal(ranks_as_processes(2, in_place, NULL), 0);
	for (int n = 1; n <= 4; n *= 2)
		assert_int_equal(ranks_as_threads(n, in_place, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_place),
		RANKS_TEST(sizes, 1, 2),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
