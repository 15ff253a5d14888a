/* A collective as a task of the engine: its plan, its sizes, its entry in the trace. */
#include "collectives/comm/plan_cache.h"
#include "collectives/engine/engine.h"

#include "memory/ops.h"

static tutti_status add_plan(struct tutti_comm *comm, const struct algorithm *a,
			     struct task_spec *spec)
{
	struct plan_key key = {.rank = comm->rank,
			       .size = comm->size,
			       .root = collective_has_root(a->collective) ? spec->args.root : 0,
			       .in_place = spec->args.send == spec->args.recv,
			       .nodes = comm->select.nodes};
	key.options.staged = !(comm->reach.kinds_in_place & 1u << spec->memory->id);
	key.options.scaled = op_scalar(spec->args.op) != NULL;
	spec->layout = layout_of(&spec->args, comm->size, algorithm_split(a, comm->size));
	spec->width = algorithm_width(a, comm->size, key.options);
	spec->checks_counts = spec->args.collective == COLL_ALL_TO_ALLV;
	return plan_cache_find(comm, a, &key, &spec->plan);
}

tutti_status comm_describe_task(struct tutti_comm *comm, const struct call_args *args,
				const struct algorithm *algorithm, const struct memory_kind *memory,
				const tutti_call *call, struct task_spec *spec)
{
	bool has_plan = algorithm && algorithm->build;

	*spec = (struct task_spec){.kind = has_plan ? &plan_tasks : &window_tasks,
				   .args = *args,
				   .memory = memory,
				   .name = collective_name(args->collective),
				   .algorithm = algorithm ? algorithm->name : "window",
				   .timeout_ms = comm_timeout_ms(comm, call)};
	if (call) {
		spec->done = call->done;
		spec->done_arg = call->done_arg;
	}
	spec->send_bytes = layout_extent(args, comm->rank, comm->size, SEND_SIDE);
	spec->recv_bytes = layout_extent(args, comm->rank, comm->size, RECV_SIDE);
	if (has_plan)
		TRY(add_plan(comm, algorithm, spec));
	spec->trace = trace_call(comm->calls.trace, args,
				 has_plan ? (unsigned)plan_cache_index(algorithm) : TRACE_BY_WINDOW,
				 (comm_waits(call) ? 0 : TRACE_IS_ASYNC) |
					 (args->is_grouped ? TRACE_IS_GROUPED : 0));
	return TUTTI_OK;
}

tutti_status comm_submit(struct tutti_comm *comm, const struct task_spec *spec,
			 const tutti_call *call)
{
	struct tutti_work *work;

	TRY(engine_submit(comm->engine, spec, &work));
	if (call->work)
		*call->work = work;
	else
		work_release(work);
	return TUTTI_OK;
}
