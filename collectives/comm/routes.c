/* The routes of a collective call, and which one it takes. */
#include "collectives/comm/routes.h"

#include "collectives/device/device.h"
#include "core/memory/ops.h"
#include "cuda/kind.h"

#include <assert.h>
#include <stdlib.h>

/* The plans of a communicator, by algorithm, and there by what a plan depends on besides. */
struct cached_plan {
	struct cached_plan *next;
	struct plan *plan;
	int root;
	bool in_place;
	struct plan_options options;
};

/* Its row in the table of algorithms. */
static int route_plan_cache_index(const struct algorithm *a)
{
	int index = (int)(a - algorithm_at(0));

	assert(index >= 0 && index < ALGORITHMS);
	return index;
}

/* A plan serves every size, pointer and dtype; built when first asked for. MEMORY. */
static tutti_status route_plan_cache_find(struct tutti_comm *comm, const struct algorithm *a,
					  const struct plan_key *key, const struct plan **plan)
{
	struct cached_plan **list = &comm->plans[route_plan_cache_index(a)], *c;

	for (c = *list; c; c = c->next)
		if (c->root == key->root && c->in_place == key->in_place &&
		    c->options.staged == key->options.staged &&
		    c->options.scaled == key->options.scaled &&
		    c->options.across == key->options.across &&
		    c->options.direct_kind == key->options.direct_kind &&
		    c->options.whole == key->options.whole) {
			*plan = c->plan;
			return TUTTI_OK;
		}
	c = malloc(sizeof *c);
	struct plan *made = algorithm_plan(a, key);
	if (!c || !made) {
		free(c);
		plan_free(made);
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for the plan of %s %s",
			    comm->rank, collective_name(a->collective), a->name);
	}
	*c = (struct cached_plan){*list, made, key->root, key->in_place, key->options};
	*list = c;
	*plan = made;
	return TUTTI_OK;
}

void plan_cache_free(struct tutti_comm *comm)
{
	for (int i = 0; i < ALGORITHMS; i++)
		while (comm->plans[i]) {
			struct cached_plan *c = comm->plans[i];
			comm->plans[i] = c->next;
			plan_free(c->plan);
			free(c);
		}
}

/* A call as a task of the engine, whichever route it takes: what its memory and its stream allow,
 * its plan, its number, and how it starts. */
static enum route_ending route_ending_of(const tutti_call *call, const struct memory_kind *memory)
{
	if (call && (call->work || call->done))
		return ROUTE_HANDLED;
	return call && memory->id == TUTTI_MEMORY_CUDA ? ROUTE_IN_STREAM : ROUTE_WAITS;
}

bool route_goes_into_graph(const tutti_call *call)
{
	return call && call->stream && memory_kind(TUTTI_MEMORY_CUDA) &&
	       cuda_is_captured(call->stream);
}

/* INVALID: an operation, or a call in place, that needs host memory. */
static tutti_status route_check_memory(struct route_call *c)
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
	bool is_device = c->memory->id == TUTTI_MEMORY_CUDA;
	bool is_in_stream = c->route && c->route->is_in_stream;

	c->ending =
		route_ending_of(c->call, is_in_stream ? memory_kind(TUTTI_MEMORY_CUDA) : c->memory);
	c->is_ordered = false;
	if (is_in_stream && c->route->by_kernels) /* its check has seen to it */
		return TUTTI_OK;
	if (__builtin_expect(!is_device && !stream, 1))
		return TUTTI_OK;
	if (!memory_kind(TUTTI_MEMORY_CUDA))
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: call.stream is set, but there is no CUDA driver, libcuda.so.1",
			    collective_name(args->collective));
	if (route_copies_send(args))
		return fail(TUTTI_ERR_INVALID, "%s: in place it goes without call.stream",
			    collective_name(args->collective));
	c->is_ordered = true;
	return cuda_stream_check(stream, is_device ? near : NULL);
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
	TRY(route_plan_cache_find(comm, a, &key, &spec->plan));
	if (!key.options.staged || spec->direct_kind != spec->memory->id)
		return TUTTI_OK;
	key.options.direct = comm->reach.direct;
	key.options.direct_kind = (uint8_t)(1u << spec->direct_kind);
	TRY(route_plan_cache_find(comm, a, &key, &spec->direct_plan));
	if (collective_has_counts(spec->args.collective))
		return TUTTI_OK;
	key.options.whole = true;
	return route_plan_cache_find(comm, a, &key, &spec->whole_plan);
}

static void route_note_in_trace(struct tutti_comm *comm, const struct route_call *c,
				struct task_spec *spec)
{
	unsigned by = spec->plan             ? (unsigned)route_plan_cache_index(c->algorithm)
		      : c->route->by_kernels ? TRACE_BY_DEVICE
					     : TRACE_BY_WINDOW;
	unsigned flags = c->ending == ROUTE_WAITS ? 0 : TRACE_IS_ASYNC;

	if (c->call && c->call->label)
		trace_label(comm->calls.trace, c->call->label);
	spec->trace = trace_call(comm->calls.trace, c->args, by,
				 flags | (c->args->is_grouped ? TRACE_IS_GROUPED : 0));
}

/* A spec for route_start: its plan, its sizes, its entry in the trace. */
static tutti_status route_describe(struct tutti_comm *comm, const struct route_call *c,
				   const struct task_kind *kind, struct task_spec *spec)
{
	const struct algorithm *algorithm = c->algorithm;
	const struct call_args *args = c->args;
	bool by_kernels = c->route->by_kernels;

	*spec = (struct task_spec){.kind = kind,
				   .args = *args,
				   .memory = c->memory,
				   .is_ordered = c->is_ordered,
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
		status = work_wait_stream(work, spec->stream);
	if (status != TUTTI_OK)
		engine_fail_stream(comm->engine, status, spec->name);
	if (c->call->work)
		*c->call->work = work;
	else
		work_release(work);
	return status;
}

/* Runs spec to its end or submits it. */
static tutti_status route_start(struct tutti_comm *comm, const struct route_call *c,
				const struct task_spec *spec)
{
	if (c->ending != ROUTE_WAITS)
		return route_submit(comm, c, spec);
	comm_begin_wait(comm);
	return engine_run(comm->engine, spec);
}

/* The routes by a plan of messages: at once, or whenever a graph is launched. This one is behind
 * route_kernels: kernels that meet are captured themselves, and all else is replayed. */
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
	route_take_number(comm, c);
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
	route_take_number(comm, c);
	return route_start(comm, c, &spec);
}

static const struct route route_replay = {.name = "replay",
					  .serves = route_serves_replay,
					  .check = route_check_replay,
					  .begin = route_begin_replay,
					  .is_in_stream = true};
static const struct route route_messages = {.name = "messages",
					    .serves = route_serves_messages,
					    .check = route_check_memory,
					    .begin = route_begin_messages};

/* The routes by kernels of GPUs. Kernels that meet are an operation of the caller's stream, and so
 * are those of ranks that take turns; across nodes they are in a stream of their own. */
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
	route_take_number(comm, c);
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
	route_take_number(comm, c);
	return route_start(comm, c, &spec);
}

static const struct route route_kernels = {.name = "kernels",
					   .serves = route_serves_kernels,
					   .check = route_check_in_stream,
					   .begin = route_begin_in_stream,
					   .by_kernels = true,
					   .is_in_stream = true};
static const struct route route_turns = {.name = "turns",
					 .serves = route_serves_turns,
					 .check = route_check_in_stream,
					 .begin = route_begin_in_stream,
					 .by_kernels = true,
					 .is_in_stream = true};
static const struct route route_across = {.name = "across",
					  .serves = route_serves_across,
					  .check = route_check_across,
					  .begin = route_begin_across,
					  .by_kernels = true};

/* The route through the window. An allocation has no algorithm. */
static bool route_serves_window(const struct route_call *c)
{
	return c->is_selected_for_window || !c->algorithm;
}

/* A plain call on host memory needs no task of the engine: a blocking one runs in its caller's
 * thread, and one with a handle is alone (collectives/engine/window_calls.c). */
static bool route_is_plain(const struct route_call *c)
{
	const tutti_call *call = c->call;

	return c->is_selected_for_window && c->memory->id == TUTTI_MEMORY_HOST &&
	       !route_copies_send(c->args) &&
	       !(call && (call->stream || call->label || call->done));
}

/* IN_PROGRESS: it has to be queued behind other calls. */
static tutti_status route_run_plain(struct tutti_comm *comm, const struct route_call *c)
{
	int timeout_ms = comm_timeout_ms(comm, c->call);

	route_take_number(comm, c);
	if (c->ending == ROUTE_WAITS) {
		comm_begin_wait(comm);
		return engine_run_window(comm->engine, c->args, timeout_ms);
	}
	struct tutti_work *work = engine_submit_alone(comm->engine, c->args, timeout_ms);
	if (!work)
		return TUTTI_IN_PROGRESS;
	*c->call->work = work;
	return TUTTI_OK;
}

static tutti_status route_begin_window(struct tutti_comm *comm, const struct route_call *c)
{
	struct task_spec spec;
	bool is_plain = route_is_plain(c);

	if (is_plain) {
		tutti_status status = route_run_plain(comm, c);
		if (status != TUTTI_IN_PROGRESS)
			return status;
	}
	TRY(route_describe(comm, c, &window_tasks, &spec));
	if (!is_plain)
		route_take_number(comm, c);
	return route_start(comm, c, &spec);
}

const struct route route_window = {.name = "window",
				   .serves = route_serves_window,
				   .check = route_check_memory,
				   .begin = route_begin_window};

/* In order of priority: the first that serves a call takes it. */
static const struct route *const routes[] = {
	&route_kernels,  /* kernels of all ranks, which meet                */
	&route_replay,   /* into a graph, whose launches the engine follows */
	&route_turns,    /* kernels of ranks that share a GPU               */
	&route_across,   /* kernels on each node, messages between nodes    */
	&route_window,   /* shared memory                                   */
	&route_messages, /* a plan of messages                              */
};

/* The kind of memory of the call's buffers; a rank that has none of them here says host. */
static tutti_status route_find_memory(struct route_call *c)
{
	const struct call_args *a = c->args;

	c->memory = memory_of(a->recv ? a->recv : a->send);
	if (a->send && a->recv && a->send != a->recv && memory_of(a->send) != c->memory)
		return fail(TUTTI_ERR_INVALID, "%s: send is %s memory and recv is %s memory",
			    collective_name(a->collective), memory_of(a->send)->name,
			    c->memory->name);
	return TUTTI_OK;
}

/* What serves the call unless its memory or its stream asks for another route. */
static tutti_status route_find_algorithm(struct route_call *c)
{
	const struct select *select = &c->comm->select;

	c->algorithm = NULL;
	c->is_selected_for_window = false;
	if (c->args->collective == COLL_MEM_ALLOC)
		return TUTTI_OK;
	if (!select_is_window(select))
		TRY(select_algorithm(select, c->args, &c->algorithm));
	c->is_selected_for_window = !c->algorithm || !c->algorithm->build;
	return TUTTI_OK;
}

tutti_status route_find(struct route_call *c)
{
	const struct route *const *route = routes;
	tutti_status status = engine_status(c->comm->engine);

	if (__builtin_expect(status != TUTTI_OK, 0))
		return fail(status, "%s", engine_error(c->comm->engine));
	TRY(route_find_algorithm(c));
	TRY(route_find_memory(c));
	/* The last one serves all. */
	while (!(*route)->serves(c))
		route++;
	c->route = *route;
	return c->route->check(c);
}
