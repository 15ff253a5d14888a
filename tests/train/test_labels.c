/* What would break: traces that do not say which unit or parameters of a model a call was for, or
 * which of several communicators it was on. */
#include "tests/train/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

static const int64_t eight = 8;

/* Two units, the first one of two parameters. */
static tutti_trainer *make(tutti_comm *comm, const tutti_train_config *config)
{
	static const char *const params[] = {"embed.w", "embed.b", "head.w"};
	tutti_model *model;
	tutti_trainer *t = NULL;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "embed") == 0 && tutti_model_unit(model, "head") == 1);
	for (int p = 0; p < 3; p++)
		CHECK(tutti_model_param(model, p / 2, params[p], 1, &eight, 0) == p);
	CHECK(tutti_trainer_create(&t, model, comm, config) == TUTTI_OK);
	tutti_model_destroy(model);
	return t;
}

static void one_step(tutti_trainer *t)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 1};

	CHECK(units_micro_batch(t, TUTTI_PASS_LAST, 1, 2) == TUTTI_OK);
	CHECK(tutti_step(t, &sgd, 1, NULL) == TUTTI_OK);
}

/* Each of words is in the trace of this process. */
static void expect_in_trace(const char *const *words)
{
	char path[] = "/tmp/tutti-labels-XXXXXX", *text = calloc(1, 1 << 22);
	int fd = mkstemp(path);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

	CHECK(file && text && tutti_trace_dump(path) == TUTTI_OK);
	file = file ? freopen(path, "r", file) : NULL;
	if (file && text)
		text[fread(text, 1, (1 << 22) - 1, file)] = '\0';
	for (; *words; words++) {
		if (!strstr(text, *words))
			printf("no %s\n", *words);
		CHECK(strstr(text, *words));
	}
	fclose(file);
	unlink(path);
	free(text);
}

struct scene {
	tutti_train_config config;
	const char *words[8];
};

static void train(tutti_comm *world, void *arg)
{
	const struct scene *scene = arg;
	tutti_config named = {.name = "model"};
	tutti_comm *comm;

	CHECK(tutti_comm_split(world, 0, tutti_rank(world), &named, &comm) == TUTTI_OK);
	tutti_trainer *t = make(comm, &scene->config);
	one_step(t);
	if (tutti_rank(comm) == 0)
		expect_in_trace(scene->words);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	tutti_trainer_destroy(t);
	tutti_comm_destroy(comm);
}

static void test_units(void **state)
{
	struct scene scene = {{.strategy = TUTTI_FSDP},
			      {"\"label\":\"unit embed\"", "\"label\":\"unit head\"",
			       ",\"unit head\"]", " model (", "\"title\":\"model\"", NULL}};

	assert_int_equal(ranks_as_threads(2, train, &scene), 0);
}

static void test_parameters(void **state)
{
	struct scene scene = {{.strategy = TUTTI_DDP},
			      {"\"label\":\"parameters head.w to embed.w\"", NULL}};
	struct scene single = {{.strategy = TUTTI_ZERO1, .bucket_bytes = 1},
			       {"\"label\":\"parameter head.w\"", NULL}};

	assert_int_equal(ranks_as_threads(2, train, &scene), 0);
	assert_int_equal(ranks_as_threads(2, train, &single), 0);
}

/* Of calls that block, that are in a group, and of messages. */
static void call_all(tutti_comm *comm, void *arg)
{
	static const char *const words[] = {"\"label\":\"blocks\"", "\"label\":\"in a group\"",
					    "\"label\":\"to the next\"", NULL};
	int other = !tutti_rank(comm), x = 1, y;
	tutti_call blocks = {.label = "blocks"}, grouped = {.label = "in a group"},
		   next = {.label = "to the next"};

	CHECK(tutti_all_reduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, comm, &blocks) == TUTTI_OK);
	CHECK(y == 2 && tutti_group_begin() == TUTTI_OK);
	CHECK(tutti_all_reduce(&x, &y, 1, TUTTI_I32, TUTTI_SUM, comm, &grouped) == TUTTI_OK);
	CHECK(tutti_send(&x, 1, TUTTI_I32, other, comm, &next) == TUTTI_OK);
	CHECK(tutti_recv(&x, 1, TUTTI_I32, other, comm, NULL) == TUTTI_OK);
	CHECK(tutti_group_end(NULL) == TUTTI_OK);
	if (tutti_rank(comm) == 0)
		expect_in_trace(words);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_units),
		cmocka_unit_test(test_parameters),
		RANKS_TEST(call_all, 2, 2),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
