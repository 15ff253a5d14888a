/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: an exported file in which other programs read other values than the trainer
 * has. Another reader decodes the file; the test expects the master copy, rounded here. */
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

enum { SAMPLES = 8, STEPS = 3, BUFFER = 3, TEXT_BYTES = 100000 };

static const int64_t table_shape[2] = {3, 4};
#define TABLE_NAME "größe"

struct job {
	tutti_train_config config;
	int ranks;
	char path[200];
	float values[TOY_PARAMS + 1][TOY_MAX]; /* of the toy, and a table that is never trained */
};

static size_t count_of(int param)
{
	return param < TOY_PARAMS ? toy_count(param) : (size_t)(table_shape[0] * table_shape[1]);
}

static void export(tutti_comm *comm, void *arg)
{
	struct job *job = arg;
	struct toy toy;
	double buffer[BUFFER] = {0.1, -2e300, 3};
	float values[TOY_MAX];

	toy_register(&toy, comm, 0);
	CHECK(tutti_model_param(toy.model, 1, TABLE_NAME, 2, table_shape, TUTTI_PARAM_FROZEN) ==
	      TOY_PARAMS);
	CHECK(tutti_model_buffer(toy.model, "buffer", TUTTI_F64, BUFFER, buffer) == 0);
	toy_train(&toy, comm, &job->config);
	CHECK(tutti_param_init_normal(toy.trainer, TOY_PARAMS, 0, 3) == TUTTI_OK);
	for (int step = 0; step < STEPS; step++) {
		toy_micro_batch(&toy, TUTTI_PASS_LAST, step, SAMPLES);
		CHECK(tutti_step(toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
	}
	CHECK(tutti_export_safetensors(toy.trainer, job->path) == TUTTI_OK);
	for (int p = 0; p <= TOY_PARAMS; p++) {
		CHECK(tutti_param_read(toy.trainer, p, 0, count_of(p), values) == TUTTI_OK);
		if (toy.rank == 0)
			memcpy(job->values[p], values, count_of(p) * sizeof *values);
	}
	toy_destroy(&toy);
}

static const struct format {
	tutti_dtype dtype;
	const char *name;
	int bits, least; /* bits of the mantissa, and the smallest exponent */
} formats[] = {
	{TUTTI_F32, "F32", 23, -126}, {TUTTI_BF16, "BF16", 7, -126}, {TUTTI_F16, "F16", 10, -14}};

/* Rounds to the nearest, ties to even, as rint does. */
static double rounded(double value, const struct format *format)
{
	int exponent;

	frexp(value, &exponent);
	exponent--;
	if (exponent < format->least)
		exponent = format->least;
	double unit = ldexp(1, exponent - format->bits);
	return rint(value / unit) * unit;
}

/* Numbers behind a line's head, all of them; the head is JSON's name, type and shape. */
static const char *numbers_of(const char *text, const char *head)
{
	const char *line = strstr(text, head);

	if (!line)
		fail_msg("'%s' is not in '%s'", head, text);
	return line + strlen(head);
}

static void assert_numbers(const char *text, const char *head, const double *expected, size_t n)
{
	const char *next = numbers_of(text, head);

	for (size_t i = 0; i < n; i++) {
		char *end;
		double got = strtod(next, &end);
		if (end == next || !(got == expected[i]))
			fail_msg("%s: element %zu is %.17g, not %.17g", head, i, got, expected[i]);
		next = end;
	}
	assert_int_equal(*next, '\n');
}

/* Returns how many values had to be rounded. */
static int assert_exported(const struct job *job, const struct format *format, const char *text)
{
	const double buffer[BUFFER] = {0.1, -2e300, 3};
	double expected[TOY_MAX];
	char head[100];
	int changed = 0;

	for (int p = 0; p <= TOY_PARAMS; p++) {
		for (size_t i = 0; i < count_of(p); i++) {
			double value = (double)job->values[p][i];
			expected[i] = rounded(value, format);
			changed += expected[i] != value;
		}
		if (p < TOY_PARAMS)
			snprintf(head, sizeof head, "\"param.%d\" %s [%zu]:", p, format->name,
				 toy_count(p));
		else
			snprintf(head, sizeof head,
				 "\"gr\\u00f6\\u00dfe\" %s [3, 4]:", format->name);
		assert_numbers(text, head, expected, count_of(p));
	}
	assert_numbers(text, "\"buffer\" F64 [3]:", buffer, BUFFER);
	return changed;
}

static void read_back(const struct job *job, char text[TEXT_BYTES])
{
	const char *source = getenv("SOURCE_DIR");
	char command[600];

	snprintf(command, sizeof command,
		 "python3 '%s/tests/train/checkpoint/safetensors.py' values '%s' && echo done",
		 source ? source : ".", job->path);
	FILE *pipe = popen(command, "r");
	assert_non_null(pipe);
	text[fread(text, 1, TEXT_BYTES - 1, pipe)] = '\0';
	assert_int_equal(pclose(pipe), 0);
	assert_non_null(strstr(text, "\ndone\n"));
}

static void export_everywhere(const char *dir, const struct format *format, struct job *first)
{
	static const struct {
		tutti_strategy strategy;
		int ranks, shard_size;
	} jobs[] = {{TUTTI_DDP, 1, 0},
		    {TUTTI_ZERO1, 2, 0},
		    {TUTTI_ZERO2, 3, 0},
		    {TUTTI_FSDP, 3, 0},
		    {TUTTI_HSDP, 4, 2}};
	static char text[TEXT_BYTES];

	for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++) {
		struct job job = {.config = {.strategy = jobs[j].strategy,
					     .shard_size = jobs[j].shard_size,
					     .param_dtype = format->dtype,
					     .deterministic = 1,
					     .seed = 7}};
		snprintf(job.path, sizeof job.path, "%s/model.safetensors", dir);
		assert_int_equal(ranks_as_threads(jobs[j].ranks, export, &job), 0);
		read_back(&job, text);
		int changed = assert_exported(&job, format, text);
		assert_true(format->dtype == TUTTI_F32 ? changed == 0 : changed > 100);
		/* The toy's training is the same everywhere. */
		if (j == 0)
			*first = job;
		assert_memory_equal(job.values, first->values, sizeof job.values);
	}
}

static void test_read_by_python(void **state)
{
	struct job first;
	char dir[64];

	if (!saved_has_python())
		skip();
	saved_folder(dir);
	for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
		export_everywhere(dir, &formats[f], &first);
	saved_remove(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_read_by_python)};

	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
