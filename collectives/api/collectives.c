/* The collectives of tutti.h: each puts its arguments into one form. What is common to them, and
 * what is checked, is in check.c. */
#include "collectives/api/check.h"

tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_ALL_REDUCE,
				 .dtype = dtype,
				 .op = op,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_REDUCE,
				 .dtype = dtype,
				 .op = op,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_BROADCAST,
				 .dtype = dtype,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_ALL_GATHER,
				 .dtype = dtype,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype,
				  tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_REDUCE_SCATTER,
				 .dtype = dtype,
				 .op = op,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_GATHER,
				 .dtype = dtype,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_SCATTER,
				 .dtype = dtype,
				 .root = root,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_ALL_TO_ALL,
				 .dtype = dtype,
				 .count = count,
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_all_gatherv(const void *send, void *recv, const size_t *counts,
			       const size_t *offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	struct call_args args = {.collective = COLL_ALL_GATHERV,
				 .dtype = dtype,
				 .counts = {counts},
				 .offsets = {offsets},
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_reduce_scatterv(const void *send, void *recv, const size_t *counts,
				   const size_t *offsets, tutti_dtype dtype, tutti_op op,
				   tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_REDUCE_SCATTERV,
				 .dtype = dtype,
				 .op = op,
				 .counts = {counts},
				 .offsets = {offsets},
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_gatherv(const void *send, void *recv, const size_t *counts,
			   const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			   const tutti_call *call)
{
	struct call_args args = {.collective = COLL_GATHERV,
				 .dtype = dtype,
				 .root = root,
				 .counts = {counts},
				 .offsets = {offsets},
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_scatterv(const void *send, void *recv, const size_t *counts,
			    const size_t *offsets, tutti_dtype dtype, int root, tutti_comm *comm,
			    const tutti_call *call)
{
	struct call_args args = {.collective = COLL_SCATTERV,
				 .dtype = dtype,
				 .root = root,
				 .counts = {counts},
				 .offsets = {offsets},
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_all_to_allv(const void *send, const size_t *send_counts,
			       const size_t *send_offsets, void *recv, const size_t *recv_counts,
			       const size_t *recv_offsets, tutti_dtype dtype, tutti_comm *comm,
			       const tutti_call *call)
{
	struct call_args args = {.collective = COLL_ALL_TO_ALLV,
				 .dtype = dtype,
				 .counts = {send_counts, recv_counts},
				 .offsets = {send_offsets, recv_offsets},
				 .send = send,
				 .recv = recv};
	return check_and_call(&args, comm, call);
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	struct call_args args = {.collective = COLL_BARRIER, .dtype = TUTTI_U8, .op = TUTTI_BOR};
	return check_and_call(&args, comm, call);
}
