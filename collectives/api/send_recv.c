/* tutti_send and tutti_recv: each checks its arguments and becomes one job of the engine. They use
 * no sequence number of the communicator's. */
#include "collectives/api/check.h"
#include "collectives/api/group.h"
#include "collectives/p2p/p2p.h"
#include "memory/dtype.h"

static tutti_status check_peer(const char *name, const tutti_comm *comm, int peer, bool sends)
{
	if (peer >= 0 && peer < comm->size)
		return TUTTI_OK;
	if (peer == TUTTI_ANY)
		return sends ? fail(TUTTI_ERR_INVALID,
				    "%s: TUTTI_ANY is for recv: a send names its peer", name)
			     : TUTTI_OK;
	return fail(TUTTI_ERR_INVALID, "%s: peer %d is not in 0..%d", name, peer, comm->size - 1);
}

struct message {
	enum p2p_side side;
	void *buf; /* of a send: not written                                      */
	size_t count;
	tutti_dtype dtype;
	int peer;
};

static tutti_status check(const char *name, const struct message *m, const tutti_comm *comm,
			  const tutti_call *call)
{
	TRY(check_common(name, comm, m->count, m->dtype, call));
	if (!m->buf && m->count)
		return fail(TUTTI_ERR_INVALID, "%s: buf is NULL", name);
	TRY(check_peer(name, comm, m->peer, m->side == P2P_SEND));
	if (call && call->tag < 0)
		return fail(TUTTI_ERR_INVALID, "%s: call.tag is %d: it must not be negative", name,
			    call->tag);
	return TUTTI_OK;
}

static struct job_spec spec_of(const char *name, const struct message *m,
			       const struct tutti_comm *comm, const tutti_call *call)
{
	bool sends = m->side == P2P_SEND;
	size_t bytes = m->count * dtype_bytes(m->dtype);
	struct job_spec spec = {.kind = &p2p_jobs,
				.memory = memory_of(m->buf),
				.send_bytes = sends ? bytes : 0,
				.recv_bytes = sends ? 0 : bytes,
				.args = {.dtype = m->dtype,
					 .count = m->count,
					 .send = sends ? m->buf : NULL,
					 .recv = sends ? NULL : m->buf},
				.p2p = {.side = m->side, .peer = m->peer},
				.name = name,
				.algorithm = "p2p",
				.timeout_ms = call && call->timeout_ms ? call->timeout_ms
								       : comm->timeout_ms};
	if (call) {
		spec.p2p.tag = call->tag;
		spec.p2p.source = call->source;
		spec.done = call->done;
		spec.done_arg = call->done_arg;
	}
	return spec;
}

/* Messages have no sequence number of the communicator's: their index is their number. */
static void trace_message(struct tutti_comm *comm, struct job_spec *spec, const tutti_call *call)
{
	const struct call_args *args = &spec->args;
	unsigned flags = call && (call->work || call->done) ? TRACE_IS_ASYNC : 0;
	uint64_t number = atomic_load_explicit(&comm->trace->issued, memory_order_relaxed);

	if (args->is_grouped)
		flags |= TRACE_IS_GROUPED;
	spec->trace =
		trace_note(comm->trace,
			   trace_what(number, spec->p2p.side == P2P_SEND ? TRACE_SEND : TRACE_RECV,
				      (unsigned)args->dtype, TRACE_BY_MESSAGE, flags),
			   trace_size(args->count, spec->p2p.peer));
	trace_began(&spec->trace);
}

tutti_status p2p_issue(struct tutti_comm *comm, struct job_spec *spec, const tutti_call *call)
{
	TRY(comm_enter(comm, spec->name));
	tutti_status status = engine_status(comm->engine);
	if (status == TUTTI_OK) {
		trace_message(comm, spec, call);
		status = comm_start_job(comm, spec, call);
		if (status != TUTTI_OK)
			trace_ended_late(&spec->trace, true);
	}
	comm_leave(comm);
	if (status != TUTTI_OK && engine_status(comm->engine) != TUTTI_OK) {
		engine_show_failure(comm->engine);
		return fail(status, "%s", engine_error(comm->engine));
	}
	return status;
}

static tutti_status pass_on(const char *name, const struct message *m, struct tutti_comm *comm,
			    const tutti_call *call)
{
	last_error_clear();
	TRY(check(name, m, comm, call));
	struct job_spec spec = spec_of(name, m, comm, call);
	return group_is_open() ? group_add_message(comm, &spec, call)
			       : p2p_issue(comm, &spec, call);
}

tutti_status tutti_send(const void *buf, size_t count, tutti_dtype dtype, int peer,
			tutti_comm *comm, const tutti_call *call)
{
	struct message m = {P2P_SEND, (void *)(uintptr_t)buf, count, dtype, peer};
	return pass_on("send", &m, comm, call);
}

tutti_status tutti_recv(void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
			const tutti_call *call)
{
	struct message m = {P2P_RECV, buf, count, dtype, peer};
	return pass_on("recv", &m, comm, call);
}
