/* The collectives of tutti.h: each checks its arguments and becomes one call. */
#include "collectives/comm.h"
#include "memory/dtype.h"
#include "memory/ops.h"

/* No sequence number is used and nothing is sent when a check fails. */
static tutti_status check_common(const char *name, const tutti_comm *comm, size_t count,
				 tutti_dtype dtype, const tutti_call *call)
{
	if (!comm)
		return fail(TUTTI_ERR_INVALID, "%s: comm is NULL", name);
	size_t element = dtype_bytes(dtype);
	if (element == 0)
		return fail(TUTTI_ERR_INVALID, "%s: %d is no dtype", name, (int)dtype);
	if (count > (size_t)PTRDIFF_MAX / element / (size_t)comm->size)
		return fail(
			TUTTI_ERR_INVALID,
			"%s: %zu elements of %zu bytes for %d ranks are more than memory can hold",
			name, count, element, comm->size);
	if (!call)
		return TUTTI_OK;
	if (call->timeout_ms < 0)
		return fail(TUTTI_ERR_INVALID, "%s: call.timeout_ms is %d: it must not be negative",
			    name, call->timeout_ms);
	if (call->stream)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: call.stream is set, but this build has no CUDA", name);
	return TUTTI_OK;
}

static tutti_status check_op(const char *name, tutti_op op, tutti_dtype dtype)
{
	if (!op_is_known(op))
		return fail(TUTTI_ERR_INVALID, "%s: there is no operation %d, or it was destroyed",
			    name, (int)op);
	if (!op_fits(op, dtype))
		return fail(TUTTI_ERR_INVALID, "%s: %s does not work on %s", name, op_name(op),
			    dtype_name(dtype));
	if (op_scalar(op)) /* until plans and the window scale what they first read */
		return fail(TUTTI_ERR_UNSUPPORTED, "%s: scaled sums are not built yet in Tutti %s",
			    name, tutti_version());
	return TUTTI_OK;
}

static tutti_status check_root(const char *name, const tutti_comm *comm, int root)
{
	if (root < 0 || root >= comm->size)
		return fail(TUTTI_ERR_INVALID, "%s: root %d is not in 0..%d", name, root,
			    comm->size - 1);
	return TUTTI_OK;
}

/* Both buffers, their lengths, and where send lies when the call is in place. */
struct buffers {
	const void *send;
	void *recv;
	size_t send_bytes, recv_bytes;
	uintptr_t in_place_send; /* a number: as a pointer it may lie outside of all memory */
};

static tutti_status check_buffers(const char *name, const struct buffers *b)
{
	if ((!b->send && b->send_bytes) || (!b->recv && b->recv_bytes))
		return fail(TUTTI_ERR_INVALID, "%s: %s is NULL", name,
			    !b->send && b->send_bytes ? "send" : "recv");
	uintptr_t s = (uintptr_t)b->send, r = (uintptr_t)b->recv;
	bool apart = s + b->send_bytes <= r || r + b->recv_bytes <= s;
	if (s == b->in_place_send || apart || !b->send_bytes || !b->recv_bytes)
		return TUTTI_OK;
	return fail(TUTTI_ERR_INVALID,
		    "%s: send (%p, %zu bytes) and recv (%p, %zu bytes) overlap, and not in place",
		    name, b->send, b->send_bytes, b->recv, b->recv_bytes);
}

tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("all_reduce", comm, count, dtype, call));
	TRY(check_op("all_reduce", op, dtype));
	size_t bytes = count * dtype_bytes(dtype);
	TRY(check_buffers("all_reduce",
			  &(struct buffers){send, recv, bytes, bytes, (uintptr_t)recv}));
	struct call_args args = {.collective = COLL_ALL_REDUCE,
				 .dtype = dtype,
				 .op = op,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return comm_call(comm, &args, call);
}

tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype,
				  tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("reduce_scatter", comm, count, dtype, call));
	TRY(check_op("reduce_scatter", op, dtype));
	size_t bytes = count * dtype_bytes(dtype);
	TRY(check_buffers("reduce_scatter",
			  &(struct buffers){send, recv, bytes * (size_t)comm->size, bytes,
					    (uintptr_t)recv - (size_t)comm->rank * bytes}));
	struct call_args args = {.collective = COLL_REDUCE_SCATTER,
				 .dtype = dtype,
				 .op = op,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return comm_call(comm, &args, call);
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("all_gather", comm, count, dtype, call));
	size_t bytes = count * dtype_bytes(dtype);
	TRY(check_buffers("all_gather",
			  &(struct buffers){send, recv, bytes, bytes * (size_t)comm->size,
					    (uintptr_t)recv + (size_t)comm->rank * bytes}));
	struct call_args args = {.collective = COLL_ALL_GATHER,
				 .dtype = dtype,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return comm_call(comm, &args, call);
}

/* Off the root send is not looked at. */
tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("broadcast", comm, count, dtype, call));
	TRY(check_root("broadcast", comm, root));
	size_t bytes = count * dtype_bytes(dtype);
	if (comm->rank != root)
		send = recv;
	TRY(check_buffers("broadcast",
			  &(struct buffers){send, recv, bytes, bytes, (uintptr_t)recv}));
	struct call_args args = {.collective = COLL_BROADCAST,
				 .dtype = dtype,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return comm_call(comm, &args, call);
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("barrier", comm, 0, TUTTI_U8, call));
	struct call_args args = {.collective = COLL_BARRIER, .dtype = TUTTI_U8, .op = TUTTI_BOR};
	return comm_call(comm, &args, call);
}
