/* The collectives of tutti.h: each puts its arguments into one form, and make_call checks them and
 * makes the call, or adds it to the group that this thread has open. The common case is recognised
 * here by few instructions; check.c looks at the others and says what is wrong with them. */
#include "collectives/api/check.h"
#include "collectives/api/group.h"
#include "collectives/api/purpose.h"

#include "collectives/engine/engine.h"
#include "collectives/plan/plan.h"
#include "core/forks.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

static inline bool is_plain_call(const tutti_call *call)
{
	return !call || call->timeout_ms >= 0;
}

/* The common case, in which check_arguments would find nothing: a call outside groups, with a
 * built-in op that all dtypes have. */
static inline bool has_plain_arguments(const struct call_args *a, enum collective pattern,
				       const tutti_comm *comm, const tutti_call *call)
{
	size_t element = dtype_bytes(a->dtype), bytes;

	if (!is_plain_call(call) || !comm ||
	    atomic_load_explicit(&group_threads, memory_order_relaxed) || !element ||
	    forks_is_orphan)
		return false;
	if (__builtin_mul_overflow(a->count, element * (size_t)comm->size, &bytes) ||
	    bytes > PTRDIFF_MAX)
		return false;
	if (collective_reduces(pattern) &&
	    ((uint32_t)a->op >= OPS_BUILT_IN || op_is_bitwise(a->op))) /* a single comparison */
		return false;
	return !collective_has_root(pattern) || (unsigned)a->root < (unsigned)comm->size;
}

/* The common case of a call without counts: the buffers that it uses are there, and they are in
 * place, or so far apart that they cannot overlap. */
static bool are_plainly_right(const struct call_args *a, enum collective pattern,
			      const tutti_comm *comm)
{
	uintptr_t s = (uintptr_t)a->send, r = (uintptr_t)a->recv;
	size_t block = a->count * dtype_bytes(a->dtype), own = block * (size_t)comm->rank;

	if (collective_has_root(pattern) && a->root != comm->rank) /* one is forgotten */
		return s || r;
	if (!s || !r)
		return pattern == COLL_BARRIER;
	if ((s < r ? r - s : s - r) >= block * (size_t)comm->size)
		return true;
	return s + (collective_has_blocks(pattern, SEND_SIDE) ? own : 0) ==
	       r + (collective_has_blocks(pattern, RECV_SIDE) ? own : 0);
}

/* Buffers that only the root has are not looked at elsewhere. */
static void forget_roots_buffer(struct call_args *a, enum collective pattern)
{
	if (pattern == COLL_REDUCE || pattern == COLL_GATHER)
		a->recv = NULL;
	else
		a->send = pattern == COLL_BROADCAST ? a->recv : NULL;
}

/* The operands of a call that this thread has entered. */
static tutti_status collectives_check_operands(struct call_args *a, enum collective pattern,
					       tutti_comm *comm)
{
	if (collective_has_root(pattern) && comm->rank != a->root)
		forget_roots_buffer(a, pattern);
	if (collective_has_counts(a->collective))
		TRY(check_counts(a, comm));
	else if (are_plainly_right(a, pattern, comm))
		return TUTTI_OK;
	return check_buffers(a, comm);
}

static tutti_status make_call(struct call_args *a, tutti_comm *comm, const tutti_call *call)
{
	enum collective pattern = collective_pattern(a->collective);

	last_error_clear();
	if (!has_plain_arguments(a, pattern, comm, call))
		TRY(check_arguments(a, comm, call));
	if (call && !collective_has_root(pattern))
		a->purpose = purpose_of(call);
	TRY(comm_enter(comm, collective_name(a->collective)));
	bool is_collected = group_is_open();
	tutti_status status = collectives_check_operands(a, pattern, comm);
	if (status == TUTTI_OK)
		status = is_collected ? group_add_call(comm, a, call) : comm_call(comm, a, call);
	if (__builtin_expect(status == TUTTI_ERR_MEMORY && !is_collected, 0))
		comm_lacks_memory(comm);
	comm_leave(comm);
	return __builtin_expect(status != TUTTI_OK, 0) ? engine_name_error(comm->engine, status)
						       : status;
}

static inline struct call_args args_of(enum collective collective, const void *send, void *recv,
				       size_t count, tutti_dtype dtype)
{
	return (struct call_args){.collective = collective,
				  .dtype = dtype,
				  .count = count,
				  .send = send,
				  .recv = recv};
}

tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_ALL_REDUCE, send, recv, count, dtype);
	args.op = op;
	return make_call(&args, comm, call);
}

tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_REDUCE, send, recv, count, dtype);
	args.op = op;
	args.root = root;
	return make_call(&args, comm, call);
}

tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_BROADCAST, send, recv, count, dtype);
	args.root = root;
	return make_call(&args, comm, call);
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_ALL_GATHER, send, recv, count, dtype);
	return make_call(&args, comm, call);
}

tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype,
				  tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_REDUCE_SCATTER, send, recv, count, dtype);
	args.op = op;
	return make_call(&args, comm, call);
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_GATHER, send, recv, count, dtype);
	args.root = root;
	return make_call(&args, comm, call);
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_SCATTER, send, recv, count, dtype);
	args.root = root;
	return make_call(&args, comm, call);
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_ALL_TO_ALL, send, recv, count, dtype);
	return make_call(&args, comm, call);
}

tutti_status tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
			       const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	struct call_args args = args_of(COLL_ALL_GATHERV, send, recv, 0, dtype);
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return make_call(&args, comm, call);
}

tutti_status tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
				   const size_t *offsets, tutti_dtype dtype, tutti_op op,
				   tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = args_of(COLL_REDUCE_SCATTERV, send, recv, 0, dtype);
	args.op = op;
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return make_call(&args, comm, call);
}

tutti_status tutti_gatherv(const void *send, void *recv, const size_t *counts,
			   const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			   const tutti_call *call)
{
	struct call_args args = args_of(COLL_GATHERV, send, recv, 0, dtype);
	args.root = root;
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return make_call(&args, comm, call);
}

tutti_status tutti_scatterv(const void *send, void *recv, const size_t *counts,
			    const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			    const tutti_call *call)
{
	struct call_args args = args_of(COLL_SCATTERV, send, recv, 0, dtype);
	args.root = root;
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return make_call(&args, comm, call);
}

tutti_status tutti_all_to_allv(const void *send, const size_t *send_counts,
			       const size_t *send_offsets, void *recv, const size_t *recv_counts,
			       const size_t *recv_offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	struct call_args args = args_of(COLL_ALL_TO_ALLV, send, recv, 0, dtype);
	args.counts[SEND_SIDE] = send_counts;
	args.counts[RECV_SIDE] = recv_counts;
	args.offsets[SEND_SIDE] = send_offsets;
	args.offsets[RECV_SIDE] = recv_offsets;
	return make_call(&args, comm, call);
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_BARRIER, .dtype = TUTTI_U8, .op = TUTTI_BOR};
	return make_call(&args, comm, call);
}
