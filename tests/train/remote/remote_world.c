/* A rank of an rpc with some parameters. */
#include "tests/train/remote/remote_world.h"

#include <sched.h>
#include <string.h>

struct grad_order {
	uint64_t context;
	int32_t param, reserved;
};

static tutti_status on_add(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct world *world = arg;
	struct path path;
	float grad[WORLD_COUNT];

	CHECK(request->bytes == sizeof path);
	memcpy(&path, request->data, sizeof path);
	for (int i = 0; i < WORLD_COUNT; i++)
		grad[i] = path.value * (float)(i + 1);
	TRY(tutti_rpc_context_add(world->rpc, world->params[path.param], grad, WORLD_COUNT));
	return path.length > 0 ? world_add(world, &path) : TUTTI_OK;
}

static tutti_status on_grad(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct world *world = arg;
	struct grad_order order;
	float grad[WORLD_COUNT];

	CHECK(request->bytes == sizeof order);
	memcpy(&order, request->data, sizeof order);
	TRY(tutti_rpc_context_grad(world->rpc, order.context, world->params[order.param], grad,
				   WORLD_COUNT));
	return tutti_rpc_reply_copy(reply, grad, sizeof grad);
}

static tutti_status on_value(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct world *world = arg;
	int32_t param;
	float values[WORLD_COUNT];

	memcpy(&param, request->data, sizeof param);
	TRY(tutti_rpc_param_lock(world->rpc, &world->params[param], 1, 0));
	memcpy(values, world->values[param], sizeof values);
	TRY(tutti_rpc_param_unlock(world->rpc, &world->params[param], 1));
	return tutti_rpc_reply_copy(reply, values, sizeof values);
}

static tutti_status on_count(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	struct world *world = arg;
	int32_t count = remote_context_count(world->rpc);

	return tutti_rpc_reply_copy(reply, &count, sizeof count);
}

static void note_release(void *arg)
{
	struct world *world = arg;

	__atomic_fetch_add(&world->released, 1, __ATOMIC_SEQ_CST);
}

void world_open_for(struct world *world, tutti_comm *comm, int timeout_ms)
{
	const tutti_rpc_function functions[] = {
		{.name = "add", .fn = on_add, .arg = world},
		{.name = "grad", .fn = on_grad, .arg = world},
		{.name = "value", .fn = on_value, .arg = world},
		{.name = "count", .fn = on_count, .arg = world},
	};
	const tutti_rpc_config config = {.threads = 64, /* paths hold a thread on each rank */
					 .timeout_ms = timeout_ms,
					 .functions = functions,
					 .num_functions = sizeof functions / sizeof *functions};

	*world = (struct world){.comm = comm, .rank = tutti_rank(comm), .size = tutti_size(comm)};
	CHECK(tutti_rpc_create(&world->rpc, comm, &config) == TUTTI_OK);
	for (int i = 0; i < WORLD_PARAMS; i++) {
		char name[16];
		snprintf(name, sizeof name, "w%d", i);
		CHECK(tutti_rpc_param_add(world->rpc,
					  &(tutti_rpc_param){.name = name,
							     .values = world->values[i],
							     .count = WORLD_COUNT,
							     .release = note_release,
							     .release_arg = world},
					  &world->params[i]) == TUTTI_OK);
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
}

void world_open(struct world *world, tutti_comm *comm)
{
	world_open_for(world, comm, 0);
}

void world_close(struct world *world)
{
	CHECK(tutti_rpc_shutdown(world->rpc, 0) == TUTTI_OK);
	tutti_rpc_destroy(world->rpc);
	CHECK(world->released == WORLD_PARAMS);
}

tutti_status world_add(struct world *world, const struct path *path)
{
	struct path rest = *path;
	const tutti_rpc_piece piece = {&rest, sizeof rest};

	rest.length--;
	memmove(rest.ranks, rest.ranks + 1, sizeof rest.ranks - sizeof *rest.ranks);
	return tutti_rpc_call(world->rpc, path->ranks[0], "add", &piece, 1, NULL, NULL);
}

tutti_status world_grad(struct world *world, int rank, uint64_t context, int param,
			float grad[WORLD_COUNT])
{
	const struct grad_order order = {.context = context, .param = param};
	const tutti_rpc_piece piece = {&order, sizeof order};
	tutti_rpc_answer answer = {.data = grad, .bytes = WORLD_COUNT * sizeof *grad};

	return tutti_rpc_call(world->rpc, rank, "grad", &piece, 1, &answer, NULL);
}

void world_value(struct world *world, int rank, int param, float value[WORLD_COUNT])
{
	const int32_t number = param;
	const tutti_rpc_piece piece = {&number, sizeof number};
	tutti_rpc_answer answer = {.data = value, .bytes = WORLD_COUNT * sizeof *value};

	CHECK(tutti_rpc_call(world->rpc, rank, "value", &piece, 1, &answer, NULL) == TUTTI_OK);
}

void world_await_contexts(struct world *world, int rank, int most)
{
	int32_t count = most + 1;

	while (count > most) {
		tutti_rpc_answer answer = {.data = &count, .bytes = sizeof count};
		if (tutti_rpc_call(world->rpc, rank, "count", NULL, 0, &answer, NULL) != TUTTI_OK) {
			CHECK(!"no answer to count");
			return;
		}
		sched_yield();
	}
}
