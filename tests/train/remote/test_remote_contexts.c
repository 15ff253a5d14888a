/* What would break: gradients that come to another context or get lost on the way through several
 * ranks, contexts that stay on a rank when they have ended, and misuse that passes. */
#include "tests/train/remote/remote_world.h"

#include "tests/unit.h"

#include <string.h>

static void check_grad(struct world *world, int rank, uint64_t context, int param, float value)
{
	float grad[WORLD_COUNT];

	CHECK(world_grad(world, rank, context, param, grad) == TUTTI_OK);
	for (int i = 0; i < WORLD_COUNT; i++)
		CHECK(grad[i] == value * (float)(i + 1));
}

/* A path through all ranks, this one first and last. */
static struct path tour(const struct world *world, int param, float value)
{
	struct path path = {.param = param, .length = world->size + 1, .value = value};

	for (int i = 0; i <= world->size; i++)
		path.ranks[i] = (world->rank + i) % world->size;
	return path;
}

/* Each rank begins two contexts at once, whose calls go through all ranks. */
static void two_contexts(tutti_comm *comm, void *arg)
{
	struct world world;
	uint64_t a, b;
	int ranks[PATH_MOST], count;

	world_open(&world, comm);
	float mine = (float)(world.rank + 1);
	CHECK(tutti_rpc_context_begin(world.rpc, &a) == TUTTI_OK);
	struct path path = tour(&world, 0, mine);
	CHECK(world_add(&world, &path) == TUTTI_OK);
	CHECK(tutti_rpc_context_begin(world.rpc, &b) == TUTTI_OK);
	CHECK(tutti_rpc_context_now() == b && a != b);
	path = tour(&world, 1, 16 * mine);
	CHECK(world_add(&world, &path) == TUTTI_OK);
	CHECK(world_add(&world, &path) == TUTTI_OK);
	tutti_rpc_context_set(a);
	path = tour(&world, 0, 32 * mine);
	CHECK(world_add(&world, &path) == TUTTI_OK);
	for (int rank = 0; rank < world.size; rank++) {
		float times = rank == world.rank ? 2 : 1;
		check_grad(&world, rank, a, 0, 33 * mine * times);
		check_grad(&world, rank, a, 1, 0);
		check_grad(&world, rank, b, 0, 0);
		check_grad(&world, rank, b, 1, 32 * mine * times);
		check_grad(&world, rank, b, 2, 0);
	}
	CHECK(tutti_rpc_context_ranks(world.rpc, a, ranks, PATH_MOST, &count) == TUTTI_OK);
	CHECK(count == world.size);
	for (int i = 0; i < count; i++)
		CHECK(ranks[i] == i);
	CHECK(tutti_rpc_context_end(world.rpc, a, 0) == TUTTI_OK);
	CHECK(tutti_rpc_context_now() == 0);
	check_grad(&world, world.size - 1, b, 1,
		   32 * mine * (world.rank == world.size - 1 ? 2 : 1));
	CHECK(tutti_rpc_context_end(world.rpc, b, 0) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK(remote_context_count(world.rpc) == 0);
	world_close(&world);
}

/* Only ranks with gradients take part. */
static void participants(tutti_comm *comm, void *arg)
{
	struct world world;
	uint64_t context;
	int rank, count;

	world_open(&world, comm);
	if (world.rank == 0) {
		float value[WORLD_COUNT];
		CHECK(tutti_rpc_context_begin(world.rpc, &context) == TUTTI_OK);
		CHECK(tutti_rpc_context_ranks(world.rpc, context, NULL, 0, &count) == TUTTI_OK);
		CHECK(count == 0);
		world_value(&world, 0, 0, value);
		const struct path path = {.length = 1, .value = 1, .ranks = {world.size - 1}};
		CHECK(world_add(&world, &path) == TUTTI_OK);
		CHECK(tutti_rpc_context_ranks(world.rpc, context, &rank, 1, &count) == TUTTI_OK);
		CHECK(count == 1 && rank == world.size - 1);
		CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK(remote_context_count(world.rpc) == 0);
	world_close(&world);
}

static void check_adds(struct world *world, uint64_t ended)
{
	tutti_rpc *rpc = world->rpc;
	const float grad[WORLD_COUNT] = {0};
	int other = (world->rank + 1) % world->size;
	const struct path path = {.length = 1, .value = 1, .ranks = {other}};

	tutti_rpc_context_set(0);
	CHECK_ERROR(tutti_rpc_context_add(rpc, 0, grad, WORLD_COUNT), TUTTI_ERR_INVALID,
		    "no current context");
	CHECK_ERROR(world_add(world, &path), TUTTI_ERR_INVALID, "no current context");
	tutti_rpc_context_set(ended);
	CHECK_ERROR(world_add(world, &path), TUTTI_ERR_INVALID, "it has ended");
	CHECK_ERROR(tutti_rpc_context_add(rpc, 0, grad, WORLD_COUNT), TUTTI_ERR_INVALID,
		    "it has ended");
	tutti_rpc_context_set(7);
	CHECK_ERROR(tutti_rpc_context_add(rpc, 0, grad, WORLD_COUNT), TUTTI_ERR_INVALID,
		    "there is no context 7");
	tutti_rpc_context_set((uint64_t)(world->size + 1) << 48);
	CHECK_ERROR(tutti_rpc_context_add(rpc, 0, grad, WORLD_COUNT), TUTTI_ERR_INVALID,
		    "there is no context");
	tutti_rpc_context_set(0);
}

static void check_params(tutti_rpc *rpc, uint64_t context)
{
	float grad[WORLD_COUNT + 1] = {0};
	const int unknown = 99, first = 0;

	tutti_rpc_context_set(context);
	CHECK_ERROR(tutti_rpc_context_add(rpc, 0, grad, WORLD_COUNT + 1), TUTTI_ERR_INVALID,
		    "6 gradients, but parameter 'w0'");
	CHECK_ERROR(tutti_rpc_context_add(rpc, 0, NULL, WORLD_COUNT), TUTTI_ERR_INVALID, "NULL");
	CHECK_ERROR(tutti_rpc_context_add(rpc, 99, grad, 1), TUTTI_ERR_INVALID,
		    "has no parameter 99; 3 were registered");
	CHECK_ERROR(tutti_rpc_context_add(NULL, 0, grad, 1), TUTTI_ERR_INVALID, "NULL");
	CHECK_ERROR(tutti_rpc_context_grad(rpc, context, 0, grad, 1), TUTTI_ERR_INVALID,
		    "1 gradients");
	CHECK_ERROR(tutti_rpc_param_lock(rpc, &unknown, 1, 0), TUTTI_ERR_INVALID,
		    "no parameter 99");
	CHECK_ERROR(tutti_rpc_param_lock(rpc, NULL, 1, 0), TUTTI_ERR_INVALID, "1 parameters at");
	CHECK_ERROR(tutti_rpc_param_unlock(rpc, &first, 1), TUTTI_ERR_INVALID, "is not locked");
	CHECK_ERROR(tutti_rpc_param_remove(rpc, -1), TUTTI_ERR_INVALID, "no parameter -1");
}

static void check_registering(tutti_rpc *rpc)
{
	float values[2] = {0};
	int number = -5;
	tutti_rpc_param param = {.name = "w1", .values = values, .count = 2};

	CHECK_ERROR(tutti_rpc_param_add(rpc, &param, &number), TUTTI_ERR_INVALID,
		    "has a parameter 'w1' already, number 1");
	param.name = "";
	CHECK_ERROR(tutti_rpc_param_add(rpc, &param, &number), TUTTI_ERR_INVALID, "1 to 63");
	param.name = "x";
	param.group = -1;
	CHECK_ERROR(tutti_rpc_param_add(rpc, &param, &number), TUTTI_ERR_INVALID, "group -1");
	param = (tutti_rpc_param){.name = "x", .count = 2};
	CHECK_ERROR(tutti_rpc_param_add(rpc, &param, &number), TUTTI_ERR_INVALID, "at NULL");
	CHECK_ERROR(tutti_rpc_param_add(rpc, NULL, &number), TUTTI_ERR_INVALID, "NULL");
	CHECK(number == -5);
}

static void misuse(tutti_comm *comm, void *arg)
{
	struct world world;
	uint64_t context, ended, others;
	int count;

	world_open(&world, comm);
	CHECK(tutti_rpc_context_begin(world.rpc, &ended) == TUTTI_OK);
	CHECK(tutti_rpc_context_end(world.rpc, ended, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_rpc_context_end(world.rpc, ended, 0), TUTTI_ERR_INVALID,
		    "there is no context");
	check_adds(&world, ended);
	CHECK(tutti_rpc_context_begin(world.rpc, &context) == TUTTI_OK);
	check_params(world.rpc, context);
	check_registering(world.rpc);
	others = context;
	CHECK(tutti_broadcast(&others, &others, 1, TUTTI_U64, 0, comm, NULL) == TUTTI_OK);
	if (world.rank == world.size - 1 && world.rank != 0) {
		const struct path path = {.length = 1, .value = 1, .ranks = {world.rank}};
		tutti_rpc_context_set(others);
		CHECK(world_add(&world, &path) == TUTTI_OK);
		CHECK_ERROR(tutti_rpc_context_end(world.rpc, others, 0), TUTTI_ERR_INVALID,
			    "was begun by rank 0");
		CHECK_ERROR(tutti_rpc_context_ranks(world.rpc, others, NULL, 0, &count),
			    TUTTI_ERR_INVALID, "rank 0 knows");
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK(remote_context_count(world.rpc) == 0);
	world_close(&world);
}

/* What waits is refused where nothing may wait, before anything has begun. */
static tutti_status waits_in_short(void *arg, const tutti_rpc_request *request,
				   tutti_rpc_reply *reply)
{
	struct world *world = arg;
	const tutti_rpc_step_config step = {.num_groups = 1};
	uint64_t context;
	int param = 0;

	memcpy(&context, request->data, sizeof context);
	CHECK_ERROR(tutti_rpc_context_end(world->rpc, context, 0), TUTTI_ERR_INVALID, "waits");
	CHECK_ERROR(tutti_rpc_context_step(world->rpc, context, &step, NULL), TUTTI_ERR_INVALID,
		    "waits");
	CHECK_ERROR(tutti_rpc_param_lock(world->rpc, &param, 1, 0), TUTTI_ERR_INVALID, "waits");
	return TUTTI_OK;
}

static void short_functions(tutti_comm *comm, void *arg)
{
	struct world world;
	uint64_t context;

	world_open(&world, comm);
	const tutti_rpc_function function = {
		.name = "waits", .fn = waits_in_short, .arg = &world, .flags = TUTTI_RPC_SHORT};
	CHECK(tutti_rpc_register(world.rpc, &function) == TUTTI_OK);
	CHECK(tutti_rpc_context_begin(world.rpc, &context) == TUTTI_OK);
	struct path path = tour(&world, 0, 1);
	CHECK(world_add(&world, &path) == TUTTI_OK);
	const tutti_rpc_piece piece = {&context, sizeof context};
	CHECK(tutti_rpc_call(world.rpc, world.rank, "waits", &piece, 1, NULL, NULL) == TUTTI_OK);
	CHECK(tutti_rpc_context_now() == context);
	CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	world_close(&world);
}

/* A rank that never ends its contexts gets a message, and destroy frees them. */
static void too_many(tutti_comm *comm, void *arg)
{
	struct world world;
	uint64_t context = 0, one_more = 5;

	world_open(&world, comm);
	for (int i = 0; i < TUTTI_RPC_CONTEXTS; i++) {
		const struct path path = {.length = 1, .value = 1, .ranks = {world.size - 1}};
		CHECK(tutti_rpc_context_begin(world.rpc, &context) == TUTTI_OK);
		if (i % 64 == 0)
			CHECK(world_add(&world, &path) == TUTTI_OK);
	}
	CHECK_ERROR(tutti_rpc_context_begin(world.rpc, &one_more), TUTTI_ERR_MEMORY,
		    "has begun 1024 contexts");
	CHECK(one_more == 5);
	CHECK(tutti_rpc_context_end(world.rpc, context, 0) == TUTTI_OK);
	CHECK(tutti_rpc_context_begin(world.rpc, &one_more) == TUTTI_OK);
	world_close(&world);
}

/* Locks: readers together, a name free again after its removal, release when the last reader goes.
 */
static void removal(tutti_comm *comm, void *arg)
{
	struct world world;
	float values[2] = {0};
	int number, again, twice[2];

	world_open(&world, comm);
	const tutti_rpc_param param = {.name = "x", .values = values, .count = 2};
	CHECK(tutti_rpc_param_add(world.rpc, &param, &number) == TUTTI_OK);
	twice[0] = twice[1] = number;
	CHECK(tutti_rpc_param_lock(world.rpc, twice, 2, 0) == TUTTI_OK);
	CHECK(tutti_rpc_param_remove(world.rpc, number) == TUTTI_OK);
	CHECK(tutti_rpc_param_add(world.rpc, &param, &again) == TUTTI_OK);
	CHECK(again == number + 1);
	CHECK_ERROR(tutti_rpc_param_lock(world.rpc, &number, 1, 0), TUTTI_ERR_INVALID,
		    "was removed");
	CHECK(tutti_rpc_param_unlock(world.rpc, twice, 2) == TUTTI_OK);
	CHECK_ERROR(tutti_rpc_param_unlock(world.rpc, &number, 1), TUTTI_ERR_INVALID,
		    "is not locked");
	CHECK(world.released == 0);
	CHECK(tutti_rpc_param_lock(world.rpc, world.params, 1, 0) == TUTTI_OK);
	CHECK(tutti_rpc_param_remove(world.rpc, world.params[0]) == TUTTI_OK);
	CHECK(world.released == 0);
	CHECK(tutti_rpc_param_unlock(world.rpc, world.params, 1) == TUTTI_OK);
	CHECK(world.released == 1);
	world_close(&world);
}

static void test_in_processes(void **state)
{
	assert_int_equal(ranks_as_processes(4, two_contexts, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_in_processes), RANKS_TEST(two_contexts, 1, 5),
		RANKS_TEST(participants, 1, 5),      RANKS_TEST(misuse, 1, 5),
		RANKS_TEST(short_functions, 1, 5),   RANKS_TEST(too_many, 2, 2),
		RANKS_TEST(removal, 1, 5),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
