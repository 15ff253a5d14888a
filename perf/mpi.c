/* MPI behind the calls that the benchmark driver makes, so that Open MPI and MPICH are measured by
 * the very same loop. Not a way to use Tutti over MPI: it knows blocking collectives on
 * MPI_COMM_WORLD. */
#include "library.h"
#include "start.h"

#include <mpi.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tutti_comm {
	int rank, size, local_rank, local_size;
};

/* Passes a failed call up. */
#define TRY(expression)                                                                            \
	do {                                                                                       \
		tutti_status try_status_ = (expression);                                           \
		if (try_status_ != TUTTI_OK)                                                       \
			return try_status_;                                                        \
	} while (0)

static const char *message = "";

static tutti_status mpi_refuse(const char *why)
{
	message = why;
	return TUTTI_ERR_UNSUPPORTED;
}

static tutti_status mpi_result_of(int code)
{
	message = code == MPI_SUCCESS ? "" : "an MPI call failed";
	return code == MPI_SUCCESS ? TUTTI_OK : TUTTI_ERR_SYSTEM;
}

/* MPI counts with int. */
static tutti_status mpi_check(size_t count, const tutti_comm *comm)
{
	return count > INT_MAX / (size_t)comm->size ? mpi_refuse("MPI counts with int") : TUTTI_OK;
}

/* MPI_DATATYPE_NULL: MPI has no such numbers. */
static MPI_Datatype mpi_type_of(tutti_dtype dtype)
{
	switch (dtype) {
	case TUTTI_F32:
		return MPI_FLOAT;
	case TUTTI_F64:
		return MPI_DOUBLE;
	case TUTTI_I8:
		return MPI_INT8_T;
	case TUTTI_U8:
		return MPI_UINT8_T;
	case TUTTI_I16:
		return MPI_INT16_T;
	case TUTTI_U16:
		return MPI_UINT16_T;
	case TUTTI_I32:
		return MPI_INT32_T;
	case TUTTI_U32:
		return MPI_UINT32_T;
	case TUTTI_I64:
		return MPI_INT64_T;
	case TUTTI_U64:
		return MPI_UINT64_T;
	default:
		return MPI_DATATYPE_NULL;
	}
}

/* Elements that are only moved may be of another type of the same size. */
static MPI_Datatype moved_type(tutti_dtype dtype)
{
	MPI_Datatype type = mpi_type_of(dtype);

	if (type != MPI_DATATYPE_NULL)
		return type;
	return element_bytes(dtype) == 1 ? MPI_UINT8_T : MPI_UINT16_T;
}

static MPI_Op mpi_op_of(tutti_op op)
{
	switch (op) {
	case TUTTI_SUM:
		return MPI_SUM;
	case TUTTI_PROD:
		return MPI_PROD;
	case TUTTI_MIN:
		return MPI_MIN;
	case TUTTI_MAX:
		return MPI_MAX;
	case TUTTI_BAND:
		return MPI_BAND;
	case TUTTI_BOR:
		return MPI_BOR;
	case TUTTI_BXOR:
		return MPI_BXOR;
	default:
		return MPI_OP_NULL;
	}
}

/* Their messages begin differently: "Open MPI v4.1.4, package ...", "MPICH Version:      4.0.2"
 * and lines of more. */
const char *library_name(void)
{
	static char text[MPI_MAX_LIBRARY_VERSION_STRING], number[32];
	int length;

	MPI_Get_library_version(text, &length);
	text[strcspn(text, ",\n")] = '\0';
	if (sscanf(text, "MPICH Version: %31s", number) == 1)
		snprintf(text, sizeof text, "MPICH %s", number);
	return text;
}

/* MPICH 4.0 takes MPI_IN_PLACE for an address when the root is not rank 0, from 4 KiB on. */
static const char *refuses_reduce(const struct request *r)
{
#ifdef MPICH_VERSION
	if (r->in_place && r->root != 0 && strcmp(r->collective->name, "reduce") == 0)
		return "MPICH crashes where the root is not rank 0";
#endif
	(void)r;
	return NULL;
}

const char *library_refuses(const struct request *r)
{
	if (r->is_on_gpu)
		return "the programs of MPI measure memory of the host, no -g";
	if (r->is_async)
		return "the programs of MPI make blocking calls only, no -z 0 and no -m";
	if (r->is_zero_copy)
		return "MPI has no memory like that of --zero-copy";
	if (!r->collective->is_reduced)
		return NULL;
	if (mpi_type_of(r->dtype) == MPI_DATATYPE_NULL)
		return "MPI has no such type";
	if (mpi_op_of(r->op) == MPI_OP_NULL)
		return "MPI has no such operation";
	if (r->in_place && strcmp(r->collective->name, "reduce_scatter") == 0)
		return "MPI leaves the result elsewhere";
	return refuses_reduce(r);
}

tutti_status tutti_init(tutti_comm **comm, const tutti_config *config)
{
	tutti_comm *c = malloc(sizeof *c);
	MPI_Comm local;

	(void)config;
	if (!c)
		return TUTTI_ERR_MEMORY;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &c->size);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local);
	MPI_Comm_rank(local, &c->local_rank);
	MPI_Comm_size(local, &c->local_size);
	MPI_Comm_free(&local);
	*comm = c;
	return TUTTI_OK;
}

void tutti_comm_destroy(tutti_comm *comm)
{
	MPI_Finalize();
	free(comm);
}

/* The launcher ends the other ranks when this one exits. */
tutti_status tutti_comm_abort(tutti_comm *comm)
{
	(void)comm;
	return TUTTI_OK;
}

int tutti_rank(const tutti_comm *comm)
{
	return comm->rank;
}

int tutti_size(const tutti_comm *comm)
{
	return comm->size;
}

int tutti_local_rank(const tutti_comm *comm)
{
	return comm->local_rank;
}

int tutti_local_size(const tutti_comm *comm)
{
	return comm->local_size;
}

int tutti_num_nodes(const tutti_comm *comm)
{
	(void)comm;
	return 1;
}

const char *tutti_comm_error(const tutti_comm *comm)
{
	(void)comm;
	return message;
}

tutti_status tutti_set_error(tutti_status status, const char *text)
{
	message = text;
	return status;
}

const char *tutti_status_string(tutti_status status)
{
	return status == TUTTI_ERR_UNSUPPORTED ? "not supported here" : "failed";
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	(void)comm, (void)call;
	return mpi_result_of(MPI_Barrier(MPI_COMM_WORLD));
}

tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	(void)call;
	TRY(mpi_check(count, comm));
	return mpi_result_of(MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, (int)count,
					   mpi_type_of(dtype), mpi_op_of(op), MPI_COMM_WORLD));
}

tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *call)
{
	bool in_place = comm->rank == root && send == recv;

	(void)call;
	TRY(mpi_check(count, comm));
	return mpi_result_of(MPI_Reduce(in_place ? MPI_IN_PLACE : send, recv, (int)count,
					mpi_type_of(dtype), mpi_op_of(op), root, MPI_COMM_WORLD));
}

/* MPI's has one buffer. */
tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *call)
{
	bool is_root = comm->rank == root;

	(void)call;
	TRY(mpi_check(count, comm));
	TRY(mpi_result_of(MPI_Bcast(is_root ? (void *)send : recv, (int)count, moved_type(dtype),
				    root, MPI_COMM_WORLD)));
	if (is_root && send != recv && count > 0)
		memcpy(recv, send, count * element_bytes(dtype));
	return TUTTI_OK;
}

/* Where rank's block of count elements begins. */
static const void *mpi_block(const void *base, int rank, size_t count, tutti_dtype dtype)
{
	return (const char *)base + (size_t)rank * count * element_bytes(dtype);
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	bool in_place = send == mpi_block(recv, comm->rank, count, dtype);
	MPI_Datatype type = moved_type(dtype);

	(void)call;
	TRY(mpi_check(count, comm));
	return mpi_result_of(MPI_Allgather(in_place ? MPI_IN_PLACE : send, (int)count, type, recv,
					   (int)count, type, MPI_COMM_WORLD));
}

tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype,
				  tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	(void)call;
	TRY(mpi_check(count, comm));
	return mpi_result_of(MPI_Reduce_scatter_block(send, recv, (int)count, mpi_type_of(dtype),
						      mpi_op_of(op), MPI_COMM_WORLD));
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *call)
{
	bool in_place = comm->rank == root && send == mpi_block(recv, root, count, dtype);
	MPI_Datatype type = moved_type(dtype);

	(void)call;
	TRY(mpi_check(count, comm));
	return mpi_result_of(MPI_Gather(in_place ? MPI_IN_PLACE : send, (int)count, type, recv,
					(int)count, type, root, MPI_COMM_WORLD));
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *call)
{
	bool in_place = comm->rank == root && recv == mpi_block(send, root, count, dtype);
	MPI_Datatype type = moved_type(dtype);

	(void)call;
	TRY(mpi_check(count, comm));
	return mpi_result_of(MPI_Scatter(send, (int)count, type, in_place ? MPI_IN_PLACE : recv,
					 (int)count, type, root, MPI_COMM_WORLD));
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	MPI_Datatype type = moved_type(dtype);

	(void)call;
	TRY(mpi_check(count, comm));
	return mpi_result_of(
		MPI_Alltoall(send, (int)count, type, recv, (int)count, type, MPI_COMM_WORLD));
}

/* ---- messages: they begin at once, and the end of the group waits for all ------------------- */
static struct {
	MPI_Request requests[2];
	int count;
} group;

tutti_status tutti_group_begin(void)
{
	group.count = 0;
	return TUTTI_OK;
}

static tutti_status add_to_group(size_t count, const tutti_comm *comm, MPI_Request **request)
{
	TRY(mpi_check(count, comm));
	if (group.count == 2)
		return mpi_refuse("a group has two messages here");
	*request = &group.requests[group.count++];
	**request = MPI_REQUEST_NULL;
	return TUTTI_OK;
}

tutti_status tutti_send(const void *buf, size_t count, tutti_dtype dtype, int peer,
			tutti_comm *comm, const tutti_call *call)
{
	MPI_Request *request;

	(void)call;
	TRY(add_to_group(count, comm, &request));
	return mpi_result_of(
		MPI_Isend(buf, (int)count, moved_type(dtype), peer, 0, MPI_COMM_WORLD, request));
}

tutti_status tutti_recv(void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
			const tutti_call *call)
{
	MPI_Request *request;

	(void)call;
	TRY(add_to_group(count, comm, &request));
	return mpi_result_of(
		MPI_Irecv(buf, (int)count, moved_type(dtype), peer, 0, MPI_COMM_WORLD, request));
}

tutti_status tutti_group_end(const tutti_call *call)
{
	MPI_Status statuses[2]; /* MPICH's header warns where they are ignored */

	(void)call;
	return mpi_result_of(MPI_Waitall(group.count, group.requests, statuses));
}

tutti_status tutti_work_wait(tutti_work **work, int timeout_ms)
{
	(void)work, (void)timeout_ms;
	return mpi_refuse("no asynchronous calls");
}

tutti_status tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm)
{
	(void)ptr, (void)bytes, (void)comm;
	return mpi_refuse("no memory of all ranks");
}

tutti_status tutti_mem_free(void *ptr)
{
	(void)ptr;
	return TUTTI_OK;
}

int start_processes(int ranks, int (*part)(int rank, void *arg), void *arg)
{
	(void)part, (void)arg;
	fprintf(stderr, "%s: start it with: " MPIRUN " -n %d %s\n", program_invocation_short_name,
		ranks, program_invocation_name);
	return 2;
}

int start_threads(int n, const tutti_config *config, int (*body)(tutti_comm *comm, const void *arg),
		  const void *arg)
{
	(void)config;
	(void)n, (void)body, (void)arg;
	fprintf(stderr, "%s: MPI's ranks are processes: no -t, no -g.\n",
		program_invocation_short_name);
	return 2;
}
