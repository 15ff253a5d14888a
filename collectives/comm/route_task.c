/* A call as a task of the engine, whichever route it takes: what its memory and its stream allow,
 * its plan, its number, and how it starts. */
#include "collectives/comm/routes.h"
#include "collectives/device/device.h"

#include "core/memory/ops.h"

static enum route_ending route_ending_of(const tutti_call *call, const struct memory_kind *memory)
{
	if (call && (call->work || call->done))
		return ROUTE_HANDLED;
	return call && memory->stream_check ? ROUTE_IN_STREAM : ROUTE_WAITS;
}

bool route_goes_into_graph(const tutti_call *call)
{
	const struct memory_kind *cuda = memory_kind(TUTTI_MEMORY_CUDA);

	return call && call->stream && cuda && cuda->is_captured(call->stream);
}

tutti_status route_check_memory(struct route_call *c)
{
	const struct call_args *args = c->args;

	if (c->memory->id == TUTTI_MEMORY_HOST)
		return TUTTI_OK;
	if (op_user(args->op))
		return fail(TUTTI_ERR_INVALID, "%s: %s works on host memory only, not on %s memory",
			    collective_name(args->collective), op_name(args->op), c->memory->name);
	if (route_copies_send(args))
		return fail(TUTTI_ERR_INVALID, "%s: in place it needs host memory, not %s memory",
			    collective_name(args->collective), c->memory->name);
	return TUTTI_OK;
}

/* Calls on device memory are in the order of a stream, and those on host memory that name one. */
tutti_status route_find_stream(struct route_call *c)
{
	const struct call_args *args = c->args;
	const void *near = args->recv ? args->recv : args->send;
	void *stream = c->call ? c->call->stream : NULL;
	bool is_device = c->memory->stream_check != NULL;
	bool is_in_stream = c->route && c->route->is_in_stream;

	c->ending =
		route_ending_of(c->call, is_in_stream ? memory_kind(TUTTI_MEMORY_CUDA) : c->memory);
	c->stream_kind = NULL;
	if (is_in_stream && c->route->by_kernels) /* its check has seen to it */
		return TUTTI_OK;
	if (__builtin_expect(!is_device && !stream, 1))
		return TUTTI_OK;
	c->stream_kind = is_device ? c->memory : memory_kind(TUTTI_MEMORY_CUDA);
	if (!c->stream_kind)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: call.stream is set, but there is no CUDA driver, libcuda.so.1",
			    collective_name(args->collective));
	if (route_copies_send(args))
		return fail(TUTTI_ERR_INVALID, "%s: in place it goes without call.stream",
			    collective_name(args->collective));
	return c->stream_kind->stream_check(stream, is_device ? near : NULL);
}

/* Of a split's rounds only the first is recorded. */
void route_take_number(struct tutti_comm *comm, const struct route_call *c)
{
	const struct call_args *args = c->args;

	if (call_is_later_round(args))
		return;
	recorder_add(comm->calls.recorder, args->sequence, &c->record);
	comm->calls.fingerprint = c->record.fingerprint;
	atomic_store_explicit(&comm->calls.sequence, args->sequence + 1, memory_order_relaxed);
}

static tutti_status route_add_plan(struct tutti_comm *comm, const struct algorithm *a,
				   struct task_spec *spec)
{
	struct plan_key key = {.rank = comm->rank,
			       .size = comm->size,
			       .root = collective_has_root(a->collective) ? spec->args.root : 0,
			       .in_place = spec->args.send == spec->args.recv && !spec->copies_send,
			       .nodes = comm->select.nodes};
	key.options.staged = !(comm->reach.kinds_in_place & 1u << spec->memory->id);
	key.options.scaled = op_scalar(spec->args.op) != NULL;
	key.options.across = spec->kind == &device_across_tasks;
	key.in_place |= key.options.across;
	spec->layout = layout_of(&spec->args, comm->size, algorithm_split(a, comm->size));
	spec->width = algorithm_width(a, comm->size, key.options);
	if (key.options.across) /* it exchanges with the ranks of one lane only */
		spec->width = algorithm_width(a, comm->select.num_nodes, key.options);
	spec->checks_counts = spec->args.collective == COLL_ALL_TO_ALLV;
	TRY(plan_cache_find(comm, a, &key, &spec->plan));
	if (!key.options.staged || spec->direct_kind != spec->memory->id)
		return TUTTI_OK;
	key.options.direct = comm->reach.direct;
	key.options.direct_kind = (uint8_t)(1u << spec->direct_kind);
	TRY(plan_cache_find(comm, a, &key, &spec->direct_plan));
	if (collective_has_counts(spec->args.collective))
		return TUTTI_OK;
	key.options.whole = true;
	return plan_cache_find(comm, a, &key, &spec->whole_plan);
}

static void route_note_in_trace(struct tutti_comm *comm, const struct route_call *c,
				struct task_spec *spec)
{
	unsigned by = spec->plan             ? (unsigned)plan_cache_index(c->algorithm)
		      : c->route->by_kernels ? TRACE_BY_DEVICE
					     : TRACE_BY_WINDOW;
	unsigned flags = c->ending == ROUTE_WAITS ? 0 : TRACE_IS_ASYNC;

	if (c->call && c->call->label)
		trace_label(comm->calls.trace, c->call->label);
	spec->trace = trace_call(comm->calls.trace, c->args, by,
				 flags | (c->args->is_grouped ? TRACE_IS_GROUPED : 0));
}

tutti_status route_describe(struct tutti_comm *comm, const struct route_call *c,
			    const struct task_kind *kind, struct task_spec *spec)
{
	const struct algorithm *algorithm = c->algorithm;
	const struct call_args *args = c->args;
	bool by_kernels = c->route->by_kernels;

	*spec = (struct task_spec){.kind = kind,
				   .args = *args,
				   .memory = c->memory,
				   .stream_kind = c->stream_kind,
				   .name = collective_name(args->collective),
				   .algorithm = algorithm    ? algorithm->name
						: by_kernels ? "device"
							     : "window",
				   .device = by_kernels ? comm->device : NULL,
				   .is_in_stream = c->ending == ROUTE_IN_STREAM,
				   .direct_kind = comm->reach.direct_kind,
				   .timeout_ms = comm_timeout_ms(comm, c->call)};
	if (c->call) {
		spec->stream = c->call->stream;
		spec->done = c->call->done;
		spec->done_arg = c->call->done_arg;
	}
	spec->send_bytes = layout_extent(args, comm->rank, comm->size, SEND_SIDE);
	spec->recv_bytes = layout_extent(args, comm->rank, comm->size, RECV_SIDE);
	spec->copies_send = route_copies_send(args);
	if (algorithm && algorithm->build)
		TRY(route_add_plan(comm, algorithm, spec));
	route_note_in_trace(comm, c, spec);
	return TUTTI_OK;
}

tutti_status route_submit(struct tutti_comm *comm, const struct route_call *c,
			  const struct task_spec *spec)
{
	bool is_in_stream = c->route && c->route->is_in_stream;
	struct tutti_work *work;
	tutti_status status = TUTTI_OK;

	TRY(engine_submit(comm->engine, spec, &work));
	if (c->ending == ROUTE_IN_STREAM && !is_in_stream)
		status = work_wait_stream(work, spec->stream_kind, spec->stream);
	if (status != TUTTI_OK)
		engine_fail_stream(comm->engine, status, spec->name);
	if (c->call->work)
		*c->call->work = work;
	else
		work_release(work);
	return status;
}

tutti_status route_start(struct tutti_comm *comm, const struct route_call *c,
			 const struct task_spec *spec)
{
	route_take_number(comm, c);
	if (c->ending != ROUTE_WAITS)
		return route_submit(comm, c, spec);
	comm_begin_wait(comm);
	return engine_run(comm->engine, spec);
}
