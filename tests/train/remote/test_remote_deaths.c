/* What would break: what a dead rank has begun stays on the others for ever, or a step with a dead
 * rank hangs, or does not say which ranks have updated. */
#include "tests/train/remote/remote_world.h"

#include "tests/unit.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

enum { RANKS = 4 };

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.25f};
static const tutti_rpc_step_config config = {.groups = &sgd, .num_groups = 1};

/* Of AddressSanitizer. Processes that _exit look for leaks here. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void close_checked(struct world *world)
{
	world_close(world);
	CHECK(!__lsan_do_recoverable_leak_check || __lsan_do_recoverable_leak_check() == 0);
}

static tutti_status on_die(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	return raise(SIGKILL) == 0 ? TUTTI_OK : TUTTI_ERR_SYSTEM;
}

/* The test's function keeps its parameter until it is told to let go. */
static tutti_status on_hold(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct world *world = arg;

	return tutti_rpc_param_lock(world->rpc, world->params, 1, 0);
}

static void open_mortal(struct world *world, tutti_comm *comm)
{
	world_open(world, comm);
	CHECK(tutti_rpc_register(world->rpc, &(tutti_rpc_function){.name = "die", .fn = on_die}) ==
	      TUTTI_OK);
	CHECK(tutti_rpc_register(world->rpc, &(tutti_rpc_function){.name = "hold",
								   .fn = on_hold,
								   .arg = world}) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
}

static void await_death(const struct world *world, int rank)
{
	while (tutti_rpc_is_alive(world->rpc, rank))
		sched_yield();
}

/* Another rank that goes on already may come between. */
static void await_none(const struct world *world)
{
	while (remote_context_count(world->rpc) > 0)
		sched_yield();
}

static void kill_rank(struct world *world, int rank)
{
	CHECK(tutti_rpc_send(world->rpc, rank, "die", NULL, 0, NULL) == TUTTI_OK);
}

static void add_along(struct world *world, int first, int last)
{
	struct path path = {.length = last - first + 1, .value = 1};

	for (int rank = first; rank <= last; rank++)
		path.ranks[rank - first] = rank;
	CHECK(world_add(world, &path) == TUTTI_OK);
}

/* A whole step among ranks first to last. */
static void go_on(struct world *world, int first, int last)
{
	uint64_t context;

	CHECK(tutti_rpc_context_begin(world->rpc, &context) == TUTTI_OK);
	add_along(world, first, last);
	CHECK(tutti_rpc_context_step(world->rpc, context, &config, NULL) == TUTTI_OK);
	CHECK(tutti_rpc_context_end(world->rpc, context, 0) == TUTTI_OK);
}

static void beginner_dies(tutti_comm *comm, void *arg)
{
	struct world world;
	uint64_t context;

	open_mortal(&world, comm);
	if (world.rank == 0) {
		for (int i = 0; i < 3; i++) {
			CHECK(tutti_rpc_context_begin(world.rpc, &context) == TUTTI_OK);
			add_along(&world, 1, world.size - 1);
		}
		raise(SIGKILL);
	}
	await_death(&world, 0);
	await_none(&world);
	/* A call of the dead rank's that goes on elsewhere. */
	tutti_rpc_context_set((uint64_t)1 << 48 | 5);
	const float grad[WORLD_COUNT] = {0};
	CHECK_ERROR(tutti_rpc_context_add(world.rpc, 0, grad, WORLD_COUNT), TUTTI_ERR_PEER,
		    "rank 0");
	await_none(&world);
	if (world.rank == 1)
		go_on(&world, 1, world.size - 1);
	close_checked(&world);
}

static void participant_dies(tutti_comm *comm, void *arg)
{
	struct world world;
	uint64_t context;

	open_mortal(&world, comm);
	int last = world.size - 1;
	if (world.rank == 0) {
		float value[WORLD_COUNT];
		CHECK(tutti_rpc_context_begin(world.rpc, &context) == TUTTI_OK);
		add_along(&world, 0, last);
		kill_rank(&world, last);
		await_death(&world, last);
		CHECK_ERROR(tutti_rpc_context_step(world.rpc, context, &config, NULL),
			    TUTTI_ERR_PEER, "no rank has updated: rank 3, which has gradients");
		for (int rank = 0; rank < last; rank++) {
			world_value(&world, rank, 0, value);
			CHECK(value[0] == 0);
		}
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
		for (int rank = 0; rank < last; rank++)
			world_await_contexts(&world, rank, 0);
		go_on(&world, 0, last - 1);
	}
	close_checked(&world);
}

struct stepper {
	struct world *world;
	uint64_t context;
	pthread_t thread;
};

static void *stepper_main(void *arg)
{
	struct stepper *stepper = arg;
	tutti_status status =
		tutti_rpc_context_step(stepper->world->rpc, stepper->context, &config, NULL);

	CHECK_ERROR(status, TUTTI_ERR_PEER, "ranks that have updated: 0, 1, 2;");
	CHECK_ERROR(status, TUTTI_ERR_PEER, "may have updated: 3; rank 3: ");
	return NULL;
}

/* Waits until the rank has updated. */
static void await_update(struct world *world, int rank)
{
	float value[WORLD_COUNT] = {0};

	while (value[0] == 0)
		world_value(world, rank, 0, value);
}

static void dies_in_update(tutti_comm *comm, void *arg)
{
	struct world world;

	open_mortal(&world, comm);
	int last = world.size - 1;
	if (world.rank == 0) {
		struct stepper stepper = {.world = &world};
		CHECK(tutti_rpc_context_begin(world.rpc, &stepper.context) == TUTTI_OK);
		add_along(&world, 0, last);
		CHECK(tutti_rpc_call(world.rpc, last, "hold", NULL, 0, NULL, NULL) == TUTTI_OK);
		CHECK(pthread_create(&stepper.thread, NULL, stepper_main, &stepper) == 0);
		for (int rank = 0; rank < last; rank++)
			await_update(&world, rank);
		kill_rank(&world, last);
		pthread_join(stepper.thread, NULL);
		CHECK(tutti_rpc_context_end(world.rpc, stepper.context, 0) == TUTTI_OK);
		go_on(&world, 0, last - 1);
	}
	close_checked(&world);
}

static void *lonely_main(void *arg)
{
	struct stepper *stepper = arg;

	(void)tutti_rpc_context_step(stepper->world->rpc, stepper->context, &config, NULL);
	return NULL;
}

/* Rank 1's update, which waits for a reader, ends after its context was freed. */
static void beginner_dies_in_update(tutti_comm *comm, void *arg)
{
	struct world world;

	open_mortal(&world, comm);
	if (world.rank == 0) {
		struct stepper stepper = {.world = &world};
		CHECK(tutti_rpc_context_begin(world.rpc, &stepper.context) == TUTTI_OK);
		add_along(&world, 1, world.size - 1);
		CHECK(tutti_rpc_call(world.rpc, 1, "hold", NULL, 0, NULL, NULL) == TUTTI_OK);
		CHECK(pthread_create(&stepper.thread, NULL, lonely_main, &stepper) == 0);
		for (int rank = 2; rank < world.size; rank++)
			await_update(&world, rank);
		raise(SIGKILL);
	}
	await_death(&world, 0);
	await_none(&world);
	if (world.rank == 1) {
		CHECK(tutti_rpc_param_unlock(world.rpc, world.params, 1) == TUTTI_OK);
		go_on(&world, 1, world.size - 1);
	}
	close_checked(&world);
}

/* One process has died, and the others' checks hold. */
static void check_one_death(rank_fn fn)
{
	assert_int_equal(ranks_as_processes(RANKS, fn, NULL), 1);
}

static void test_beginner_dies(void **state)
{
	check_one_death(beginner_dies);
	check_one_death(beginner_dies_in_update);
}

static void test_participant_dies(void **state)
{
	check_one_death(participant_dies);
	check_one_death(dies_in_update);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_beginner_dies),
		cmocka_unit_test(test_participant_dies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
