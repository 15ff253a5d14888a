/* What would break: a function that fails in one thread, after which another one waits for ever,
 * a part of the model is updated, or no further step is possible; and a failure without a name. */
#include "tests/limit.h"
#include "tests/train/data_parallel/network.h"
#include "tests/train/ranks.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit.h"

enum { ITEMS = 9 };

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.05f, .momentum = 0.9f};

static struct network network;
static struct net_batch data;
static const tutti_data_parallel_batch batch = {
	.inputs = data.inputs, .targets = data.targets, .items = ITEMS};
static struct net_replicas replicas;

static tutti_data_parallel *start(bool is_mirrored, int n)
{
	tutti_data_parallel_config c = net_config(&network);

	memset(&network, 0, sizeof network);
	net_batch(&data, 0, NET_ITEMS);
	net_start(&replicas, is_mirrored, n, &c);
	assert_int_equal(tutti_data_parallel_run(replicas.dp, net_init, NULL), TUTTI_OK);
	return replicas.dp;
}

static void must_step(tutti_data_parallel *dp)
{
	if (tutti_data_parallel_step(dp, &batch, &sgd, 1, NULL) != TUTTI_OK)
		fail_msg("%s", tutti_comm_error(NULL));
}

/* Two steps, with steps between them that fail; then the values. */
static void train(tutti_data_parallel *dp, bool fails, int n, float values[NET_COUNT])
{
	static const char *const names[] = {"forward", "loss", "backward"};
	char expected[200];

	must_step(dp);
	for (int where = 1; fails && where <= 3; where++)
		for (int has_reason = 0; has_reason < 2; has_reason++) {
			network.fails_in = where;
			network.fails_at = where == 2 ? 0 : n - 1; /* the loss: also gathered */
			network.why = has_reason ? "The sample is damaged." : NULL;
			snprintf(expected, sizeof expected, "The %s of replica %d failed: %s",
				 names[where - 1], network.fails_at,
				 has_reason ? network.why
					    : "it gave no reason (tutti_set_error stores one).");
			CHECK_ERROR(tutti_data_parallel_step(dp, &batch, &sgd, 1, NULL),
				    TUTTI_ERR_SYSTEM, expected);
			network.fails_in = 0;
		}
	must_step(dp);
	assert_int_equal(tutti_data_parallel_run(dp, net_read, values), TUTTI_OK);
}

static void test_functions_fail(void **state)
{
	static const int sizes[] = {1, 2, 4};
	float with[NET_COUNT], without[NET_COUNT];

	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++)
		for (int i = 0; i < 3; i++) {
			tutti_data_parallel *dp = start(is_mirrored, sizes[i]);
			train(dp, false, sizes[i], without);
			net_stop(&replicas);
			dp = start(is_mirrored, sizes[i]);
			train(dp, true, sizes[i], with);
			net_stop(&replicas);
			assert_memory_equal(with, without, sizeof with);
		}
}

/* All say what happened to the others, too. */
static void test_messages(void **state)
{
	tutti_data_parallel *dp = start(false, 2);
	network = (struct network){.fails_in = 1, .fails_at = 1, .why = "No."};
	CHECK_ERROR(tutti_data_parallel_step(dp, &batch, &sgd, 1, NULL), TUTTI_ERR_SYSTEM,
		    "Nothing was updated in this step. The forward of replica 1 failed: No.");
	net_stop(&replicas);
	dp = start(true, 2);
	network = (struct network){.fails_in = 1, .fails_at = 1, .why = "No."};
	CHECK_ERROR(tutti_data_parallel_step(dp, &batch, &sgd, 1, NULL), TUTTI_ERR_SYSTEM,
		    "Rank 1 could not compute its part in this step, so no rank updates: The "
		    "forward of replica 1 failed: No.");
	net_stop(&replicas);
}

/* An infinite gradient of one replica: all skip, and the message says why. */
static void test_skipped(void **state)
{
	float before[NET_COUNT], after[NET_COUNT];
	tutti_data_parallel_info info;

	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		tutti_data_parallel *dp = start(is_mirrored, 2);
		assert_int_equal(tutti_data_parallel_run(dp, net_read, before), TUTTI_OK);
		network.is_infinite = 1;
		assert_int_equal(tutti_data_parallel_step(dp, &batch, &sgd, 1, &info), TUTTI_OK);
		assert_int_equal(info.step.skipped, 1);
		CHECK_MESSAGE("Step 1 was skipped on all ranks: the gradient of parameter '");
		network.is_infinite = 0;
		assert_int_equal(tutti_data_parallel_run(dp, net_read, after), TUTTI_OK);
		assert_memory_equal(before, after, sizeof before);
		assert_int_equal(tutti_data_parallel_step(dp, &batch, &sgd, 1, &info), TUTTI_OK);
		assert_int_equal(info.step.skipped, 0);
		net_stop(&replicas);
	}
}

/* An evaluation that fails, and a call from a function. */
static void test_forward_fails(void **state)
{
	float outputs[ITEMS][NET_OUT];
	const tutti_data_parallel_batch wanted = {
		.inputs = data.inputs, .items = ITEMS, .outputs = outputs[0]};

	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		tutti_data_parallel *dp = start(is_mirrored, 2);
		network = (struct network){.fails_in = 1, .fails_at = 1, .why = "No."};
		CHECK_ERROR(tutti_data_parallel_forward(dp, &wanted), TUTTI_ERR_SYSTEM,
			    "The forward of replica 1 failed: No.");
		network = (struct network){.dp = dp};
		CHECK_ERROR(tutti_data_parallel_forward(dp, &wanted), TUTTI_ERR_INVALID,
			    "The forward of replica 0 failed: tutti_data_parallel_stats: another "
			    "call is under way");
		network.dp = NULL;
		assert_int_equal(tutti_data_parallel_forward(dp, &wanted), TUTTI_OK);
		net_stop(&replicas);
	}
}

static tutti_status fail_in_one(tutti_trainer *trainer, int replica, void *arg)
{
	assert_non_null(trainer);
	return replica == 1 ? tutti_set_error(TUTTI_ERR_INVALID, "Not here.") : TUTTI_OK;
}

static void test_run_fails(void **state)
{
	tutti_data_parallel *dp = start(true, 4);
	CHECK_ERROR(tutti_data_parallel_run(dp, fail_in_one, NULL), TUTTI_ERR_INVALID, "Not here.");
	must_step(dp);
	net_stop(&replicas);
	dp = start(false, 4); /* replica 1 has no trainer there */
	assert_int_equal(tutti_data_parallel_run(dp, fail_in_one, NULL), TUTTI_OK);
	net_stop(&replicas);
}

/* An abort from elsewhere ends the step in all threads, and destroy after it. */
static void test_abort(void **state)
{
	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		tutti_data_parallel *dp = start(is_mirrored, 2);
		must_step(dp);
		assert_int_equal(tutti_comm_abort(replicas.comms[1]), TUTTI_OK);
		CHECK_ERROR(tutti_data_parallel_step(dp, &batch, &sgd, 1, NULL), TUTTI_ERR_ABORTED,
			    "tutti_comm_abort");
		net_stop(&replicas);
	}
}

/* How many threads of this process have a name that begins so. */
static int threads_named(const char *begin)
{
	DIR *tasks = opendir("/proc/self/task");
	int found = 0;

	assert_non_null(tasks);
	for (const struct dirent *task; (task = readdir(tasks));) {
		char path[300], name[32] = "";
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
		FILE *file = fopen(path, "r");
		if (!file)
			continue;
		found += fgets(name, sizeof name, file) && strncmp(name, begin, strlen(begin)) == 0;
		fclose(file);
	}
	closedir(tasks);
	return found;
}

static void test_threads(void **state)
{
	tutti_data_parallel *dp = start(false, 4);
	must_step(dp);
	assert_int_equal(threads_named("tutti-rep-"), 3);
	assert_int_equal(threads_named("tutti-rep-3\n"), 1);
	net_stop(&replicas);
	assert_int_equal(threads_named("tutti-rep-"), 0);
	dp = start(true, 1);
	assert_int_equal(threads_named("tutti-rep-"), 0);
	net_stop(&replicas);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions_fail), cmocka_unit_test(test_messages),
		cmocka_unit_test(test_skipped),        cmocka_unit_test(test_forward_fails),
		cmocka_unit_test(test_run_fails),      cmocka_unit_test(test_abort),
		cmocka_unit_test(test_threads),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL) || checks_failed();
}
