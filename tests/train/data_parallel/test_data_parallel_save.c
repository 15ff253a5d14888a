/* What would break: a checkpoint of replicas that does not go on as the training did, or that only
 * the same number of replicas, or the same way, can load. */
#include "tests/limit.h"
#include "tests/train/data_parallel/network.h"
#include "tests/train/ranks.h"
#include "tests/train/saved.h"

#include "train/checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { ITEMS = 32, BEFORE = 3, AFTER = 2 };

static const tutti_optimizer adamw = {
	.kind = TUTTI_ADAMW, .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};

static char folder[] = "/tmp/tutti_data_parallel_XXXXXX";
static struct network network;
static struct net_batch data;
static struct net_replicas replicas;

static tutti_data_parallel *start(bool is_mirrored, int n)
{
	const tutti_data_parallel_config c = net_config(&network);

	net_start(&replicas, is_mirrored, n, &c);
	return replicas.dp;
}

static void train(tutti_data_parallel *dp, int first, int steps)
{
	const tutti_data_parallel_batch batch = {
		.inputs = data.inputs, .targets = data.targets, .items = ITEMS};

	for (int s = first; s < first + steps; s++) {
		net_batch(&data, s, ITEMS);
		assert_int_equal(tutti_data_parallel_step(dp, &batch, &adamw, 1, NULL), TUTTI_OK);
	}
}

static tutti_status save(tutti_trainer *trainer, int replica, void *arg)
{
	tutti_status status = tutti_save(trainer, arg, BEFORE);
	return status == TUTTI_OK ? tutti_save_wait(trainer) : status;
}

static tutti_status load(tutti_trainer *trainer, int replica, void *arg)
{
	int64_t step;
	tutti_status status = tutti_load(trainer, arg, &step);

	CHECK(step == BEFORE);
	return status;
}

/* values: after the steps behind the save. */
static void train_and_save(bool is_mirrored, int n, float values[NET_COUNT])
{
	tutti_data_parallel *dp = start(is_mirrored, n);

	assert_int_equal(tutti_data_parallel_run(dp, net_init, NULL), TUTTI_OK);
	train(dp, 0, BEFORE);
	assert_int_equal(tutti_data_parallel_run(dp, save, folder), TUTTI_OK);
	train(dp, BEFORE, AFTER);
	assert_int_equal(tutti_data_parallel_run(dp, net_read, values), TUTTI_OK);
	net_stop(&replicas);
}

static void test_save(void **state)
{
	static const int sizes[] = {1, 2, 4};
	float expected[NET_COUNT], found[NET_COUNT];

	assert_non_null(mkdtemp(folder));
	for (int saver = 0; saver < 2; saver++) {
		train_and_save(saver == 1, 2, expected);
		for (int i = 0; i < 6; i++) {
			int n = sizes[i / 2];
			tutti_data_parallel *dp = start(i % 2, n);
			assert_int_equal(tutti_data_parallel_run(dp, load, folder), TUTTI_OK);
			train(dp, BEFORE, AFTER);
			assert_int_equal(tutti_data_parallel_run(dp, net_read, found), TUTTI_OK);
			net_stop(&replicas);
			for (int v = 0; v < NET_COUNT; v++)
				assert_float_equal(found[v], expected[v], 1e-5f);
		}
	}
	char command[64];
	snprintf(command, sizeof command, "rm -rf %s", folder);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_save)};

	test_limit(300);
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL) || checks_failed();
}
