/* What would break: hooks that wait for communication. Rank 1 stays in the last unit's backward
 * until rank 0 has computed the one before. The recorded trace of rank 0 must show the last unit's
 * gradient in flight, and with FSDP also the values of the next unit, from before that computation
 * to after it. With HSDP the same holds in a shard group, while the other group has not begun
 * backward. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

enum { MARK_ELEMENTS = 4096 };

struct overlap {
	tutti_strategy strategy;
	int ranks;
	const char *names[2]; /* of collectives that must be in flight */
	sem_t computed;
	char trace[64];
};

/* A mark in the trace: a call on a communicator of this rank alone. */
static void mark(tutti_comm *alone)
{
	static float values[MARK_ELEMENTS];
	CHECK(tutti_broadcast(values, values, MARK_ELEMENTS, TUTTI_F32, 0, alone, NULL) ==
	      TUTTI_OK);
}

static void wait_for(sem_t *sem)
{
	struct timespec deadline;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 20;
	while (sem_timedwait(sem, &deadline) != 0)
		if (errno != EINTR) {
			check_failed(__FILE__, __LINE__, "rank 0 computes unit 2");
			return;
		}
}

static void backward(struct toy *toy, int unit)
{
	toy_backward(toy, unit, toy->rank, toy->rank + 1);
}

static void train(tutti_comm *comm, void *arg)
{
	struct overlap *o = arg;
	const tutti_train_config config = {
		.strategy = o->strategy, .bucket_bytes = 1, .shard_size = 2};
	struct toy toy;
	tutti_comm *alone;

	toy_make(&toy, comm, &config);
	CHECK(tutti_init_all(&alone, 1, NULL) == TUTTI_OK);
	tutti_trainer *t = toy.trainer;
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, TOY_UNITS) == TUTTI_OK);
	if (toy.rank > 1) /* in another shard group, whose calls are not rank 0's */
		wait_for(&o->computed);
	for (int u = TOY_UNITS - 1; u >= 0; u--) {
		CHECK(tutti_backward_begin(t, u) == TUTTI_OK);
		if (u == 2 && toy.rank == 0)
			mark(alone);
		backward(&toy, u);
		if (u == 2 && toy.rank == 0) {
			mark(alone);
			for (int r = 1; r < toy.size; r++)
				sem_post(&o->computed);
		}
		if (u == 3 && toy.rank == 1)
			wait_for(&o->computed);
		CHECK(tutti_backward_end(t, u) == TUTTI_OK);
	}
	CHECK(tutti_grads_finish(t, NULL) == TUTTI_OK);
	if (toy.rank == 0)
		CHECK(tutti_trace_dump(o->trace) == TUTTI_OK);
	toy_destroy(&toy);
	tutti_comm_destroy(alone);
}

static const char *value_of(const char *line, const char *key)
{
	const char *found = strstr(line, key);
	return found ? found + strlen(key) : "";
}

static int is_begin(const char *line, const char *name)
{
	char named[64];

	snprintf(named, sizeof named, "\"name\":\"%s\"", name);
	return strstr(line, "\"ph\":\"b\"") && strstr(line, named) && strstr(line, "\"rank\":0,");
}

/* The end of the asynchronous call with this begin line. */
static double end_of(const char *text, const char *begin)
{
	static const char id[] = "\"id2\":{\"local\":\"";
	const char *from = value_of(begin, id);

	const char *end = strstr(text, "\"ph\":\"e\"");
	while (end && strncmp(value_of(end, id), from, strcspn(from, "\"") + 1) != 0)
		end = strstr(end + 1, "\"ph\":\"e\"");
	return end ? strtod(value_of(end, "\"ts\":"), NULL) : -1;
}

/* A call of that name was in flight from begin to end. */
static int is_under_way(const char *text, const char *name, double begin, double end)
{
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line++;
		char copy[1024];
		snprintf(copy, sizeof copy, "%.*s", (int)strcspn(line, "\n"), line);
		if (is_begin(copy, name) && strtod(value_of(copy, "\"ts\":"), NULL) < begin &&
		    end_of(text, line) > end)
			return 1;
	}
	return 0;
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "r");
	assert_non_null(file);
	char *text = calloc(1, 4 << 20);
	assert_non_null(text);
	size_t bytes = fread(text, 1, (4 << 20) - 1, file);
	fclose(file);
	assert_true(bytes > 0);
	return text;
}

static void judge(const struct overlap *o)
{
	char *text = read_file(o->trace);
	char wanted[64];

	snprintf(wanted, sizeof wanted, "\"count\":%d", MARK_ELEMENTS);
	const char *first = strstr(text, wanted);
	assert_non_null(first);
	const char *second = strstr(first + 1, wanted);
	assert_non_null(second);
	while (strncmp(first, "\"ph\"", 4) != 0)
		first--;
	while (strncmp(second, "\"ph\"", 4) != 0)
		second--;
	double begin = strtod(value_of(first, "\"ts\":"), NULL);
	double end = strtod(value_of(second, "\"ts\":"), NULL);
	assert_true(begin < end);
	for (int i = 0; i < 2 && o->names[i]; i++)
		if (!is_under_way(text, o->names[i], begin, end))
			fail_msg("strategy %d: no %s is in flight while unit 2 computes; see %s",
				 (int)o->strategy, o->names[i], o->trace);
	free(text);
	remove(o->trace);
}

static void test_overlap(void **state)
{
	struct overlap cases[] = {
		{.strategy = TUTTI_DDP, .ranks = 2, .names = {"all_reduce"}},
		{.strategy = TUTTI_ZERO1, .ranks = 2, .names = {"reduce_scatterv"}},
		{.strategy = TUTTI_ZERO2, .ranks = 2, .names = {"reduce_scatterv"}},
		{.strategy = TUTTI_FSDP, .ranks = 2, .names = {"reduce_scatterv", "all_gatherv"}},
		{.strategy = TUTTI_HSDP, .ranks = 4, .names = {"reduce_scatterv", "all_gatherv"}},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct overlap *o = &cases[i];
		snprintf(o->trace, sizeof o->trace, "overlap.%d.%zu.json", (int)getpid(), i);
		sem_init(&o->computed, 0, 0);
		assert_int_equal(ranks_as_threads(o->ranks, train, o), 0);
		sem_destroy(&o->computed);
		judge(o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_overlap)};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
