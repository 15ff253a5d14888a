/* The routes through the window. A plain call on host memory needs no task: a blocking one runs in
 * its caller's thread, and one with a handle beside which nothing is in flight is alone
 * (collectives/engine/window_task.c). */
#include "collectives/comm/routes.h"

static bool route_is_plain(const struct route_call *c)
{
	const tutti_call *call = c->call;

	return c->is_selected_for_window && c->memory->id == TUTTI_MEMORY_HOST &&
	       !route_copies_send(c->args) && !(call && (call->stream || call->label));
}

static bool route_serves_alone(const struct route_call *c)
{
	return c->call && c->call->work && !c->call->done && route_is_plain(c);
}

/* Whether something is in flight is known under the engine's lock: then it is submitted. */
static tutti_status route_begin_alone(struct tutti_comm *comm, const struct route_call *c)
{
	struct task_spec spec;

	route_take_number(comm, c);
	struct tutti_work *work =
		engine_submit_alone(comm->engine, c->args, comm_timeout_ms(comm, c->call));
	if (work) {
		*c->call->work = work;
		return TUTTI_OK;
	}
	TRY(route_describe(comm, c, &window_tasks, &spec));
	return route_submit(comm, c, &spec);
}

/* An allocation has no algorithm. */
static bool route_serves_window(const struct route_call *c)
{
	return c->is_selected_for_window || !c->algorithm;
}

static tutti_status route_begin_window(struct tutti_comm *comm, const struct route_call *c)
{
	struct task_spec spec;

	if (c->ending == ROUTE_WAITS && route_is_plain(c)) {
		route_take_number(comm, c);
		comm_begin_wait(comm);
		return engine_run_window(comm->engine, c->args, comm_timeout_ms(comm, c->call));
	}
	TRY(route_describe(comm, c, &window_tasks, &spec));
	return route_start(comm, c, &spec);
}

const struct route route_alone = {.name = "alone",
				  .serves = route_serves_alone,
				  .check = route_check_memory,
				  .begin = route_begin_alone};
const struct route route_window = {.name = "window",
				   .serves = route_serves_window,
				   .check = route_check_memory,
				   .begin = route_begin_window};
