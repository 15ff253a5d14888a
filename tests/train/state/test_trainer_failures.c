/* What would break: a wait inside a trainer that the deadline does not end, nor an abort of the
 * caller's communicator, nor a trainer that is destroyed in the middle of a step; and failures
 * without a message, or with wrong rank numbers. */
#include "tests/limit.h"
#include "tests/train/ranks.h"
#include "tests/train/toy.h"

#include "train/state/trainer_state.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit.h"

enum { RANKS = 2, BLOCK_BYTES = 200 };

static const tutti_strategy strategies[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP};
static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.1f};

struct scene {
	tutti_train_config config;
	pthread_barrier_t is_out; /* rank 0 has left its step */
	bool aborts;
};

/* A step of the toy without its arithmetic, until something fails. */
static tutti_status run_step(tutti_trainer *t)
{
	TRY(units_micro_batch(t, TUTTI_PASS_LAST, 1, TOY_UNITS));
	return tutti_step(t, &sgd, 1, NULL);
}

struct watchdog {
	pthread_t thread;
	tutti_comm *comm;
	sem_t is_waiting; /* the rank, on a communicator of the trainer's own */
};

/* Set by the thread that reports its next wait. */
static _Thread_local struct watchdog *watched;

static void say_that_it_waits(void)
{
	if (watched)
		sem_post(&watched->is_waiting);
	watched = NULL;
}

tutti_status __real_tutti_work_wait(tutti_work **work, int timeout_ms);
tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms);

tutti_status __wrap_tutti_work_wait(tutti_work **work, int timeout_ms)
{
	say_that_it_waits();
	return __real_tutti_work_wait(work, timeout_ms);
}

static void *abort_soon(void *arg)
{
	struct watchdog *dog = arg;

	while (sem_wait(&dog->is_waiting) != 0)
		;
	tutti_comm_abort(dog->comm);
	return NULL;
}

static tutti_status run_step_that_is_aborted(tutti_trainer *t, tutti_comm *comm)
{
	struct watchdog dog = {.comm = comm};

	sem_init(&dog.is_waiting, 0, 0);
	if (pthread_create(&dog.thread, NULL, abort_soon, &dog) != 0)
		abort();
	watched = &dog;
	tutti_status status = run_step(t);
	CHECK(!watched);
	say_that_it_waits();
	pthread_join(dog.thread, NULL);
	sem_destroy(&dog.is_waiting);
	return status;
}

/* Rank 1 makes no step before rank 0 has left its own. */
static void silent_rank(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;

	toy_make(&toy, comm, &scene->config);
	if (tutti_rank(comm) == 0 && scene->aborts)
		CHECK_ERROR(run_step_that_is_aborted(toy.trainer, comm), TUTTI_ERR_ABORTED,
			    "tutti_comm_abort was called");
	else if (tutti_rank(comm) == 0)
		CHECK_ERROR(run_step(toy.trainer), TUTTI_ERR_TIMEOUT, "rank 1");
	pthread_barrier_wait(&scene->is_out);
	toy_destroy(&toy);
}

static void wait_for_silent_rank(bool aborts)
{
	for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
		struct scene scene = {
			.config = {.strategy = strategies[s], .bucket_bytes = BLOCK_BYTES},
			.aborts = aborts};
		pthread_barrier_init(&scene.is_out, NULL, RANKS);
		assert_int_equal(
			ranks_with_timeout(RANKS, aborts ? 30000 : 1000, silent_rank, &scene), 0);
		pthread_barrier_destroy(&scene.is_out);
	}
}

static void test_deadline(void **state)
{
	wait_for_silent_rank(false);
}

static void test_abort(void **state)
{
	wait_for_silent_rank(true);
}

static void inherits(tutti_comm *comm, void *arg)
{
	tutti_train_config configs[] = {{.strategy = TUTTI_DDP},
					{.strategy = TUTTI_FSDP, .deterministic = 1}};
	tutti_config of_own, of_comm;

	CHECK(tutti_comm_config(comm, &of_comm) == TUTTI_OK);
	for (int i = 0; i < 2; i++) {
		struct toy toy;
		toy_make(&toy, comm, &configs[i]);
		const tutti_comm *own =
			i == 0 ? toy.trainer->homes[0].replicas : toy.trainer->homes[0].reduce;
		CHECK(tutti_comm_config(own, &of_own) == TUTTI_OK);
		CHECK(of_own.timeout_ms == 12345 && of_own.deterministic == (i == 1));
		CHECK(!of_comm.transports == !of_own.transports &&
		      (!of_comm.transports || strcmp(of_comm.transports, of_own.transports) == 0));
		toy_destroy(&toy);
	}
}

static void test_inherits(void **state)
{
	assert_int_equal(ranks_with_timeout(RANKS, 12345, inherits, NULL), 0);
}

/* The last rank loses the trainer's communicators in the middle of a step. */
static void loses_own(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;
	int size = tutti_size(comm), rank = tutti_rank(comm);
	bool is_hsdp = scene->config.strategy == TUTTI_HSDP;

	toy_make(&toy, comm, &scene->config);
	if (rank == size - 1) {
		trainer_abort(toy.trainer);
		CHECK(run_step(toy.trainer) == TUTTI_ERR_ABORTED);
	} else if (!is_hsdp || rank >= size - 2) {
		tutti_status status = run_step(toy.trainer);
		CHECK(status == TUTTI_ERR_PEER || status == TUTTI_ERR_ABORTED);
		CHECK_MESSAGE(is_hsdp ? "whose ranks 0 to 1 are the job's ranks 2 to 3" : "ank 1");
		if (status == TUTTI_ERR_ABORTED)
			CHECK_MESSAGE("a trainer on that rank gave up its step");
	}
	pthread_barrier_wait(&scene->is_out);
	toy_destroy(&toy);
}

static void test_messages(void **state)
{
	static const tutti_strategy all[] = {TUTTI_DDP, TUTTI_ZERO1, TUTTI_ZERO2, TUTTI_FSDP,
					     TUTTI_HSDP};

	for (size_t s = 0; s < sizeof all / sizeof *all; s++) {
		int n = all[s] == TUTTI_HSDP ? 4 : 2;
		struct scene scene = {.config = {.strategy = all[s],
						 .bucket_bytes = BLOCK_BYTES,
						 .shard_size = all[s] == TUTTI_HSDP ? 2 : 0}};
		pthread_barrier_init(&scene.is_out, NULL, (unsigned)n);
		assert_int_equal(ranks_with_timeout(n, 30000, loses_own, &scene), 0);
		pthread_barrier_destroy(&scene.is_out);
	}
}

/* Rank 0 ends the step where rank 1 continues: rank 0 gets an error, and does not wait for the
 * gradient that rank 1 does not send. */
static void ends_early(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;
	tutti_status status = TUTTI_OK;

	toy_make(&toy, comm, &scene->config);
	tutti_trainer *t = toy.trainer;
	CHECK(tutti_micro_batch(t, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(t, TOY_UNITS) == TUTTI_OK);
	for (int u = TOY_UNITS - 1; u > 1; u--)
		CHECK(unit_backward(t, u) == TUTTI_OK);
	if (tutti_rank(comm) == 0)
		status = tutti_grads_finish(t, NULL);
	else /* any hook may be the first that fails */
		status = units_backward(t, 2);
	if (tutti_rank(comm) == 0)
		CHECK_ERROR(status, TUTTI_ERR_MISMATCH, "the end of the step");
	else /* it detects that itself, or rank 0 tells it */
		CHECK(status == TUTTI_ERR_MISMATCH || status == TUTTI_ERR_ABORTED ||
		      status == TUTTI_ERR_PEER);
	if (tutti_rank(comm) == 0)
		CHECK(tutti_comm_status(t->homes[0].reduce) == TUTTI_ERR_ABORTED);
	pthread_barrier_wait(&scene->is_out);
	toy_destroy(&toy);
}

static void test_ends_early(void **state)
{
	struct scene scene = {.config = {.strategy = TUTTI_FSDP}};

	pthread_barrier_init(&scene.is_out, NULL, RANKS);
	assert_int_equal(ranks_with_timeout(RANKS, 2000, ends_early, &scene), 0);
	pthread_barrier_destroy(&scene.is_out);
}

/* Rank 0 starts its gradients and is destroyed before the others have started theirs: neither side
 * waits for the other's until its deadline. */
static void gives_up(tutti_comm *comm, void *arg)
{
	struct scene *scene = arg;
	struct toy toy;
	bool leaves = tutti_rank(comm) == 0;

	toy_make(&toy, comm, &scene->config);
	CHECK(tutti_micro_batch(toy.trainer, TUTTI_PASS_LAST, 1, NULL) == TUTTI_OK);
	CHECK(units_forward(toy.trainer, TOY_UNITS) == TUTTI_OK);
	if (leaves) {
		CHECK(unit_backward(toy.trainer, TOY_UNITS - 1) == TUTTI_OK);
		toy_destroy(&toy);
	}
	pthread_barrier_wait(&scene->is_out);
	if (leaves)
		return;
	tutti_status status = units_backward(toy.trainer, TOY_UNITS);
	if (status == TUTTI_OK)
		status = tutti_grads_finish(toy.trainer, NULL);
	CHECK_ERROR(status, TUTTI_ERR_ABORTED, "ank 0");
	toy_destroy(&toy);
}

static void test_given_up(void **state)
{
	static const tutti_strategy given_up[] = {TUTTI_DDP, TUTTI_ZERO2, TUTTI_FSDP};

	for (int s = 0; s < 3; s++)
		for (int n = 2; n <= 3; n++) {
			struct scene scene = {
				.config = {.strategy = given_up[s], .bucket_bytes = BLOCK_BYTES}};
			pthread_barrier_init(&scene.is_out, NULL, (unsigned)n);
			assert_int_equal(ranks_as_threads(n, gives_up, &scene), 0);
			pthread_barrier_destroy(&scene.is_out);
		}
}

/* A bad argument on one rank fails all ranks: no rank waits for a trainer that does not come. */
static void wrong_on_one(tutti_comm *comm, void *arg)
{
	struct toy toy;
	tutti_train_config config = {0};
	int rank = tutti_rank(comm);

	toy_register(&toy, comm, 0);
	if (rank == 1)
		config.prefetch_units = -1;
	CHECK_ERROR(tutti_trainer_create(&toy.trainer, toy.model, comm, &config), TUTTI_ERR_INVALID,
		    rank == 1 ? "prefetch_units is -1"
			      : "On rank 1: tutti_train_config: prefetch_units is -1");
	CHECK_ERROR(tutti_trainer_create(&toy.trainer, rank == 0 ? NULL : toy.model, comm, NULL),
		    TUTTI_ERR_INVALID, rank == 0 ? "a model" : "On rank 0: tutti_trainer_create");
	toy_destroy(&toy);
}

static void test_wrong_on_one(void **state)
{
	assert_int_equal(ranks_with_timeout(3, 30000, wrong_on_one, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadline),     cmocka_unit_test(test_abort),
		cmocka_unit_test(test_inherits),     cmocka_unit_test(test_messages),
		cmocka_unit_test(test_ends_early),   cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_wrong_on_one),
	};
	test_limit(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
