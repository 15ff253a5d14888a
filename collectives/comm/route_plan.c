/* The routes by a plan of messages: at once, or whenever a graph is launched. */
#include "collectives/comm/routes.h"

/* Behind route_kernels: kernels that meet are captured themselves, and all else is replayed. */
static bool route_serves_replay(const struct route_call *c)
{
	return route_goes_into_graph(c->call);
}

static tutti_status route_check_replay(struct route_call *c)
{
	TRY(select_planned(&c->comm->select, c->args, &c->algorithm));
	return route_check_memory(c);
}

static tutti_status route_begin_replay(struct tutti_comm *comm, const struct route_call *c)
{
	struct task_spec spec;

	TRY(engine_check_capture(comm->engine));
	TRY(route_describe(comm, c, &captured_tasks, &spec));
	spec.replays_as = &plan_tasks;
	return route_start(comm, c, &spec);
}

/* The last of the routes. */
static bool route_serves_messages(const struct route_call *c)
{
	(void)c;
	return true;
}

static tutti_status route_begin_messages(struct tutti_comm *comm, const struct route_call *c)
{
	struct task_spec spec;

	TRY(route_describe(comm, c, &plan_tasks, &spec));
	return route_start(comm, c, &spec);
}

const struct route route_replay = {.name = "replay",
				   .serves = route_serves_replay,
				   .check = route_check_replay,
				   .begin = route_begin_replay,
				   .is_in_stream = true};
const struct route route_messages = {.name = "messages",
				     .serves = route_serves_messages,
				     .check = route_check_memory,
				     .begin = route_begin_messages};
