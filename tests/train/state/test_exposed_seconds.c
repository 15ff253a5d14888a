/* What would break: exposed_seconds that count waiting without a peer, or miss the time that a rank
 * has waited for a late one.
 *
 * There are no sleeps: rank 1 comes only after rank 0 has begun to wait, and both read the clock.
 * The reported time is at least the time between these two readings. */
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include <errno.h>
#include <semaphore.h>
#include <stdbool.h>
#include <time.h>

#include "tests/unit.h"

enum { RANKS = 2, SAMPLES = 4, DEADLINE_SECONDS = 60 };

static double seconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct meeting {
	tutti_strategy strategy;
	void (*before)(struct toy *toy), (*wait)(struct toy *toy);
	sem_t has_begun;       /* rank 0 waits */
	double begun, arrived; /* when rank 0 did, and when rank 1 came */
};

/* Set by the thread that reports its next wait. */
static _Thread_local struct meeting *watched;

static void say_that_it_waits(void)
{
	struct meeting *meeting = watched;

	watched = NULL;
	if (!meeting)
		return;
	meeting->begun = seconds_now();
	sem_post(&meeting->has_begun);
}

tutti_status __real_tutti_work_wait(tutti_work **work, int timeout_ms);
tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms);
tutti_status __real_tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_comm *comm, const tutti_call *call);
tutti_status __wrap_tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_comm *comm, const tutti_call *call);

tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms)
{
	say_that_it_waits();
	return __real_tutti_work_wait(work, timeout_ms);
}

tutti_status __wrap_tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_comm *comm, const tutti_call *call)
{
	if (!call) /* one that waits */
		say_that_it_waits();
	return __real_tutti_all_gather(send, recv, count, dtype, comm, call);
}

tutti_status __real_tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_op op, tutti_comm *comm, const tutti_call *call);
tutti_status __wrap_tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_op op, tutti_comm *comm, const tutti_call *call);

tutti_status __wrap_tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
				     tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	if (!call)
		say_that_it_waits();
	return __real_tutti_all_reduce(send, recv, count, dtype, op, comm, call);
}

static void wait_until_begun(struct meeting *meeting)
{
	struct timespec deadline;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += DEADLINE_SECONDS;
	while (sem_timedwait(&meeting->has_begun, &deadline) != 0)
		if (errno != EINTR) {
			check_failed(__FILE__, __LINE__, "rank 0 waits");
			return;
		}
}

static double exposed(const tutti_trainer *trainer)
{
	tutti_train_stats stats;

	CHECK(tutti_trainer_stats(trainer, &stats) == TUTTI_OK);
	return stats.exposed_seconds;
}

static void nothing(struct toy *toy)
{
}

static void micro_batch(struct toy *toy)
{
	toy_micro_batch(toy, TUTTI_PASS_LAST, 0, SAMPLES);
}

static void step(struct toy *toy)
{
	const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.5f};
	CHECK(tutti_step(toy->trainer, &sgd, 1, NULL) == TUTTI_OK);
}

/* What all_done says needs all ranks. */
static void ask(struct toy *toy)
{
	int all_done;
	CHECK(tutti_micro_batch(toy->trainer, TUTTI_PASS_EVAL, 1, &all_done) == TUTTI_OK);
}

/* So do a unit's values where parameters are sharded. */
static void forward(struct toy *toy)
{
	CHECK(tutti_micro_batch(toy->trainer, TUTTI_PASS_EVAL, 1, NULL) == TUTTI_OK);
	CHECK(tutti_forward_begin(toy->trainer, 0) == TUTTI_OK);
}

static void meet(tutti_comm *comm, void *arg)
{
	struct meeting *meeting = arg;
	const tutti_train_config config = {.strategy = meeting->strategy};
	struct toy toy;

	toy_make(&toy, comm, &config);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	double before = exposed(toy.trainer), began = seconds_now();
	if (toy.rank == 0) {
		meeting->before(&toy);
		watched = meeting;
	} else {
		wait_until_begun(meeting);
		meeting->before(&toy);
		meeting->arrived = seconds_now();
	}
	meeting->wait(&toy);
	double waited = exposed(toy.trainer) - before;
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK); /* arrived is there */
	CHECK(waited > 0 && waited <= seconds_now() - began);
	CHECK(toy.rank > 0 || meeting->arrived >= meeting->begun);
	/* But for the rounding of seconds. */
	CHECK(toy.rank > 0 || waited > meeting->arrived - meeting->begun - 1e-9);
	toy_destroy(&toy);
}

static void test_late(void **state)
{
	struct meeting meetings[] = {
		{.strategy = TUTTI_DDP, .before = nothing, .wait = ask},
		{.strategy = TUTTI_FSDP, .before = nothing, .wait = forward},
		{.strategy = TUTTI_DDP, .before = micro_batch, .wait = step},
		{.strategy = TUTTI_ZERO1, .before = micro_batch, .wait = step},
		{.strategy = TUTTI_ZERO2, .before = micro_batch, .wait = step},
	};

	for (size_t m = 0; m < sizeof meetings / sizeof *meetings; m++) {
		assert_int_equal(sem_init(&meetings[m].has_begun, 0, 0), 0);
		assert_int_equal(ranks_as_threads(RANKS, meet, &meetings[m]), 0);
		sem_destroy(&meetings[m].has_begun);
	}
}

static void alone(tutti_comm *comm, void *arg)
{
	const tutti_train_config *config = arg;
	struct toy toy;

	toy_make(&toy, comm, config);
	CHECK(exposed(toy.trainer) == 0);
	for (int number = 0; number < 3; number++) {
		toy_micro_batch(&toy, TUTTI_PASS_ACCUMULATE, number, SAMPLES);
		toy_micro_batch(&toy, TUTTI_PASS_LAST, number, SAMPLES);
		step(&toy);
		toy_micro_batch(&toy, TUTTI_PASS_EVAL, number, SAMPLES);
		CHECK(exposed(toy.trainer) == 0);
	}
	toy_destroy(&toy);
}

static void test_alone(void **state)
{
	static const tutti_train_config configs[] = {
		{.strategy = TUTTI_DDP},
		{.strategy = TUTTI_ZERO1},
		{.strategy = TUTTI_ZERO2},
		{.strategy = TUTTI_FSDP},
		{.strategy = TUTTI_HSDP, .shard_size = 1},
		{.strategy = TUTTI_LOCAL_SGD, .local_sgd_steps = 2},
	};

	for (size_t c = 0; c < sizeof configs / sizeof *configs; c++) {
		tutti_train_config config = configs[c];
		assert_int_equal(ranks_as_threads(1, alone, &config), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_alone),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
