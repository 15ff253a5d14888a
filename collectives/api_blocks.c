/* The collectives of tutti.h with a block for every rank, and their v-variants: each checks its
 * arguments and becomes one call. */
#include "collectives/check.h"

#include <stdlib.h>

static tutti_status call_blocks(struct call_args *args, tutti_comm *comm, const tutti_call *call)
{
	TRY(check_buffers(args, comm));
	return comm_call(comm, args, call);
}

/* Buffers that only the root has are not looked at elsewhere. */
static void keep_root_only(struct call_args *args, const tutti_comm *comm)
{
	if (comm->rank == args->root)
		return;
	if (collective_pattern(args->collective) == COLL_GATHER)
		args->recv = NULL;
	else
		args->send = NULL;
}

/* Every rank has the same counts: they are those of both sides. */
static tutti_status same_counts(struct call_args *args, tutti_comm *comm, const size_t *counts,
				const size_t *offsets)
{
	TRY(check_counts(args, SEND_SIDE, comm, counts, offsets));
	args->counts[RECV_SIDE] = args->counts[SEND_SIDE];
	args->offsets[RECV_SIDE] = args->offsets[SEND_SIDE];
	return TUTTI_OK;
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("all_gather", comm, count, dtype, call));
	struct call_args args = {.collective = COLL_ALL_GATHER,
				 .dtype = dtype,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return call_blocks(&args, comm, call);
}

tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype,
				  tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("reduce_scatter", comm, count, dtype, call));
	TRY(check_op("reduce_scatter", op, dtype));
	struct call_args args = {.collective = COLL_REDUCE_SCATTER,
				 .dtype = dtype,
				 .op = op,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return call_blocks(&args, comm, call);
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("gather", comm, count, dtype, call));
	TRY(check_rank("gather", comm, "root", root));
	struct call_args args = {.collective = COLL_GATHER,
				 .dtype = dtype,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = recv};
	keep_root_only(&args, comm);
	return call_blocks(&args, comm, call);
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("scatter", comm, count, dtype, call));
	TRY(check_rank("scatter", comm, "root", root));
	struct call_args args = {.collective = COLL_SCATTER,
				 .dtype = dtype,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = recv};
	keep_root_only(&args, comm);
	return call_blocks(&args, comm, call);
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("all_to_all", comm, count, dtype, call));
	struct call_args args = {.collective = COLL_ALL_TO_ALL,
				 .dtype = dtype,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return call_blocks(&args, comm, call);
}

tutti_status tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
			       const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("all_gatherv", comm, 0, dtype, call));
	struct call_args args = {
		.collective = COLL_ALL_GATHERV, .dtype = dtype, .send = send, .recv = recv};
	TRY(same_counts(&args, comm, counts, offsets));
	return call_blocks(&args, comm, call);
}

tutti_status tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
				   const size_t *offsets, tutti_dtype dtype, tutti_op op,
				   tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("reduce_scatterv", comm, 0, dtype, call));
	TRY(check_op("reduce_scatterv", op, dtype));
	struct call_args args = {.collective = COLL_REDUCE_SCATTERV,
				 .dtype = dtype,
				 .op = op,
				 .send = send,
				 .recv = recv};
	TRY(same_counts(&args, comm, counts, offsets));
	return call_blocks(&args, comm, call);
}

tutti_status tutti_gatherv(const void *send, void *recv, const size_t *counts,
			   const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			   const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("gatherv", comm, 0, dtype, call));
	TRY(check_rank("gatherv", comm, "root", root));
	struct call_args args = {.collective = COLL_GATHERV,
				 .dtype = dtype,
				 .root = root,
				 .send = send,
				 .recv = recv};
	TRY(same_counts(&args, comm, counts, offsets));
	keep_root_only(&args, comm);
	return call_blocks(&args, comm, call);
}

tutti_status tutti_scatterv(const void *send, void *recv, const size_t *counts,
			    const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			    const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("scatterv", comm, 0, dtype, call));
	TRY(check_rank("scatterv", comm, "root", root));
	struct call_args args = {.collective = COLL_SCATTERV,
				 .dtype = dtype,
				 .root = root,
				 .send = send,
				 .recv = recv};
	TRY(same_counts(&args, comm, counts, offsets));
	keep_root_only(&args, comm);
	return call_blocks(&args, comm, call);
}

tutti_status tutti_all_to_allv(const void *send, const size_t *send_counts,
			       const size_t *send_offsets, void *recv, const size_t *recv_counts,
			       const size_t *recv_offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("all_to_allv", comm, 0, dtype, call));
	struct call_args args = {
		.collective = COLL_ALL_TO_ALLV, .dtype = dtype, .send = send, .recv = recv};
	TRY(check_counts(&args, SEND_SIDE, comm, send_counts, send_offsets));
	TRY(check_counts(&args, RECV_SIDE, comm, recv_counts, recv_offsets));
	if (send_counts[comm->rank] != recv_counts[comm->rank])
		return fail(TUTTI_ERR_INVALID,
			    "all_to_allv: rank %d sends itself %zu elements and expects %zu",
			    comm->rank, send_counts[comm->rank], recv_counts[comm->rank]);
	return call_blocks(&args, comm, call);
}
