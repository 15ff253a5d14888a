/* The collectives of tutti.h whose ranks all have one vector: each checks its arguments and becomes
 * one call. Those with a block for every rank are in api_blocks.c. */
#include "collectives/check.h"

/* send is looked at on the root only, recv too, where the collective has a root. */
static tutti_status call_vector(struct call_args *args, tutti_comm *comm, const tutti_call *call)
{
	TRY(check_buffers(args, comm));
	return comm_call(comm, args, call);
}

tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("all_reduce", comm, count, dtype, call));
	TRY(check_op("all_reduce", op, dtype));
	struct call_args args = {.collective = COLL_ALL_REDUCE,
				 .dtype = dtype,
				 .op = op,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return call_vector(&args, comm, call);
}

tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("reduce", comm, count, dtype, call));
	TRY(check_op("reduce", op, dtype));
	TRY(check_rank("reduce", comm, "root", root));
	struct call_args args = {.collective = COLL_REDUCE,
				 .dtype = dtype,
				 .op = op,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = comm->rank == root ? recv : NULL};
	return call_vector(&args, comm, call);
}

tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("broadcast", comm, count, dtype, call));
	TRY(check_rank("broadcast", comm, "root", root));
	struct call_args args = {.collective = COLL_BROADCAST,
				 .dtype = dtype,
				 .root = root,
				 .count = count,
				 .send = comm->rank == root ? send : recv,
				 .recv = recv};
	return call_vector(&args, comm, call);
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	last_error_clear();
	TRY(check_common("barrier", comm, 0, TUTTI_U8, call));
	struct call_args args = {.collective = COLL_BARRIER, .dtype = TUTTI_U8, .op = TUTTI_BOR};
	return comm_call(comm, &args, call);
}
