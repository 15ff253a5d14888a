/* One call's way from the API to the engine: how a thread enters a communicator, what serves the
 * call, its number and its task, and the choice between waiting here and handing out a handle. */
#include "collectives/comm/comm.h"
#include "collectives/device/device.h"
#include "collectives/engine/engine.h"
#include "collectives/trace/trace.h"

#include "core/callback.h"
#include "core/clock.h"
#include "core/memory/ops.h"

#include <sched.h>

/* A callback may run before the call that it belongs to has returned in its own thread. Waits for
 * that return, up to the timeout: the thread may have left the call by longjmp. */
static bool comes_after(struct tutti_comm *comm)
{
	uint64_t deadline_ns = callback_in_done ? deadline_after_ms(comm->settings.timeout_ms) : 0;
	int state = 0;

	while (callback_in_done && state != 2 && clock_now_ns() < deadline_ns) {
		state = 0;
		if (atomic_compare_exchange_weak_explicit(&comm->calls.is_issuing, &state, 1,
							  memory_order_acquire,
							  memory_order_relaxed))
			return true;
		sched_yield();
	}
	return false;
}

tutti_status comm_enter_slowly(struct tutti_comm *comm, const char *name)
{
	if (engine_is_in_callback(comm->engine)) {
		fail(TUTTI_ERR_INVALID,
		     "%s was called in a callback that holds the communicator's lock on rank %d: "
		     "a reduction function must not call Tutti with its communicator",
		     name, comm->rank);
		return engine_name_error(comm->engine, TUTTI_ERR_INVALID);
	}
	if (comes_after(comm))
		return TUTTI_OK;
	fail(TUTTI_ERR_INVALID,
	     "%s: another thread is in a call of this communicator on rank %d: one thread at a "
	     "time issues calls",
	     name, comm->rank);
	return engine_name_error(comm->engine, TUTTI_ERR_INVALID);
}

void comm_lacks_memory(struct tutti_comm *comm)
{
	if (engine_status(comm->engine) == TUTTI_OK)
		engine_fail(comm->engine, TUTTI_ERR_MEMORY, last_error());
}

/* Returns status; if the communicator has failed, with its error message as this thread's. */
static tutti_status explain(const struct tutti_comm *comm, tutti_status status)
{
	if (engine_status(comm->engine) == TUTTI_OK)
		return status;
	engine_show_failure(comm->engine);
	return fail(status, "%s", engine_error(comm->engine));
}

/* How a call ends for its caller. */
enum ending {
	WAITS,     /* it returns when it is over; from begin_wait on it waits for that */
	IN_STREAM, /* it returns at once, and the later work of its stream waits       */
	HANDLED,   /* it returns at once, and a handle or a callback says the rest     */
};

static enum ending ending_of(const tutti_call *call, const struct memory_kind *memory)
{
	if (call && (call->work || call->done))
		return HANDLED;
	return call && memory->stream_check ? IN_STREAM : WAITS;
}

/* Whether what goes into the call's stream goes into a graph. */
static bool goes_into_graph(const tutti_call *call)
{
	const struct memory_kind *cuda = memory_kind(TUTTI_MEMORY_CUDA);

	return call && call->stream && cuda && cuda->is_captured(call->stream);
}

static void begin_wait(struct tutti_comm *comm)
{
	atomic_store_explicit(&comm->calls.is_issuing, 2, memory_order_relaxed);
}

/* How a call is served. */
struct way {
	const struct algorithm *algorithm; /* NULL: of a mem_alloc; it may be the window's     */
	bool is_window;
	const struct memory_kind *memory;
	const struct memory_kind *stream_kind; /* NULL: it is in no stream's order             */
	bool is_on_device;                     /* ... */
	bool is_across;                        /* ... and by messages between nodes */
	bool is_captured;                      /* for the engine to replay it */
	enum ending ending;
};

/* The kind of memory of the call's buffers; a rank that has none of them here says host. */
static tutti_status find_memory(const struct call_args *a, const struct memory_kind **memory)
{
	*memory = memory_of(a->recv ? a->recv : a->send);
	if (a->send && a->recv && a->send != a->recv && memory_of(a->send) != *memory)
		return fail(TUTTI_ERR_INVALID, "%s: send is %s memory and recv is %s memory",
			    collective_name(a->collective), memory_of(a->send)->name,
			    (*memory)->name);
	return TUTTI_OK;
}

static bool has_buffers(const struct call_args *args)
{
	return args->send || args->recv;
}

/* An all_to_all in place would overwrite blocks that it still has to send. */
static bool copies_send(const struct call_args *args)
{
	return args->send && args->send == args->recv &&
	       collective_pattern(args->collective) == COLL_ALL_TO_ALL;
}

/* Whether the ranks of each node do their part on their GPUs, and the nodes exchange messages, by
 * the plan two_level: then that is the way's algorithm. */
static bool goes_across(const struct tutti_comm *comm, const struct call_args *args,
			struct way *way)
{
	const struct algorithm *two_level;

	if (!comm->device || way->memory->id != TUTTI_MEMORY_CUDA ||
	    !device_serves_across(comm->device, args))
		return false;
	two_level = algorithm_find(collective_pattern(args->collective), "two_level");
	if (select_why_not(&comm->select, two_level, args) ||
	    (comm->select.rules && way->algorithm != two_level))
		return false;
	way->algorithm = two_level;
	return true;
}

/* Whether kernels of the ranks meet, or take turns. */
static bool goes_on_device(const struct tutti_comm *comm, const struct call_args *args,
			   const struct way *way, const tutti_call *call)
{
	if (!comm->device || (way->memory->id != TUTTI_MEMORY_CUDA && has_buffers(args)))
		return false;
	return device_serves(comm->device, args) ||
	       (call && device_serves_captured(comm->device, args) &&
		device_captures(comm->device, call->stream));
}

/* Kernels that meet are captured themselves. All else that goes into a graph is for the engine to
 * replay, by a plan. */
static bool is_for_replay(const struct tutti_comm *comm, const struct way *way,
			  const tutti_call *call)
{
	return !(way->is_on_device && device_meets(comm->device)) && goes_into_graph(call);
}

static tutti_status find_way(const struct tutti_comm *comm, const struct call_args *args,
			     const tutti_call *call, struct way *way)
{
	tutti_status status = engine_status(comm->engine);

	if (__builtin_expect(status != TUTTI_OK, 0))
		return fail(status, "%s", engine_error(comm->engine));
	*way = (struct way){.is_window = select_is_window(&comm->select)};
	if (args->collective == COLL_MEM_ALLOC) {
		way->is_window = false;
	} else if (!way->is_window) {
		TRY(select_algorithm(&comm->select, args, &way->algorithm));
		way->is_window = !way->algorithm->build;
	}
	TRY(find_memory(args, &way->memory));
	way->is_on_device = goes_on_device(comm, args, way, call);
	if (is_for_replay(comm, way, call)) {
		way->is_captured = true;
		way->is_on_device = way->is_window = false;
		TRY(select_planned(&comm->select, args, &way->algorithm));
	} else if (way->is_on_device) {
		way->memory = memory_kind(TUTTI_MEMORY_CUDA);
		way->is_window = false;
		way->algorithm = NULL;
	} else {
		way->is_across = goes_across(comm, args, way);
	}
	if (way->memory->id != TUTTI_MEMORY_HOST && op_user(args->op))
		return fail(TUTTI_ERR_INVALID, "%s: %s works on host memory only, not on %s memory",
			    collective_name(args->collective), op_name(args->op),
			    way->memory->name);
	if (way->memory->id != TUTTI_MEMORY_HOST && copies_send(args))
		return fail(TUTTI_ERR_INVALID, "%s: in place it needs host memory, not %s memory",
			    collective_name(args->collective), way->memory->name);
	return TUTTI_OK;
}

/* Calls on device memory are in the order of a stream, and those on host memory that name one. */
static tutti_status find_stream(const struct tutti_comm *comm, const struct call_args *args,
				const tutti_call *call, struct way *way)
{
	void *stream = call ? call->stream : NULL;
	const void *near = args->recv ? args->recv : args->send;
	bool is_device = way->memory->stream_check != NULL;

	way->ending =
		ending_of(call, way->is_captured ? memory_kind(TUTTI_MEMORY_CUDA) : way->memory);
	way->stream_kind = NULL;
	if (way->is_on_device || way->is_across)
		TRY(device_check(comm->device, args, call));
	if (way->is_on_device)
		return TUTTI_OK;
	if (__builtin_expect(!is_device && !stream, 1))
		return TUTTI_OK;
	way->stream_kind = is_device ? way->memory : memory_kind(TUTTI_MEMORY_CUDA);
	if (!way->stream_kind)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: call.stream is set, but there is no CUDA driver, libcuda.so.1",
			    collective_name(args->collective));
	if (copies_send(args))
		return fail(TUTTI_ERR_INVALID, "%s: in place it goes without call.stream",
			    collective_name(args->collective));
	TRY(way->stream_kind->stream_check(stream, is_device ? near : NULL));
	return way->is_captured ? engine_check_capture(comm->engine) : TUTTI_OK;
}

tutti_status comm_check_call(const struct tutti_comm *comm, const struct call_args *args)
{
	struct way way;

	TRY(find_way(comm, args, NULL, &way));
	return way.is_on_device || way.is_across ? device_check(comm->device, args, NULL)
						 : TUTTI_OK;
}

/* Here the call becomes the communicator's next. Of a split's rounds only the first is recorded. */
static void take_number(struct tutti_comm *comm, const struct call_args *args,
			const struct call_record *record)
{
	if (call_is_later_round(args))
		return;
	recorder_add(comm->calls.recorder, args->sequence, record);
	comm->calls.fingerprint = record->fingerprint;
	atomic_store_explicit(&comm->calls.sequence, args->sequence + 1, memory_order_relaxed);
}

static tutti_status add_plan(struct tutti_comm *comm, const struct algorithm *a,
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

static const struct task_kind *kind_of(const struct way *way)
{
	if (way->is_captured)
		return &captured_tasks;
	if (way->is_on_device)
		return &device_tasks;
	if (way->is_across)
		return &device_across_tasks;
	return way->algorithm && way->algorithm->build ? &plan_tasks : &window_tasks;
}

/* The collective as a task of the engine: its plan, its sizes, its entry in the trace. */
static tutti_status describe_task(struct tutti_comm *comm, const struct call_args *args,
				  const struct way *way, const tutti_call *call,
				  struct task_spec *spec)
{
	const struct algorithm *algorithm = way->algorithm;
	bool has_plan = algorithm && algorithm->build;

	*spec = (struct task_spec){.kind = kind_of(way),
				   .args = *args,
				   .memory = way->memory,
				   .stream_kind = way->stream_kind,
				   .name = collective_name(args->collective),
				   .algorithm = algorithm           ? algorithm->name
						: way->is_on_device ? "device"
								    : "window",
				   .device = way->is_on_device || way->is_across ? comm->device
										 : NULL,
				   .is_in_stream = way->ending == IN_STREAM,
				   .direct_kind = comm->reach.direct_kind,
				   .timeout_ms = comm_timeout_ms(comm, call)};
	if (way->is_captured)
		spec->replays_as = &plan_tasks;
	if (call) {
		spec->stream = call->stream;
		spec->done = call->done;
		spec->done_arg = call->done_arg;
	}
	spec->send_bytes = layout_extent(args, comm->rank, comm->size, SEND_SIDE);
	spec->recv_bytes = layout_extent(args, comm->rank, comm->size, RECV_SIDE);
	spec->copies_send = copies_send(args);
	if (has_plan)
		TRY(add_plan(comm, algorithm, spec));
	if (call && call->label)
		trace_label(comm->calls.trace, call->label);
	spec->trace = trace_call(comm->calls.trace, args,
				 has_plan            ? (unsigned)plan_cache_index(algorithm)
				 : way->is_on_device ? TRACE_BY_DEVICE
						     : TRACE_BY_WINDOW,
				 (way->ending == WAITS ? 0 : TRACE_IS_ASYNC) |
					 (args->is_grouped ? TRACE_IS_GROUPED : 0));
	return TUTTI_OK;
}

/* Hands out the work of a call that does not wait, or puts its end into its stream. */
static tutti_status submit(struct tutti_comm *comm, const struct task_spec *spec,
			   enum ending ending, const tutti_call *call)
{
	struct tutti_work *work;
	tutti_status status = TUTTI_OK;

	TRY(engine_submit(comm->engine, spec, &work));
	if (ending == IN_STREAM && spec->kind != &device_tasks && spec->kind != &captured_tasks)
		status = work_wait_stream(work, spec->stream_kind, spec->stream);
	if (status != TUTTI_OK)
		engine_fail_stream(comm->engine, status, spec->name);
	if (call->work)
		*call->work = work;
	else
		work_release(work);
	return status;
}

/* The same of a call of the window on host memory. */
static tutti_status submit_to_window(struct tutti_comm *comm, const struct call_args *args,
				     const struct way *way, const tutti_call *call)
{
	struct task_spec spec;
	struct tutti_work *work = NULL;

	if (call->work && !call->done)
		work = engine_submit_alone(comm->engine, args, comm_timeout_ms(comm, call));
	if (work) {
		*call->work = work;
		return TUTTI_OK;
	}
	TRY(describe_task(comm, args, way, call, &spec));
	return submit(comm, &spec, way->ending, call);
}

/* An invalid call uses no sequence number: args were checked before, and what can still be refused
 * is refused before take_number. */
tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	struct way way;
	struct task_spec spec;
	tutti_status status = TUTTI_OK;

	TRY(find_way(comm, args, call, &way));
	TRY(find_stream(comm, args, call, &way));
	args->is_on_device = way.is_on_device || way.is_across;
	args->sequence = atomic_load_explicit(&comm->calls.sequence, memory_order_relaxed);
	if (call_is_later_round(args))
		args->sequence--; /* its first round's */
	struct call_record record = call_record_of(args, comm->size, comm->calls.fingerprint);
	args->fingerprint = record.fingerprint;
	bool waits = way.ending == WAITS;
	bool is_direct = way.is_window && way.memory->id == TUTTI_MEMORY_HOST && !way.stream_kind &&
			 !copies_send(args) && !(call && call->label);
	if (!is_direct)
		status = describe_task(comm, args, &way, call, &spec);
	if (status == TUTTI_OK) {
		take_number(comm, args, &record);
		if (waits)
			begin_wait(comm);
		int timeout_ms = comm_timeout_ms(comm, call);
		if (waits)
			status = is_direct ? engine_run_window(comm->engine, args, timeout_ms)
					   : engine_run(comm->engine, &spec);
		else
			status = is_direct ? submit_to_window(comm, args, &way, call)
					   : submit(comm, &spec, way.ending, call);
	}
	return __builtin_expect(status != TUTTI_OK, 0) ? explain(comm, status) : status;
}

tutti_status comm_call_alone(struct tutti_comm *comm, struct call_args *args,
			     const tutti_call *call)
{
	TRY(comm_enter(comm, collective_name(args->collective)));
	tutti_status status = comm_call(comm, args, call);
	if (status == TUTTI_ERR_MEMORY)
		comm_lacks_memory(comm);
	comm_leave(comm);
	return status;
}

/* A send or recv uses no sequence number of the communicator's: which message it is among the
 * trace's operations is its number there. */
static void trace_message(struct tutti_comm *comm, struct task_spec *spec, enum ending ending,
			  const tutti_call *call)
{
	const struct call_args *args = &spec->args;
	unsigned flags = ending == WAITS ? 0 : TRACE_IS_ASYNC;
	uint64_t number = atomic_load_explicit(&comm->calls.trace->issued, memory_order_relaxed);

	if (args->is_grouped)
		flags |= TRACE_IS_GROUPED;
	if (call && call->label)
		trace_label(comm->calls.trace, call->label);
	spec->trace =
		trace_note(comm->calls.trace,
			   trace_what(number, spec->p2p.side == P2P_SEND ? TRACE_SEND : TRACE_RECV,
				      (unsigned)args->dtype, TRACE_BY_MESSAGE, flags),
			   trace_size(args->count, spec->p2p.peer));
}

static bool captures_kernels(const struct tutti_comm *comm, void *stream)
{
	return comm->device && device_captures(comm->device, stream);
}

bool comm_captures(const struct tutti_comm *comm, void *stream)
{
	return captures_kernels(comm, stream) || goes_into_graph(&(tutti_call){.stream = stream});
}

tutti_status comm_check_captured(const struct tutti_comm *comm,
				 const struct task_spec *const *messages, size_t n, void *stream)
{
	if (captures_kernels(comm, stream))
		return device_check_messages(comm->device, messages, n, stream);
	TRY(memory_kind(TUTTI_MEMORY_CUDA)->stream_check(stream, NULL));
	TRY(device_check_captured(messages, n));
	return engine_check_capture(comm->engine);
}

/* All but the first, which has the work, are over at once. */
static void trace_captured(struct tutti_comm *comm, const struct task_spec *const *messages,
			   size_t n, const tutti_call *call)
{
	for (size_t i = n; i-- > 1;) {
		struct task_spec spec = *messages[i];
		trace_message(comm, &spec, HANDLED, call);
		trace_began(&spec.trace);
		trace_ended_late(&spec.trace, false);
	}
}

tutti_status comm_call_captured(struct tutti_comm *comm, const struct task_spec *const *messages,
				size_t n, const tutti_call *call)
{
	struct task_spec spec = *messages[0];
	bool by_kernels = captures_kernels(comm, call->stream);

	TRY(comm_check_captured(comm, messages, n, call->stream));
	spec.kind = by_kernels ? &device_message_tasks : &captured_tasks;
	spec.memory = memory_kind(TUTTI_MEMORY_CUDA);
	spec.stream_kind = by_kernels ? NULL : spec.memory;
	spec.device = by_kernels ? comm->device : NULL;
	spec.algorithm = by_kernels ? "device" : "p2p";
	spec.stream = call->stream;
	spec.done = call->done;
	spec.done_arg = call->done_arg;
	spec.messages = messages;
	spec.message_count = n;
	TRY(comm_enter(comm, spec.name));
	tutti_status status = engine_status(comm->engine);
	if (status == TUTTI_OK) {
		trace_captured(comm, messages, n, call);
		trace_message(comm, &spec, HANDLED, call);
		status = submit(comm, &spec, HANDLED, call);
	}
	comm_leave(comm);
	return status == TUTTI_OK ? status : explain(comm, status);
}

tutti_status comm_call_message(struct tutti_comm *comm, struct task_spec *spec,
			       const tutti_call *call)
{
	struct way way = {.memory = spec->memory};
	const struct task_spec *message = spec;

	if (call && comm_captures(comm, call->stream))
		return comm_call_captured(comm, &message, 1, call);
	TRY(find_stream(comm, &spec->args, call, &way));
	spec->stream_kind = way.stream_kind;
	spec->stream = call ? call->stream : NULL;
	spec->direct_kind = comm->reach.direct_kind;
	TRY(comm_enter(comm, spec->name));
	tutti_status status = engine_status(comm->engine);
	if (status == TUTTI_OK) {
		trace_message(comm, spec, way.ending, call);
		if (way.ending == WAITS) {
			begin_wait(comm);
			status = engine_run(comm->engine, spec);
		} else {
			status = submit(comm, spec, way.ending, call);
		}
	}
	comm_leave(comm);
	return status == TUTTI_OK ? status : explain(comm, status);
}
