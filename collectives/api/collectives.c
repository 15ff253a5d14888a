/* The collectives of tutti.h: each puts its arguments into one form, and collectives_make_call
 * checks them and makes the call, or adds it to the group that this thread has open. The common
 * case is recognised here by few instructions; collectives_check_arguments looks at the others and
 * says what is wrong with them. Also tutti_send and tutti_recv. */
#include "collectives/api/collectives.h"

#include "collectives/api/group.h"
#include "collectives/api/purpose.h"
#include "collectives/engine/engine.h"
#include "collectives/p2p/p2p.h"
#include "collectives/plan/plan.h"
#include "core/forks.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <stdlib.h>

/* The checks of arguments, alike for all collectives; calls.h and layout.h have what differs. */

tutti_status collectives_check_call(const char *name, const tutti_call *call)
{
	if (!call)
		return TUTTI_OK;
	if (call->timeout_ms < 0)
		return fail(TUTTI_ERR_INVALID, "%s: call.timeout_ms is %d: it must not be negative",
			    name, call->timeout_ms);
	return TUTTI_OK;
}

/* Of collectives and messages: comm, dtype, a count that memory can hold for every rank, and the
 * fields of call. */
static tutti_status collectives_check_common(const char *name, const tutti_comm *comm, size_t count,
					     tutti_dtype dtype, const tutti_call *call)
{
	group_note_errors();
	TRY(forks_check(name));
	if (!comm)
		return fail(TUTTI_ERR_INVALID, "%s: comm is NULL", name);
	size_t element = dtype_bytes(dtype);
	if (element == 0)
		return fail(TUTTI_ERR_INVALID, "%s: there is no dtype %d", name, (int)dtype);
	size_t bytes; /* without a division: that costs more than all other checks together */
	if (__builtin_mul_overflow(count, element * (size_t)comm->size, &bytes) ||
	    bytes > PTRDIFF_MAX)
		return fail(
			TUTTI_ERR_INVALID,
			"%s: %zu elements of %zu bytes for %d ranks are more than memory can hold",
			name, count, element, comm->size);
	return collectives_check_call(name, call);
}

static tutti_status api_check_op(const char *name, tutti_op op, tutti_dtype dtype)
{
	if (!op_is_known(op))
		return fail(TUTTI_ERR_INVALID, "%s: there is no operation %d, or it was destroyed",
			    name, (int)op);
	if (!op_fits(op, dtype))
		return fail(TUTTI_ERR_INVALID, "%s: %s does not work on %s", name, op_name(op),
			    dtype_name(dtype));
	return TUTTI_OK;
}

static tutti_status collectives_check_all(const struct call_args *a, const tutti_comm *comm,
					  const tutti_call *call)
{
	enum collective pattern = collective_pattern(a->collective);
	const char *name = collective_name(a->collective);

	TRY(collectives_check_common(name, comm, a->count, a->dtype, call));
	if (collective_reduces(pattern))
		TRY(api_check_op(name, a->op, a->dtype));
	if (collective_has_root(pattern) && (a->root < 0 || a->root >= comm->size))
		return fail(TUTTI_ERR_INVALID, "%s: root %d is not in 0..%d", name, a->root,
			    comm->size - 1);
	return TUTTI_OK;
}

/* Of collectives: the same, and op and root. */
__attribute__((
	noinline)) /* collectives_make_call's stack frame stays small: 10 % of a call of 64 bytes */
static tutti_status
collectives_check_arguments(const struct call_args *a, const tutti_comm *comm,
			    const tutti_call *call)
{
	tutti_status status = collectives_check_all(a, comm, call);

	return comm ? engine_name_error(comm->engine, status) : status;
}

/* Bytes of memory; numbers, since as pointers they may lie outside of all memory. */
struct bytes {
	uintptr_t first, end;
};

static int collectives_check_blocks_of(const struct call_args *a, int side, int size)
{
	return collective_has_blocks(collective_pattern(a->collective), side) ? size : 1;
}

/* Block i of a side: of a side with one block the rank's own. */
static struct bytes collectives_check_block_of(const struct call_args *a, const tutti_comm *comm,
					       int side, int i)
{
	size_t unit = dtype_bytes(a->dtype), count = a->count, at = a->count * (size_t)i;
	uintptr_t base = (uintptr_t)(side == SEND_SIDE ? a->send : a->recv);
	bool alone = !collective_has_blocks(collective_pattern(a->collective), side);

	if (a->counts[side]) {
		count = a->counts[side][alone ? comm->rank : i];
		at = alone ? 0 : a->offsets[side][i];
	}
	return (struct bytes){base + at * unit, base + (at + count) * unit};
}

static bool collectives_check_overlap(struct bytes a, struct bytes b)
{
	return a.first < a.end && b.first < b.end && a.first < b.end && b.first < a.end;
}

/* Whether the call is in place: what each side has for this rank lies at one address. */
static bool collectives_is_in_place(const struct call_args *a, const tutti_comm *comm)
{
	enum collective pattern = collective_pattern(a->collective);
	int own[2];

	if (pattern == COLL_ALL_REDUCE || pattern == COLL_REDUCE || pattern == COLL_BROADCAST)
		return a->send == a->recv; /* what follows comes to the same */
	if (pattern == COLL_ALL_TO_ALL)
		return a->send == a->recv; /* send is copied first */
	for (int side = 0; side < 2; side++)
		own[side] = collectives_check_blocks_of(a, side, comm->size) == 1 ? 0 : comm->rank;
	return collectives_check_block_of(a, comm, SEND_SIDE, own[SEND_SIDE]).first ==
	       collectives_check_block_of(a, comm, RECV_SIDE, own[RECV_SIDE]).first;
}

/* Checks that the buffers are there, and that they do not overlap unless they are in place. */
static tutti_status collectives_check_buffers(const struct call_args *a, const tutti_comm *comm)
{
	const char *name = collective_name(a->collective);
	size_t send = layout_extent(a, comm->rank, comm->size, SEND_SIDE);
	size_t recv = layout_extent(a, comm->rank, comm->size, RECV_SIDE);
	uintptr_t s = (uintptr_t)a->send, r = (uintptr_t)a->recv;

	if ((!a->send && send) || (!a->recv && recv))
		return fail(TUTTI_ERR_INVALID, "%s: %s is NULL", name,
			    !a->send && send ? "send" : "recv");
	if (!collectives_check_overlap((struct bytes){s, s + send}, (struct bytes){r, r + recv}) ||
	    collectives_is_in_place(a, comm))
		return TUTTI_OK;
	for (int i = 0; i < collectives_check_blocks_of(a, SEND_SIDE, comm->size); i++)
		for (int k = 0; k < collectives_check_blocks_of(a, RECV_SIDE, comm->size); k++)
			if (collectives_check_overlap(
				    collectives_check_block_of(a, comm, SEND_SIDE, i),
				    collectives_check_block_of(a, comm, RECV_SIDE, k)))
				return fail(TUTTI_ERR_INVALID,
					    "%s: send (%p, %zu bytes) and recv (%p, %zu bytes) "
					    "overlap but are not in place",
					    name, a->send, send, a->recv, recv);
	return TUTTI_OK;
}

static tutti_status collectives_check_pack(struct tutti_comm *comm, int side, const size_t *counts)
{
	size_t at = 0, n = (size_t)comm->size;
	if (!comm->calls.packed[side] && !(comm->calls.packed[side] = calloc(n, sizeof(size_t))))
		return fail(TUTTI_ERR_MEMORY, "rank %d: no memory for %zu offsets", comm->rank, n);
	for (size_t i = 0; i < n; i++) {
		comm->calls.packed[side][i] = at;
		at += counts[i];
	}
	return TUTTI_OK;
}

static tutti_status collectives_check_side(struct call_args *a, int side, tutti_comm *comm)
{
	const size_t *counts = a->counts[side], *offsets = a->offsets[side];
	size_t most = (size_t)PTRDIFF_MAX / dtype_bytes(a->dtype), sum = 0;
	const char *name = collective_name(a->collective);

	if (!counts)
		return fail(TUTTI_ERR_INVALID, "%s: counts is NULL", name);
	for (int i = 0; i < comm->size; i++) {
		size_t at = offsets ? offsets[i] : 0;
		if (counts[i] > most - sum || at > most - counts[i])
			return fail(TUTTI_ERR_INVALID,
				    "%s: %zu elements at offset %zu for rank %d are more than "
				    "memory can hold",
				    name, counts[i], at, i);
		sum += counts[i];
	}
	if (!offsets) {
		TRY(collectives_check_pack(comm, side, counts));
		a->offsets[side] = comm->calls.packed[side];
	}
	if (a->collective != COLL_ALL_TO_ALLV)
		a->count = sum;
	return TUTTI_OK;
}

/* One behind the other, as nearly all callers have them: nothing needs to be sorted. */
static bool collectives_are_in_order(const size_t *counts, const size_t *offsets, int size)
{
	size_t end = 0;

	for (int i = 0; i < size; i++) {
		if (counts[i] && offsets[i] < end)
			return false;
		if (counts[i])
			end = offsets[i] + counts[i];
	}
	return true;
}

struct recv_block {
	size_t first, end;
	int rank;
};

static int collectives_compare_blocks(const void *a, const void *b)
{
	const struct recv_block *x = a, *y = b;
	return x->first < y->first ? -1 : x->first > y->first;
}

static tutti_status collectives_check_sorted(const struct recv_block *blocks, int n,
					     const char *name)
{
	for (int i = 1; i < n; i++) {
		const struct recv_block *a = &blocks[i - 1], *b = &blocks[i];
		if (b->first < a->end)
			return fail(TUTTI_ERR_INVALID,
				    "%s: blocks of recv overlap: that of rank %d is elements %zu "
				    "to %zu, that of rank %d %zu to %zu",
				    name, a->rank, a->first, a->end - 1, b->rank, b->first,
				    b->end - 1);
	}
	return TUTTI_OK;
}

/* The data of two ranks must not go to one place. */
static tutti_status collectives_check_received(const struct call_args *a, const tutti_comm *comm)
{
	const size_t *counts = a->counts[RECV_SIDE], *offsets = a->offsets[RECV_SIDE];
	const char *name = collective_name(a->collective);
	int n = 0;

	if (!a->recv || collectives_check_blocks_of(a, RECV_SIDE, comm->size) == 1 ||
	    collectives_are_in_order(counts, offsets, comm->size))
		return TUTTI_OK;
	struct recv_block *blocks = malloc((size_t)comm->size * sizeof *blocks);
	if (!blocks)
		return fail(TUTTI_ERR_MEMORY, "rank %d: %s: no memory for %d blocks", comm->rank,
			    name, comm->size);
	for (int i = 0; i < comm->size; i++)
		if (counts[i])
			blocks[n++] = (struct recv_block){offsets[i], offsets[i] + counts[i], i};
	qsort(blocks, (size_t)n, sizeof *blocks, collectives_compare_blocks);
	tutti_status status = collectives_check_sorted(blocks, n, name);
	free(blocks);
	return status;
}

tutti_status collectives_check_counts(struct call_args *a, tutti_comm *comm)
{
	TRY(collectives_check_side(a, SEND_SIDE, comm));
	if (a->collective != COLL_ALL_TO_ALLV) {
		a->counts[RECV_SIDE] = a->counts[SEND_SIDE];
		a->offsets[RECV_SIDE] = a->offsets[SEND_SIDE];
		return collectives_check_received(a, comm);
	}
	TRY(collectives_check_side(a, RECV_SIDE, comm));
	TRY(collectives_check_received(a, comm));
	size_t out = a->counts[SEND_SIDE][comm->rank], in = a->counts[RECV_SIDE][comm->rank];
	return out == in ? TUTTI_OK
			 : fail(TUTTI_ERR_INVALID,
				"%s: rank %d sends itself %zu elements and expects %zu",
				collective_name(a->collective), comm->rank, out, in);
}

static inline bool collectives_is_plain_call(const tutti_call *call)
{
	return !call || call->timeout_ms >= 0;
}

/* The common case, in which collectives_check_arguments would find nothing: a call outside groups,
 * with a built-in op that all dtypes have. */
static inline bool collectives_has_plain_arguments(const struct call_args *a,
						   enum collective pattern, const tutti_comm *comm,
						   const tutti_call *call)
{
	size_t element = dtype_bytes(a->dtype), bytes;

	if (!collectives_is_plain_call(call) || !comm || group_is_open() || !element ||
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
static bool collectives_are_plainly_right(const struct call_args *a, enum collective pattern,
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
static void collectives_forget_roots_buffer(struct call_args *a, enum collective pattern)
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
		collectives_forget_roots_buffer(a, pattern);
	if (collective_has_counts(a->collective))
		TRY(collectives_check_counts(a, comm));
	else if (collectives_are_plainly_right(a, pattern, comm))
		return TUTTI_OK;
	return collectives_check_buffers(a, comm);
}

static tutti_status collectives_make_call(struct call_args *a, tutti_comm *comm,
					  const tutti_call *call)
{
	enum collective pattern = collective_pattern(a->collective);

	last_error_clear();
	if (!collectives_has_plain_arguments(a, pattern, comm, call))
		TRY(collectives_check_arguments(a, comm, call));
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

static inline struct call_args collectives_args_of(enum collective collective, const void *send,
						   void *recv, size_t count, tutti_dtype dtype)
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
	struct call_args args = collectives_args_of(COLL_ALL_REDUCE, send, recv, count, dtype);
	args.op = op;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_REDUCE, send, recv, count, dtype);
	args.op = op;
	args.root = root;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_BROADCAST, send, recv, count, dtype);
	args.root = root;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_ALL_GATHER, send, recv, count, dtype);
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype,
				  tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_REDUCE_SCATTER, send, recv, count, dtype);
	args.op = op;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_GATHER, send, recv, count, dtype);
	args.root = root;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_SCATTER, send, recv, count, dtype);
	args.root = root;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_ALL_TO_ALL, send, recv, count, dtype);
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
			       const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_ALL_GATHERV, send, recv, 0, dtype);
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
				   const size_t *offsets, tutti_dtype dtype, tutti_op op,
				   tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_REDUCE_SCATTERV, send, recv, 0, dtype);
	args.op = op;
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_gatherv(const void *send, void *recv, const size_t *counts,
			   const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			   const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_GATHERV, send, recv, 0, dtype);
	args.root = root;
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_scatterv(const void *send, void *recv, const size_t *counts,
			    const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			    const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_SCATTERV, send, recv, 0, dtype);
	args.root = root;
	args.counts[SEND_SIDE] = counts;
	args.offsets[SEND_SIDE] = offsets;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_all_to_allv(const void *send, const size_t *send_counts,
			       const size_t *send_offsets, void *recv, const size_t *recv_counts,
			       const size_t *recv_offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	struct call_args args = collectives_args_of(COLL_ALL_TO_ALLV, send, recv, 0, dtype);
	args.counts[SEND_SIDE] = send_counts;
	args.counts[RECV_SIDE] = recv_counts;
	args.offsets[SEND_SIDE] = send_offsets;
	args.offsets[RECV_SIDE] = recv_offsets;
	return collectives_make_call(&args, comm, call);
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_BARRIER, .dtype = TUTTI_U8, .op = TUTTI_BOR};
	return collectives_make_call(&args, comm, call);
}

/* tutti_send and tutti_recv: each checks its arguments and becomes one task of the engine. They use
 * no sequence number of the communicator's. */
static tutti_status collectives_send_recv_check_peer(const char *name, const tutti_comm *comm,
						     int peer, bool sends)
{
	if (peer >= 0 && peer < comm->size)
		return TUTTI_OK;
	if (peer == TUTTI_ANY)
		return sends ? fail(TUTTI_ERR_INVALID,
				    "%s: TUTTI_ANY is for recv: a send names its peer", name)
			     : TUTTI_OK;
	return fail(TUTTI_ERR_INVALID, "%s: peer %d is not in 0..%d", name, peer, comm->size - 1);
}

static tutti_status collectives_send_recv_check(const char *name, const struct send_recv *m,
						const tutti_comm *comm, const tutti_call *call)
{
	TRY(collectives_check_common(name, comm, m->count, m->dtype, call));
	if (!m->buf && m->count)
		return fail(TUTTI_ERR_INVALID, "%s: buf is NULL", name);
	TRY(collectives_send_recv_check_peer(name, comm, m->peer, m->side == P2P_SEND));
	if (call && call->tag < 0)
		return fail(TUTTI_ERR_INVALID, "%s: call.tag is %d: it must not be negative", name,
			    call->tag);
	return TUTTI_OK;
}

static tutti_status collectives_send_recv_pass_on(struct send_recv *m, struct tutti_comm *comm,
						  const tutti_call *call)
{
	last_error_clear();
	tutti_status status = collectives_send_recv_check(m->name, m, comm, call);
	if (status == TUTTI_OK) {
		m->bytes = m->count * dtype_bytes(m->dtype);
		m->memory = memory_of(m->buf);
		m->timeout_ms = comm_timeout_ms(comm, call);
		if (call) {
			m->tag = call->tag;
			m->source = call->source;
			m->done = call->done;
			m->done_arg = call->done_arg;
		}
		status = group_is_open() ? group_add_message(comm, m, call)
					 : comm_call_message(comm, m, call);
	}
	return status != TUTTI_OK && comm ? engine_name_error(comm->engine, status) : status;
}

tutti_status tutti_send(const void *buf, size_t count, tutti_dtype dtype, int peer,
			tutti_comm *comm, const tutti_call *call)
{
	struct send_recv m = {.name = "send",
			      .side = P2P_SEND,
			      .buf = (void *)(uintptr_t)buf,
			      .count = count,
			      .dtype = dtype,
			      .peer = peer};
	return collectives_send_recv_pass_on(&m, comm, call);
}

tutti_status tutti_recv(void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
			const tutti_call *call)
{
	struct send_recv m = {.name = "recv",
			      .side = P2P_RECV,
			      .buf = buf,
			      .count = count,
			      .dtype = dtype,
			      .peer = peer};
	return collectives_send_recv_pass_on(&m, comm, call);
}
