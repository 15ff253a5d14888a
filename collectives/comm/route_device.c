/* The routes by kernels of GPUs. Kernels that meet are an operation of the caller's stream, and so
 * are those of ranks that take turns; across nodes they are in a stream of their own. */
#include "collectives/comm/routes.h"
#include "collectives/device/device.h"

static bool route_has_buffers(const struct call_args *args)
{
	return args->send || args->recv;
}

/* Whether kernels in the call's stream can do it, which meet or take turns. */
static bool route_serves_in_stream(const struct route_call *c)
{
	const struct device *device = c->comm->device;

	if (c->memory->id != TUTTI_MEMORY_CUDA && route_has_buffers(c->args))
		return false;
	return device_serves(device, c->args) ||
	       (c->call && device_serves_captured(device, c->args) &&
		device_captures(device, c->call->stream));
}

static bool route_serves_kernels(const struct route_call *c)
{
	return c->comm->device && device_meets(c->comm->device) && route_serves_in_stream(c);
}

static bool route_serves_turns(const struct route_call *c)
{
	return c->comm->device && !device_meets(c->comm->device) && route_serves_in_stream(c);
}

static tutti_status route_check_in_stream(struct route_call *c)
{
	c->memory = memory_kind(TUTTI_MEMORY_CUDA);
	c->algorithm = NULL;
	TRY(route_check_memory(c));
	return device_check(c->comm->device, c->args, c->call);
}

static tutti_status route_begin_in_stream(struct tutti_comm *comm, const struct route_call *c)
{
	struct task_spec spec;

	TRY(route_describe(comm, c, &device_tasks, &spec));
	return route_start(comm, c, &spec);
}

/* By the plan two_level, which does what the kernels leave. */
static const struct algorithm *route_two_level_of(const struct call_args *args)
{
	return algorithm_find(collective_pattern(args->collective), "two_level");
}

static bool route_serves_across(const struct route_call *c)
{
	const struct tutti_comm *comm = c->comm;

	if (!comm->device || c->memory->id != TUTTI_MEMORY_CUDA ||
	    !device_serves_across(comm->device, c->args))
		return false;
	const struct algorithm *two_level = route_two_level_of(c->args);
	return !select_why_not(&comm->select, two_level, c->args) &&
	       (!comm->select.rules || c->algorithm == two_level);
}

static tutti_status route_check_across(struct route_call *c)
{
	c->algorithm = route_two_level_of(c->args);
	TRY(route_check_memory(c));
	return device_check(c->comm->device, c->args, c->call);
}

static tutti_status route_begin_across(struct tutti_comm *comm, const struct route_call *c)
{
	struct task_spec spec;

	TRY(route_describe(comm, c, &device_across_tasks, &spec));
	return route_start(comm, c, &spec);
}

const struct route route_kernels = {.name = "kernels",
				    .serves = route_serves_kernels,
				    .check = route_check_in_stream,
				    .begin = route_begin_in_stream,
				    .by_kernels = true,
				    .is_in_stream = true};
const struct route route_turns = {.name = "turns",
				  .serves = route_serves_turns,
				  .check = route_check_in_stream,
				  .begin = route_begin_in_stream,
				  .by_kernels = true,
				  .is_in_stream = true};
const struct route route_across = {.name = "across",
				   .serves = route_serves_across,
				   .check = route_check_across,
				   .begin = route_begin_across,
				   .by_kernels = true};
