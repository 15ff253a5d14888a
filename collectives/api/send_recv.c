/* tutti_send and tutti_recv: each checks its arguments and becomes one task of the engine. They use
 * no sequence number of the communicator's. */
#include "collectives/api/check.h"
#include "collectives/api/group.h"
#include "collectives/engine/engine.h"
#include "collectives/p2p/p2p.h"
#include "core/memory/dtype.h"

static tutti_status send_recv_check_peer(const char *name, const tutti_comm *comm, int peer,
					 bool sends)
{
	if (peer >= 0 && peer < comm->size)
		return TUTTI_OK;
	if (peer == TUTTI_ANY)
		return sends ? fail(TUTTI_ERR_INVALID,
				    "%s: TUTTI_ANY is for recv: a send names its peer", name)
			     : TUTTI_OK;
	return fail(TUTTI_ERR_INVALID, "%s: peer %d is not in 0..%d", name, peer, comm->size - 1);
}

struct message_args {
	enum p2p_side side;
	void *buf; /* of a send: not written                                      */
	size_t count;
	tutti_dtype dtype;
	int peer;
};

static tutti_status send_recv_check(const char *name, const struct message_args *m,
				    const tutti_comm *comm, const tutti_call *call)
{
	TRY(check_common(name, comm, m->count, m->dtype, call));
	if (!m->buf && m->count)
		return fail(TUTTI_ERR_INVALID, "%s: buf is NULL", name);
	TRY(send_recv_check_peer(name, comm, m->peer, m->side == P2P_SEND));
	if (call && call->tag < 0)
		return fail(TUTTI_ERR_INVALID, "%s: call.tag is %d: it must not be negative", name,
			    call->tag);
	return TUTTI_OK;
}

static struct task_spec spec_of(const char *name, const struct message_args *m,
				const struct tutti_comm *comm, const tutti_call *call)
{
	bool sends = m->side == P2P_SEND;
	size_t bytes = m->count * dtype_bytes(m->dtype);
	struct task_spec spec = {.kind = &p2p_tasks,
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
				 .timeout_ms = comm_timeout_ms(comm, call)};
	if (call) {
		spec.p2p.tag = call->tag;
		spec.p2p.source = call->source;
		spec.done = call->done;
		spec.done_arg = call->done_arg;
	}
	return spec;
}

static tutti_status send_recv_pass_on(const char *name, const struct message_args *m,
				      struct tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	tutti_status status = send_recv_check(name, m, comm, call);
	if (status == TUTTI_OK) {
		struct task_spec spec = spec_of(name, m, comm, call);
		status = group_is_open() ? group_add_message(comm, &spec, call)
					 : comm_call_message(comm, &spec, call);
	}
	return status != TUTTI_OK && comm ? engine_name_error(comm->engine, status) : status;
}

tutti_status tutti_send(const void *buf, size_t count, tutti_dtype dtype, int peer,
			tutti_comm *comm, const tutti_call *call)
{
	struct message_args m = {P2P_SEND, (void *)(uintptr_t)buf, count, dtype, peer};
	return send_recv_pass_on("send", &m, comm, call);
}

tutti_status tutti_recv(void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
			const tutti_call *call)
{
	struct message_args m = {P2P_RECV, buf, count, dtype, peer};
	return send_recv_pass_on("recv", &m, comm, call);
}
