/* What would break: Mirrored whose communicator has ranks of other processes (MultiWorkerMirrored):
 * other losses than in one process, a failure that the other processes do not hear of, a process
 * without items that is waited for, a process that is killed in the middle of a step. */
#include "tests/limit.h"
#include "tests/train/data_parallel/network.h"
#include "tests/train/ranks.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

enum { RANKS_MAX = 4, STEPS = 10, ITEMS = 22 };

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.05f, .momentum = 0.9f};

static struct network network;
static struct net_batch data;

/* One process, with threads ranks of processes * threads. */
struct worker {
	int process, processes, threads;
	const char *url;
	void (*fn)(const struct worker *worker, tutti_data_parallel *dp);
	float *values; /* of process 0: where all see them */
	tutti_comm *comms[RANKS_MAX];
};

struct joining {
	struct worker *worker;
	pthread_t thread;
	int replica;
};

static void *join(void *arg)
{
	const struct joining *joining = arg;
	struct worker *w = joining->worker;
	const tutti_config config = {.rank = w->process * w->threads + joining->replica,
				     .world_size = w->processes * w->threads,
				     .rendezvous = w->url,
				     .timeout_ms = 30000};

	CHECK(tutti_init(&w->comms[joining->replica], &config) == TUTTI_OK);
	return NULL;
}

static void join_all(struct worker *w)
{
	struct joining joining[RANKS_MAX];

	for (int r = 0; r < w->threads; r++) {
		joining[r] = (struct joining){.worker = w, .replica = r};
		if (pthread_create(&joining[r].thread, NULL, join, &joining[r]) != 0)
			abort();
	}
	for (int r = 0; r < w->threads; r++)
		pthread_join(joining[r].thread, NULL);
}

static int process_main(struct worker *w)
{
	tutti_data_parallel_config config = net_config(&network);
	const tutti_train_config train = {.deterministic = 1};
	tutti_data_parallel *dp;

	test_limit(200);
	join_all(w);
	if (checks_failed())
		return 1;
	config.model = net_model();
	config.train = &train;
	CHECK(tutti_mirrored_create(&dp, w->comms, w->threads, &config) == TUTTI_OK);
	if (checks_failed())
		return 1;
	tutti_model_destroy(config.model);
	CHECK(tutti_data_parallel_run(dp, net_init, NULL) == TUTTI_OK);
	w->fn(w, dp);
	tutti_data_parallel_destroy(dp);
	for (int r = 0; r < w->threads; r++)
		tutti_comm_destroy(w->comms[r]);
	return checks_failed() != 0;
}

/* Returns how many processes failed; killed ones are fine if may_be_killed. */
static int run(struct worker w, bool may_be_killed)
{
	char folder[] = "/tmp/tutti_mirrored_XXXXXX", url[64], command[64];
	int failed = 0, state;

	assert_non_null(mkdtemp(folder));
	snprintf(url, sizeof url, "file://%s/join", folder);
	w.url = url;
	fflush(NULL);
	for (w.process = 0; w.process < w.processes; w.process++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0)
			_exit(process_main(&w));
	}
	for (int p = 0; p < w.processes; p++) {
		assert_true(wait(&state) > 0);
		bool was_killed = WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL;
		failed += !(was_killed && may_be_killed) &&
			  !(WIFEXITED(state) && WEXITSTATUS(state) == 0);
	}
	snprintf(command, sizeof command, "rm -rf %s", folder);
	return failed + (system(command) != 0);
}

/* This process's part of the global batch, divided as ranks divide it. */
static tutti_data_parallel_batch part_of(const struct worker *w, int items)
{
	int first = items * w->process / w->processes;
	int last = items * (w->process + 1) / w->processes;

	return (tutti_data_parallel_batch){.inputs = data.inputs[first],
					   .targets = data.targets[first],
					   .items = (size_t)(last - first)};
}

static tutti_status step(const struct worker *w, tutti_data_parallel *dp, int items,
			 tutti_data_parallel_info *info)
{
	const tutti_data_parallel_batch batch = part_of(w, items);

	return tutti_data_parallel_step(dp, &batch, &sgd, 1, info);
}

static void train(const struct worker *w, tutti_data_parallel *dp)
{
	tutti_data_parallel_info info;
	double first = 0;

	for (int s = 0; s < STEPS; s++) {
		net_batch(&data, s, ITEMS);
		CHECK(step(w, dp, ITEMS, &info) == TUTTI_OK);
		CHECK(info.step.items == ITEMS);
		first = s == 0 ? info.loss : first;
	}
	CHECK(info.loss < first);
	/* One item: most processes have none. */
	CHECK(step(w, dp, 1, &info) == TUTTI_OK);
	CHECK(info.step.items == 1 && isfinite(info.loss));
	float values[NET_COUNT];
	CHECK(tutti_data_parallel_run(dp, net_read, w->process == 0 ? w->values : values) ==
	      TUTTI_OK);
}

static void test_same_values(void **state)
{
	static const int divisions[][2] = {{4, 1}, {2, 2}, {1, 4}};
	enum { N = sizeof divisions / sizeof *divisions };
	float *values = mmap(NULL, N * NET_COUNT * sizeof *values, PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(values != MAP_FAILED);
	for (int i = 0; i < N; i++) {
		struct worker w = {.processes = divisions[i][0],
				   .threads = divisions[i][1],
				   .fn = train,
				   .values = values + i * NET_COUNT};
		assert_int_equal(run(w, false), 0);
		/* Items are divided among processes, and then among threads: here by the same
		 * numbers as among four ranks, or with other roundings. */
		for (int v = 0; v < NET_COUNT; v++)
			assert_true(fabsf(w.values[v] - values[v]) <= 1e-5f);
	}
	munmap(values, N * NET_COUNT * sizeof *values);
}

static void fail_in_last(const struct worker *w, tutti_data_parallel *dp)
{
	tutti_data_parallel_info info;

	net_batch(&data, 0, ITEMS);
	if (w->process == w->processes - 1)
		network = (struct network){
			.fails_in = 3, .fails_at = w->threads - 1, .why = "The sample is damaged."};
	CHECK_ERROR(step(w, dp, ITEMS, &info), TUTTI_ERR_SYSTEM,
		    "Rank 3 could not compute its part in this step, so no rank updates: The "
		    "backward of replica 1 failed: The sample is damaged.");
	network.fails_in = 0;
	CHECK(step(w, dp, ITEMS, &info) == TUTTI_OK);
	CHECK_ERROR(step(w, dp, 0, &info), TUTTI_ERR_INVALID, "No rank had any items");
	CHECK(step(w, dp, ITEMS, &info) == TUTTI_OK);
}

static void test_failure_is_heard(void **state)
{
	assert_int_equal(
		run((struct worker){.processes = 2, .threads = 2, .fn = fail_in_last}, false), 0);
}

static void be_killed(const struct worker *w, tutti_data_parallel *dp)
{
	tutti_data_parallel_info info;

	net_batch(&data, 0, ITEMS);
	CHECK(step(w, dp, ITEMS, &info) == TUTTI_OK);
	network.is_killed = w->process == 1; /* in backward of replica 1, its other thread waits */
	CHECK_ERROR(step(w, dp, ITEMS, &info), TUTTI_ERR_PEER, "rank");
	CHECK_ERROR(step(w, dp, ITEMS, &info), TUTTI_ERR_PEER, "");
}

static void test_killed(void **state)
{
	assert_int_equal(run((struct worker){.processes = 2, .threads = 2, .fn = be_killed}, true),
			 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_values),
					   cmocka_unit_test(test_failure_is_heard),
					   cmocka_unit_test(test_killed)};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
