/* What would break: means of means, ranks with different results, and a rank that declares other
 * metrics and hangs. */
#include "tests/train/ranks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit.h"

enum { STEPS = 12, INTERVAL = 4, ROWS = STEPS / INTERVAL, ITEMS = 24, KINDS = 5, RANKS = 8 };

static const char *const names[KINDS] = {"loss", "tokens", "least", "most", "lr"};

/* One item of a step: its value and weight. */
struct item {
	double value, weight;
};

struct run {
	struct item items[STEPS][ITEMS];
	double values[RANKS][ROWS][KINDS];
};

static void declare_all(tutti_metrics *metrics)
{
	for (int k = 0; k < KINDS; k++)
		CHECK(tutti_metrics_declare(metrics, names[k], (tutti_metric_kind)k) == k);
}

/* Rank r has the items r, r + n, r + 2n ... of each step. */
static void add_step(tutti_metrics *metrics, const struct run *run, int step, int rank, int size)
{
	for (int i = rank; i < ITEMS; i += size) {
		struct item item = run->items[step][i];
		CHECK(tutti_metrics_add(metrics, 0, item.value * item.weight, item.weight) ==
		      TUTTI_OK);
		CHECK(tutti_metrics_add(metrics, 1, item.weight, 1) == TUTTI_OK);
		CHECK(tutti_metrics_add(metrics, 2, item.value, 1) == TUTTI_OK);
		CHECK(tutti_metrics_add(metrics, 3, item.value, 1) == TUTTI_OK);
	}
	CHECK(tutti_metrics_add(metrics, 4, rank == 0 ? 1.0 / (step + 1) : 77, 1) == TUTTI_OK);
}

static void train(tutti_comm *comm, void *arg)
{
	struct run *run = arg;
	const tutti_metrics_config config = {.interval = INTERVAL};
	int rank = tutti_rank(comm), size = tutti_size(comm);
	tutti_metrics *metrics = NULL;

	CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
	declare_all(metrics);
	for (int step = 0; step < STEPS; step++) {
		add_step(metrics, run, step, rank, size);
		uint64_t before = tutti_comm_sequence(comm);
		CHECK(tutti_metrics_step(metrics, step) == TUTTI_OK);
		/* The first one compares the tables, too. */
		if (step > 0)
			CHECK(tutti_comm_sequence(comm) - before == ((step + 1) % INTERVAL == 0));
		for (int k = 0; k < KINDS; k++)
			CHECK(tutti_metrics_value(metrics, k,
						  &run->values[rank][step / INTERVAL][k]) ==
			      TUTTI_OK);
	}
	tutti_metrics_destroy(metrics);
}

/* The plain twin: one loop over all items. */
static void expect(const struct run *run, int row, double *values)
{
	double sum = 0, weights = 0, least = INFINITY, most = -INFINITY;

	for (int step = row * INTERVAL; step < (row + 1) * INTERVAL; step++)
		for (int i = 0; i < ITEMS; i++) {
			struct item item = run->items[step][i];
			sum += item.value * item.weight;
			weights += item.weight;
			least = fmin(least, item.value);
			most = fmax(most, item.value);
		}
	values[0] = sum / weights;
	values[1] = weights;
	values[2] = least;
	values[3] = most;
	values[4] = 1.0 / ((row + 1) * INTERVAL);
}

static void check_run(const struct run *run, int size)
{
	double expected[KINDS];

	for (int row = 0; row < ROWS; row++) {
		expect(run, row, expected);
		for (int k = 0; k < KINDS; k++) {
			double value = run->values[0][row][k];
			assert_true(fabs(value - expected[k]) <= 1e-6 * fabs(expected[k]));
			for (int r = 1; r < size; r++)
				assert_memory_equal(&run->values[r][row][k], &value, sizeof value);
		}
	}
}

static void test_values(void **state)
{
	static struct run run;
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);

	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	for (uint64_t s = 0; s < STEPS; s++)
		for (uint64_t i = 0; i < ITEMS; i++) {
			/* Weights that differ much, so that a mean of means is far off. */
			run.items[s][i].value = (tutti_random(seed, s, 0, i) + 1.0) / 1e9;
			run.items[s][i].weight = 1 + tutti_random(seed, s, 1, i) % 1000;
		}
	const int sizes[] = {1, 2, 3, 4, 8};
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		assert_int_equal(ranks_as_threads(sizes[i], train, &run), 0);
		check_run(&run, sizes[i]);
	}
	assert_int_equal(ranks_as_processes(2, train, &run), 0);
}

static double value_of(const tutti_metrics *metrics, int metric)
{
	double value = -1;

	CHECK(tutti_metrics_value(metrics, metric, &value) == TUTTI_OK);
	return value;
}

/* No value is not zero, and NaN is kept, whichever rank has it. */
static void odd_values(tutti_comm *comm, void *arg)
{
	int rank = tutti_rank(comm), size = tutti_size(comm), culprit = *(int *)arg;
	tutti_metrics *metrics = NULL;

	CHECK(tutti_metrics_create(&metrics, comm, NULL) == TUTTI_OK);
	declare_all(metrics);
	CHECK(isnan(value_of(metrics, 1)));
	/* Only the last rank has data. The others make the same calls with 0 items, whose value
	 * does not count. */
	int has_data = rank == size - 1;
	for (int k = 0; k < KINDS; k++) {
		CHECK(tutti_metrics_add(metrics, k, has_data ? -3 : NAN, has_data) == TUTTI_OK);
		CHECK(tutti_metrics_add(metrics, k, NAN, 0) == TUTTI_OK);
	}
	CHECK(tutti_metrics_step(metrics, 0) == TUTTI_OK);
	for (int k = 0; k < KINDS; k++)
		CHECK(k == 4 && size > 1 ? isnan(value_of(metrics, k))
					 : value_of(metrics, k) == -3);
	for (int k = 0; k < KINDS; k++) {
		CHECK(tutti_metrics_add(metrics, k, 5, 1) == TUTTI_OK);
		CHECK(tutti_metrics_add(metrics, k, rank == culprit ? NAN : 6, 1) == TUTTI_OK);
		if (k != 4)
			CHECK(tutti_metrics_add(metrics, k, 7, 1) == TUTTI_OK);
	}
	CHECK(tutti_metrics_step(metrics, 1) == TUTTI_OK);
	for (int k = 0; k < KINDS; k++)
		CHECK(k == 4 && culprit ? value_of(metrics, k) == 6 : isnan(value_of(metrics, k)));
	CHECK(tutti_metrics_add(metrics, 2, rank == culprit ? -INFINITY : 1, 1) == TUTTI_OK);
	CHECK(tutti_metrics_step(metrics, 2) == TUTTI_OK);
	CHECK(isinf(value_of(metrics, 2)) && value_of(metrics, 2) < 0);
	CHECK(isnan(value_of(metrics, 1)));
	tutti_metrics_destroy(metrics);
}

static void test_odd_values(void **state)
{
	for (int n = 1; n <= 4; n++)
		for (int culprit = 0; culprit < n; culprit++)
			assert_int_equal(ranks_as_threads(n, odd_values, &culprit), 0);
}

/* How the last rank's table differs from the others'. */
struct difference {
	const char *name;
	tutti_metric_kind kind;
	int is_missing, has_more, interval;
	const char *message;
};

static void differ(tutti_comm *comm, void *arg)
{
	const struct difference *d = arg;
	const struct difference same = {.name = "loss", .kind = TUTTI_METRIC_MEAN, .interval = 2};
	const struct difference *how = tutti_rank(comm) == tutti_size(comm) - 1 ? d : &same;
	const tutti_metrics_config config = {.interval = how->interval};
	tutti_metrics *metrics = NULL;
	char message[256];

	CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "first", TUTTI_METRIC_SUM) == 0);
	if (!how->is_missing)
		CHECK(tutti_metrics_declare(metrics, how->name, how->kind) == 1);
	if (how->has_more)
		CHECK(tutti_metrics_declare(metrics, "more", TUTTI_METRIC_MAX) == 2);
	snprintf(message, sizeof message, d->message, tutti_size(comm) - 1);
	/* Again, for a caller that continues. The communicator still works. */
	for (int i = 0; i < 2; i++)
		CHECK_ERROR(tutti_metrics_step(metrics, 0), TUTTI_ERR_MISMATCH, message);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	tutti_metrics_destroy(metrics);
}

static void test_differences(void **state)
{
	struct difference cases[] = {
		{"lost", TUTTI_METRIC_MEAN, 0, 0, 2,
		 "rank %d has metric 'lost' (mean), but rank 0 has metric 'loss'"},
		{"loss", TUTTI_METRIC_LAST, 0, 0, 2,
		 "rank %d has metric 'loss' (last), but rank 0 has metric 'loss' (mean)"},
		{"loss", TUTTI_METRIC_MEAN, 1, 0, 2,
		 "rank %d has nothing more, but rank 0 has metric 'loss' (mean)"},
		{"loss", TUTTI_METRIC_MEAN, 0, 1, 2,
		 "rank %d has metric 'more' (max), but rank 0 has nothing more"},
		{"loss", TUTTI_METRIC_MEAN, 0, 0, 3,
		 "rank %d has a row every 3 steps, but rank 0 has a row every 2 steps"},
	};
	for (int n = 2; n <= 4; n++)
		for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
			assert_int_equal(ranks_as_threads(n, differ, &cases[i]), 0);
}

/* Ranks at different steps: reported once, and the next row is good. */
static void other_step(tutti_comm *comm, void *arg)
{
	int is_last = tutti_rank(comm) == tutti_size(comm) - 1;
	tutti_metrics *metrics = NULL;
	char message[128];

	CHECK(tutti_metrics_create(&metrics, comm, NULL) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "n", TUTTI_METRIC_SUM) == 0);
	CHECK(tutti_metrics_add(metrics, 0, 100, 1) == TUTTI_OK);
	snprintf(message, sizeof message, "rank %d is at step 8, but rank 0 is at step 7",
		 tutti_size(comm) - 1);
	CHECK_ERROR(tutti_metrics_step(metrics, 7 + is_last), TUTTI_ERR_MISMATCH, message);
	CHECK(tutti_metrics_add(metrics, 0, 1, 1) == TUTTI_OK);
	CHECK(tutti_metrics_step(metrics, 9) == TUTTI_OK);
	CHECK(value_of(metrics, 0) == tutti_size(comm));
	tutti_metrics_destroy(metrics);
}

/* A flush makes a row of the remaining steps, if there are any. */
static void flushes(tutti_comm *comm, void *arg)
{
	const tutti_metrics_config config = {.interval = 3};
	tutti_metrics *metrics = NULL;

	CHECK(tutti_metrics_create(&metrics, comm, &config) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "n", TUTTI_METRIC_SUM) == 0);
	CHECK(tutti_metrics_flush(metrics) == TUTTI_OK);
	for (int step = 0; step < 5; step++) {
		CHECK(tutti_metrics_add(metrics, 0, 1, 1) == TUTTI_OK);
		CHECK(tutti_metrics_step(metrics, step) == TUTTI_OK);
	}
	CHECK(value_of(metrics, 0) == 3 * tutti_size(comm));
	for (int i = 0; i < 2; i++) {
		CHECK(tutti_metrics_flush(metrics) == TUTTI_OK);
		CHECK(value_of(metrics, 0) == 2 * tutti_size(comm));
	}
	tutti_metrics_destroy(metrics);
}

static void bad_names(tutti_metrics *metrics)
{
	const char *bad[] = {
		NULL, "", "\xff", "a\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"};
	char name[200];

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK(tutti_metrics_declare(metrics, bad[i], TUTTI_METRIC_SUM) == -1);
		CHECK_MESSAGE("1 to 127 bytes of UTF-8");
	}
	memset(name, 'x', sizeof name);
	name[128] = '\0';
	CHECK(tutti_metrics_declare(metrics, name, TUTTI_METRIC_SUM) == -1);
	CHECK_MESSAGE("1 to 127 bytes");
	name[127] = '\0';
	CHECK(tutti_metrics_declare(metrics, name, TUTTI_METRIC_SUM) == 0);
	CHECK(tutti_metrics_declare(metrics, name, TUTTI_METRIC_MAX) == -1);
	CHECK_MESSAGE("Metric 0 already has the name");
	CHECK(tutti_metrics_declare(metrics, "time", TUTTI_METRIC_SUM) == -1);
	CHECK_MESSAGE("has a 'time' already");
	CHECK(tutti_metrics_declare(metrics, "a", (tutti_metric_kind)5) == -1);
	CHECK_MESSAGE("no metric kind 5");
	for (int m = 1; m < 1024; m++) {
		snprintf(name, sizeof name, "\xe2\x82\xac %d", m);
		CHECK(tutti_metrics_declare(metrics, name, TUTTI_METRIC_SUM) == m);
	}
	CHECK(tutti_metrics_declare(metrics, "a", TUTTI_METRIC_SUM) == -1);
	CHECK_MESSAGE("there are already 1024 metrics");
}

static void misuse(tutti_comm *comm, void *arg)
{
	tutti_metrics *metrics = NULL;
	double value;

	CHECK_ERROR(tutti_metrics_create(NULL, comm, NULL), TUTTI_ERR_INVALID, "not NULL");
	CHECK_ERROR(tutti_metrics_create(&metrics, NULL, NULL), TUTTI_ERR_INVALID, "not NULL");
	/* A bad config on one rank fails all ranks. */
	int is_first = tutti_rank(comm) == 0, is_last = tutti_rank(comm) == tutti_size(comm) - 1;
	const tutti_metrics_config bad[] = {{.interval = -is_last},
					    {.formats = 8u * (unsigned)is_first},
					    {.reserved = {(uint64_t)is_last}}};
	const char *const messages[] = {"interval is -1", "0x8", "reserved is not zero"};
	for (int i = 0; i < 3; i++)
		CHECK_ERROR(tutti_metrics_create(&metrics, comm, &bad[i]), TUTTI_ERR_INVALID,
			    messages[i]);
	CHECK(metrics == NULL);
	/* Ranks without files do not check formats. */
	const tutti_metrics_config elsewhere = {.formats = is_first ? 0 : 0xff};
	CHECK(tutti_metrics_create(&metrics, comm, &elsewhere) == TUTTI_OK);
	bad_names(metrics);
	CHECK_ERROR(tutti_metrics_add(NULL, 0, 1, 1), TUTTI_ERR_INVALID, "not NULL");
	CHECK_ERROR(tutti_metrics_add(metrics, 1024, 1, 1), TUTTI_ERR_INVALID,
		    "no metric 1024 among 1024");
	CHECK_ERROR(tutti_metrics_add(metrics, 1, 1, -2), TUTTI_ERR_INVALID, "got -2 items");
	CHECK_ERROR(tutti_metrics_add(metrics, 1, 1, NAN), TUTTI_ERR_INVALID, "got nan items");
	CHECK_ERROR(tutti_metrics_add(metrics, 1, 1, INFINITY), TUTTI_ERR_INVALID, "got inf items");
	CHECK_ERROR(tutti_metrics_value(metrics, -1, &value), TUTTI_ERR_INVALID, "no metric -1");
	CHECK_ERROR(tutti_metrics_value(metrics, 0, NULL), TUTTI_ERR_INVALID, "not NULL");
	CHECK_ERROR(tutti_metrics_step(NULL, 0), TUTTI_ERR_INVALID, "not NULL");
	CHECK_ERROR(tutti_metrics_flush(NULL), TUTTI_ERR_INVALID, "not NULL");
	CHECK(tutti_metrics_step(metrics, -5) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "late", TUTTI_METRIC_SUM) == -1);
	CHECK_MESSAGE("before the first tutti_metrics_step");
	tutti_metrics_destroy(metrics);
	tutti_metrics_destroy(NULL);
}

/* What fails is the communicator, and nothing is left open. */
static void aborted(tutti_comm *comm, void *arg)
{
	tutti_metrics *metrics = NULL, *more = NULL;

	CHECK(tutti_metrics_create(&metrics, comm, NULL) == TUTTI_OK);
	CHECK(tutti_metrics_declare(metrics, "n", TUTTI_METRIC_SUM) == 0);
	CHECK(tutti_metrics_step(metrics, 0) == TUTTI_OK);
	CHECK(tutti_comm_abort(comm) == TUTTI_OK);
	CHECK(tutti_metrics_step(metrics, 1) == TUTTI_ERR_ABORTED);
	CHECK(tutti_metrics_flush(metrics) == TUTTI_ERR_ABORTED);
	CHECK(tutti_metrics_create(&more, comm, NULL) == TUTTI_ERR_ABORTED && more == NULL);
	tutti_metrics_destroy(metrics);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values),      cmocka_unit_test(test_odd_values),
		cmocka_unit_test(test_differences), RANKS_TEST(other_step, 2, 3),
		RANKS_TEST(flushes, 1, 3),          RANKS_TEST(misuse, 1, 3),
		RANKS_TEST(aborted, 1, 1),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
