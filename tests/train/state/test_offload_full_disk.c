/* What would break: a rank whose disk has no room for its optimizer state, and whose others wait
 * for it, or learn that it failed and not why. All ranks return the same error, which names the
 * rank and says what is full. Once there is room they train on, with the values of an undisturbed
 * run. */
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/unit.h"

enum { RANKS = 3, FULL_RANK = 1, SAMPLES = 6, STEPS = 3 };

/* The ranks are threads, and a rank's own thread asks for the room. */
static _Thread_local bool is_full;

int __real_posix_fallocate(int fd, off_t at, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t at, off_t bytes);

int __wrap_posix_fallocate(int fd, off_t at, off_t bytes)
{
	return is_full ? ENOSPC : __real_posix_fallocate(fd, at, bytes);
}

static void check_full(tutti_status status, const char *start)
{
	CHECK_ERROR(status, TUTTI_ERR_SYSTEM, "Taking room in '");
	CHECK_MESSAGE("No space left on device (errno 28): on host '");
	CHECK_MESSAGE("' this disk is full: make room there, or choose another folder.");
	CHECK(strncmp(tutti_comm_error(NULL), start, strlen(start)) == 0);
}

static void train(tutti_comm *comm, const tutti_train_config *config, bool is_disturbed,
		  float values[TOY_PARAMS][TOY_MAX])
{
	struct toy toy;

	toy_make(&toy, comm, config);
	is_full = is_disturbed && toy.rank == FULL_RANK;
	for (int i = 0; i < 2 && is_disturbed; i++)
		check_full(toy_step(&toy, 0, SAMPLES),
			   "Rank 1 could not make its optimizer state in this step, "
			   "so no rank updates: ");
	is_full = false;
	for (int i = 0; i < STEPS; i++)
		CHECK(toy_step(&toy, i, SAMPLES) == TUTTI_OK);
	toy_read(toy.trainer, values);
	toy_destroy(&toy);
}

/* Optimizer state is made by the first step. */
static void first_step(tutti_comm *comm, void *arg)
{
	float expected[TOY_PARAMS][TOY_MAX], values[TOY_PARAMS][TOY_MAX];

	train(comm, arg, false, expected);
	train(comm, arg, true, values);
	CHECK(memcmp(values, expected, sizeof values) == 0);
}

static void test_first_step(void **state)
{
	static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2,
						    TUTTI_FSDP};

	for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
		tutti_train_config config = {
			.seed = 7, .strategy = strategies[s], .offload_dir = saved_dir};
		assert_int_equal(ranks_as_threads(RANKS, first_step, &config), 0);
	}
}

/* The others learn of it at the next average. */
static void local_sgd(tutti_comm *comm, void *arg)
{
	bool is_rank = tutti_rank(comm) == FULL_RANK;
	struct toy toy;

	toy_make(&toy, comm, arg);
	is_full = is_rank;
	tutti_status status = toy_step(&toy, 0, SAMPLES);
	is_full = false;
	if (is_rank)
		check_full(status, "Rank 1 could not make its optimizer state in this step, so it "
				   "does not update: ");
	else
		CHECK(status == TUTTI_OK);
	check_full(toy_step(&toy, 1, SAMPLES),
		   "Rank 1 could not make its optimizer state in a step since the "
		   "last average, so ranks do not average: ");
	CHECK(toy_step(&toy, 2, SAMPLES) == TUTTI_OK && toy_step(&toy, 3, SAMPLES) == TUTTI_OK);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_destroy(&toy);
}

static void test_local_sgd(void **state)
{
	tutti_train_config config = {
		.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 2, .offload_dir = saved_dir};

	assert_int_equal(ranks_as_threads(RANKS, local_sgd, &config), 0);
}

/* A trainer that takes over another's values makes the same state. */
static void take_over(tutti_comm *comm, void *arg)
{
	struct toy before, after;
	int64_t steps;

	toy_make(&before, comm, arg);
	CHECK(toy_step(&before, 0, SAMPLES) == TUTTI_OK);
	toy_make(&after, comm, arg);
	is_full = tutti_rank(comm) == FULL_RANK;
	check_full(tutti_trainer_continue(after.trainer, before.trainer, &steps),
		   is_full ? "Taking room" : "On rank 1: ");
	is_full = false;
	CHECK(tutti_trainer_continue(after.trainer, before.trainer, &steps) == TUTTI_OK);
	CHECK(steps == 1);
	CHECK(toy_step(&after, 1, SAMPLES) == TUTTI_OK);
	toy_destroy(&after);
	toy_destroy(&before);
}

static void test_take_over(void **state)
{
	tutti_train_config config = {.offload_dir = saved_dir};

	assert_int_equal(ranks_as_threads(RANKS, take_over, &config), 0);
}

/* The limit on the length of files is of the process, so of all ranks. Without care it ends them by
 * SIGXFSZ. */
static void limited(tutti_comm *comm, void *arg)
{
	struct rlimit limit = {64, RLIM_INFINITY}, before;
	struct toy toy;

	toy_make(&toy, comm, arg);
	CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
	CHECK_ERROR(toy_step(&toy, 0, SAMPLES), TUTTI_ERR_SYSTEM,
		    "File too large (errno 27): `ulimit -f`");
	CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
	CHECK(toy_step(&toy, 1, SAMPLES) == TUTTI_OK);
	toy_destroy(&toy);
}

static void test_limited(void **state)
{
	tutti_train_config config = {.offload_dir = saved_dir};

	assert_int_equal(ranks_as_threads(1, limited, &config), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_first_step, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(test_local_sgd, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(test_take_over, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(test_limited, saved_setup, saved_teardown),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
