/* One call from the API to its route: how a thread enters a communicator, a collective's number,
 * sends and receives, and their groups that are captured. */
#include "collectives/comm/routes.h"
#include "collectives/device/device.h"
#include "collectives/engine/engine.h"
#include "collectives/p2p/p2p.h"
#include "collectives/trace/trace.h"

#include "core/callback.h"
#include "core/clock.h"
#include "cuda/kind.h"

#include <sched.h>

/* A callback may run before the call that it belongs to has returned in its own thread. Waits for
 * that return, up to the timeout: the thread may have left the call by longjmp. */
static bool call_comes_after(struct tutti_comm *comm)
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
	if (call_comes_after(comm))
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
static tutti_status call_explain(const struct tutti_comm *comm, tutti_status status)
{
	if (engine_status(comm->engine) == TUTTI_OK)
		return status;
	engine_show_failure(comm->engine);
	return fail(status, "%s", engine_error(comm->engine));
}

tutti_status comm_check_call(const struct tutti_comm *comm, const struct call_args *args)
{
	struct route_call c = {.comm = comm, .args = args};

	return route_find(&c);
}

/* A call on host memory, in no stream, of a communicator whose window serves all of these: looking
 * through the table of routes would take as long as the rest of a short one. */
static bool call_is_of_window(const struct route_call *c)
{
	const struct tutti_comm *comm = c->comm;
	const struct call_args *args = c->args;

	return !comm->device && select_is_window(&comm->select) &&
	       args->collective != COLL_MEM_ALLOC && engine_status(comm->engine) == TUTTI_OK &&
	       memory_of(args->send) == &memory_host && memory_of(args->recv) == &memory_host &&
	       !(c->call && c->call->stream);
}

static tutti_status call_find_route(struct route_call *c)
{
	const tutti_call *call = c->call;

	if (!call_is_of_window(c)) {
		TRY(route_find(c));
		return route_find_stream(c);
	}
	c->memory = &memory_host;
	c->is_selected_for_window = true;
	c->ending = call && (call->work || call->done) ? ROUTE_HANDLED : ROUTE_WAITS;
	c->route = &route_window;
	return TUTTI_OK;
}

/* An invalid call uses no sequence number: args were checked before, and what can still be refused
 * is refused before route_take_number. */
tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call)
{
	struct route_call c = {.comm = comm, .args = args, .call = call};

	TRY(call_find_route(&c));
	args->is_on_device = c.route->by_kernels;
	args->sequence = atomic_load_explicit(&comm->calls.sequence, memory_order_relaxed);
	if (call_is_later_round(args))
		args->sequence--; /* its first round's */
	c.record = call_record_of(args, comm->size, comm->calls.fingerprint);
	args->fingerprint = c.record.fingerprint;
	tutti_status status = c.route->begin(comm, &c);
	return __builtin_expect(status != TUTTI_OK, 0) ? call_explain(comm, status) : status;
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
static struct trace_mark call_trace_message(struct tutti_comm *comm, const struct send_recv *m,
					    enum route_ending ending, const char *label)
{
	unsigned flags = ending == ROUTE_WAITS ? 0 : TRACE_IS_ASYNC;
	uint64_t number = atomic_load_explicit(&comm->calls.trace->issued, memory_order_relaxed);

	if (m->is_grouped)
		flags |= TRACE_IS_GROUPED;
	if (label)
		trace_label(comm->calls.trace, label);
	return trace_note(comm->calls.trace,
			  trace_what(number, m->side == P2P_SEND ? TRACE_SEND : TRACE_RECV,
				     (unsigned)m->dtype, TRACE_BY_MESSAGE, flags),
			  trace_size(m->count, m->peer));
}

static bool call_captures_kernels(const struct tutti_comm *comm, void *stream)
{
	return comm->device && device_captures(comm->device, stream);
}

bool comm_captures(const struct tutti_comm *comm, void *stream)
{
	return call_captures_kernels(comm, stream) ||
	       route_goes_into_graph(&(tutti_call){.stream = stream});
}

tutti_status comm_check_captured(const struct tutti_comm *comm,
				 const struct task_spec *const *messages, size_t n, void *stream)
{
	if (call_captures_kernels(comm, stream))
		return device_check_messages(comm->device, messages, n, stream);
	TRY(cuda_stream_check(stream, NULL));
	TRY(device_check_captured(messages, n));
	return engine_check_capture(comm->engine);
}

static struct trace_mark call_trace_spec(struct tutti_comm *comm, const struct task_spec *spec,
					 const char *label)
{
	struct send_recv m = {.side = spec->p2p.side,
			      .peer = spec->p2p.peer,
			      .dtype = spec->args.dtype,
			      .count = spec->args.count,
			      .is_grouped = spec->args.is_grouped};

	return call_trace_message(comm, &m, ROUTE_HANDLED, label);
}

/* All but the first, which has the work, are over at once. */
static void call_trace_captured(struct tutti_comm *comm, const struct task_spec *const *messages,
				size_t n, const tutti_call *call)
{
	for (size_t i = n; i-- > 1;) {
		struct trace_mark mark = call_trace_spec(comm, messages[i], call->label);
		trace_began(&mark);
		trace_ended_late(&mark, false);
	}
}

tutti_status comm_call_captured(struct tutti_comm *comm, const struct task_spec *const *messages,
				size_t n, const tutti_call *call)
{
	struct route_call c = {.comm = comm, .call = call, .ending = ROUTE_HANDLED};
	struct task_spec spec = *messages[0];
	bool by_kernels = call_captures_kernels(comm, call->stream);

	TRY(comm_check_captured(comm, messages, n, call->stream));
	spec.kind = by_kernels ? &device_message_tasks : &captured_tasks;
	spec.memory = memory_kind(TUTTI_MEMORY_CUDA);
	spec.is_ordered = !by_kernels;
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
		call_trace_captured(comm, messages, n, call);
		spec.trace = call_trace_spec(comm, &spec, call->label);
		status = route_submit(comm, &c, &spec);
	}
	comm_leave(comm);
	return status == TUTTI_OK ? status : call_explain(comm, status);
}

struct task_spec comm_message_spec(const struct send_recv *m)
{
	bool sends = m->side == P2P_SEND;

	return (struct task_spec){
		.kind = &p2p_tasks,
		.memory = m->memory,
		.send_bytes = sends ? m->bytes : 0,
		.recv_bytes = sends ? 0 : m->bytes,
		.args = {.dtype = m->dtype,
			 .count = m->count,
			 .send = sends ? m->buf : NULL,
			 .recv = sends ? NULL : m->buf,
			 .is_grouped = m->is_grouped},
		.p2p = {.side = m->side, .peer = m->peer, .tag = m->tag, .source = m->source},
		.name = m->name,
		.algorithm = "p2p",
		.timeout_ms = m->timeout_ms,
		.done = m->done,
		.done_arg = m->done_arg};
}

/* The message's entry in the trace is made when it is over: one that has not waited has lasted no
 * time. */
static void call_trace_at_once(struct tutti_comm *comm, const struct comm_message *m,
			       uint64_t since)
{
	struct trace_mark mark = call_trace_message(comm, m->message, ROUTE_WAITS, m->label);

	if (!mark.entry)
		return;
	uint64_t now = ticks_now(trace_clock);
	atomic_store_explicit(&mark.entry->began, (since ? since : now) & TRACE_TIME,
			      memory_order_relaxed);
	atomic_store_explicit(&mark.entry->ended, now & TRACE_TIME, memory_order_relaxed);
}

/* Between comm_enter and comm_leave: the messages, in this order. */
static void call_messages_at_once(struct tutti_comm *comm, struct comm_message *const *messages,
				  size_t n)
{
	const struct send_recv *list[MESSAGES_AT_ONCE];
	uint64_t since[MESSAGES_AT_ONCE];

	for (size_t i = 0; i < n; i++) {
		list[i] = messages[i]->message;
		since[i] = 0;
	}
	size_t over = engine_at_once(comm->engine, p2p_at_once, list, n, since);
	for (size_t i = 0; i < over; i++) {
		messages[i]->is_over = true;
		call_trace_at_once(comm, messages[i], since[i]);
	}
}

/* The sends first: others may wait for them. */
void comm_messages_at_once(struct tutti_comm *comm, struct comm_message *messages, size_t n)
{
	struct comm_message *ordered[MESSAGES_AT_ONCE];
	size_t count = 0;

	if (comm_enter(comm, "group_end") != TUTTI_OK)
		return; /* whoever issues what is left says so */
	for (int recvs = 0; recvs < 2; recvs++)
		for (size_t i = 0; i < n; i++)
			if ((messages[i].message->side == P2P_RECV) == recvs)
				ordered[count++] = &messages[i];
	if (engine_status(comm->engine) == TUTTI_OK)
		call_messages_at_once(comm, ordered, n);
	comm_leave(comm);
}

/* By a work; between comm_enter and comm_leave. */
static tutti_status call_message_work(struct tutti_comm *comm, const struct send_recv *m,
				      struct route_call *c)
{
	struct task_spec spec = comm_message_spec(m);
	const tutti_call *call = c->call;

	spec.is_ordered = c->is_ordered;
	spec.stream = call ? call->stream : NULL;
	spec.direct_kind = comm->reach.direct_kind;
	spec.trace = call_trace_message(comm, m, c->ending, call ? call->label : NULL);
	if (c->ending != ROUTE_WAITS)
		return route_submit(comm, c, &spec);
	comm_begin_wait(comm);
	return engine_run(comm->engine, &spec);
}

tutti_status comm_call_message(struct tutti_comm *comm, const struct send_recv *m,
			       const tutti_call *call)
{
	bool sends = m->side == P2P_SEND;
	struct call_args args = {.send = sends ? m->buf : NULL, .recv = sends ? NULL : m->buf};
	struct route_call c = {.comm = comm, .args = &args, .call = call, .memory = m->memory};

	if (call && comm_captures(comm, call->stream)) {
		struct task_spec spec = comm_message_spec(m);
		const struct task_spec *messages = &spec;
		return comm_call_captured(comm, &messages, 1, call);
	}
	TRY(route_find_stream(&c));
	TRY(comm_enter(comm, m->name));
	tutti_status status = engine_status(comm->engine);
	bool is_over = false;
	if (status == TUTTI_OK && c.ending == ROUTE_WAITS && !c.is_ordered) {
		comm_begin_wait(comm);
		struct comm_message one = {m, call ? call->label : NULL, false};
		struct comm_message *list = &one;
		if (m->memory == &memory_host)
			call_messages_at_once(comm, &list, 1);
		is_over = one.is_over;
	}
	if (status == TUTTI_OK && !is_over)
		status = call_message_work(comm, m, &c);
	comm_leave(comm);
	return status == TUTTI_OK ? status : call_explain(comm, status);
}
