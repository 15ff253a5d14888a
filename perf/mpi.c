/* MPI as the library that is measured: Open MPI or MPICH. It makes blocking calls on
 * MPI_COMM_WORLD, whose ranks have the numbers that Tutti reads of the same launcher. */
#include "library.h"

#include <mpi.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

const bool library_has_kernels = false;

/* MPI_DATATYPE_NULL: MPI has no such numbers. */
static const MPI_Datatype mpi_types[DTYPES] = {
	[TUTTI_F32] = MPI_FLOAT,
	[TUTTI_F64] = MPI_DOUBLE,
	[TUTTI_F16] = MPI_DATATYPE_NULL,
	[TUTTI_BF16] = MPI_DATATYPE_NULL,
	[TUTTI_F8_E4M3] = MPI_DATATYPE_NULL,
	[TUTTI_F8_E5M2] = MPI_DATATYPE_NULL,
	[TUTTI_I8] = MPI_INT8_T,
	[TUTTI_U8] = MPI_UINT8_T,
	[TUTTI_I16] = MPI_INT16_T,
	[TUTTI_U16] = MPI_UINT16_T,
	[TUTTI_I32] = MPI_INT32_T,
	[TUTTI_U32] = MPI_UINT32_T,
	[TUTTI_I64] = MPI_INT64_T,
	[TUTTI_U64] = MPI_UINT64_T,
};
static const MPI_Op mpi_ops[OPS] = {
	[TUTTI_SUM] = MPI_SUM, [TUTTI_PROD] = MPI_PROD,   [TUTTI_MIN] = MPI_MIN,
	[TUTTI_MAX] = MPI_MAX, [TUTTI_AVG] = MPI_OP_NULL, [TUTTI_BAND] = MPI_BAND,
	[TUTTI_BOR] = MPI_BOR, [TUTTI_BXOR] = MPI_BXOR,
};

/* Elements that are only moved may be of another type of the same size. */
static MPI_Datatype mpi_moved_type(tutti_dtype dtype)
{
	MPI_Datatype type = mpi_types[dtype];

	if (type != MPI_DATATYPE_NULL)
		return type;
	return element_bytes(dtype) == 1 ? MPI_UINT8_T : MPI_UINT16_T;
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

const char *library_refuses_ranks(bool are_processes, bool are_threads, int *code)
{
	*code = 2;
	return are_processes || are_threads
		       ? "MPI's ranks are processes: start N of them with " MPIRUN
			 " -n N, without --ranks, -t and -g"
		       : NULL;
}

/* MPICH 4.0 takes MPI_IN_PLACE for an address when the root is not rank 0, from 4 KiB on. */
static const char *mpi_refuses_reduce(const struct request *r)
{
#ifdef MPICH_VERSION
	if (r->in_place && r->root != 0 && r->collective->call == CALL_REDUCE)
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
	if (mpi_types[r->dtype] == MPI_DATATYPE_NULL)
		return "MPI has no such type";
	if (mpi_ops[r->op] == MPI_OP_NULL)
		return "MPI has no such operation";
	if (r->in_place && r->collective->call == CALL_REDUCE_SCATTER)
		return "MPI leaves the result elsewhere";
	return mpi_refuses_reduce(r);
}

tutti_status library_join(tutti_comm *comm)
{
	int rank, size;

	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (rank == tutti_rank(comm) && size == tutti_size(comm))
		return TUTTI_OK;
	return tutti_set_error(TUTTI_ERR_UNSUPPORTED, "the launcher is not " MPIRUN);
}

void library_leave(void)
{
	MPI_Finalize();
}

/* MPI's has one buffer. */
static int mpi_broadcast(const struct operation *o, int n, MPI_Datatype type)
{
	bool is_root = tutti_rank(o->comm) == o->root;
	int code = MPI_Bcast(is_root ? (void *)o->send : o->recv, n, type, o->root, MPI_COMM_WORLD);

	if (is_root && o->send != o->recv && n > 0)
		memcpy(o->recv, o->send, o->count * element_bytes(o->dtype));
	return code;
}

static int mpi_sendrecv(const struct operation *o, int n, MPI_Datatype type)
{
	int rank = tutti_rank(o->comm), ranks = tutti_size(o->comm);
	MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
	MPI_Status statuses[2]; /* MPICH's header warns where they are ignored */
	int code = MPI_Irecv(o->recv, n, type, collective_previous(rank, ranks), 0, MPI_COMM_WORLD,
			     &requests[0]);

	if (code == MPI_SUCCESS)
		code = MPI_Isend(o->send, n, type, (rank + 1) % ranks, 0, MPI_COMM_WORLD,
				 &requests[1]);
	return code == MPI_SUCCESS ? MPI_Waitall(2, requests, statuses) : code;
}

/* Whether it is this rank's block of all. */
static bool mpi_is_block(const struct operation *o, const void *block, const void *all)
{
	size_t bytes = o->count * element_bytes(o->dtype);

	return (uintptr_t)block == (uintptr_t)all + (size_t)tutti_rank(o->comm) * bytes;
}

static int mpi_make(const struct operation *o)
{
	MPI_Datatype type = mpi_types[o->dtype], moved = mpi_moved_type(o->dtype);
	MPI_Comm world = MPI_COMM_WORLD;
	MPI_Op op = mpi_ops[o->op];
	bool is_root = tutti_rank(o->comm) == o->root;
	const void *same = o->send == o->recv ? MPI_IN_PLACE : o->send;
	const void *part = mpi_is_block(o, o->send, o->recv) ? MPI_IN_PLACE : o->send;
	int n = (int)o->count;

	switch (o->what) {
	case CALL_ALL_REDUCE:
		return MPI_Allreduce(same, o->recv, n, type, op, world);
	case CALL_ALL_GATHER:
		return MPI_Allgather(part, n, moved, o->recv, n, moved, world);
	case CALL_REDUCE_SCATTER:
		return MPI_Reduce_scatter_block(o->send, o->recv, n, type, op, world);
	case CALL_BROADCAST:
		return mpi_broadcast(o, n, moved);
	case CALL_REDUCE:
		return MPI_Reduce(is_root ? same : o->send, o->recv, n, type, op, o->root, world);
	case CALL_GATHER:
		return MPI_Gather(is_root ? part : o->send, n, moved, o->recv, n, moved, o->root,
				  world);
	case CALL_SCATTER:
		return MPI_Scatter(o->send, n, moved,
				   is_root && mpi_is_block(o, o->recv, o->send) ? MPI_IN_PLACE
										: o->recv,
				   n, moved, o->root, world);
	case CALL_ALL_TO_ALL:
		return MPI_Alltoall(o->send, n, moved, o->recv, n, moved, world);
	case CALL_SENDRECV:
		return mpi_sendrecv(o, n, moved);
	default:
		return MPI_Barrier(world);
	}
}

tutti_status library_call(const struct operation *o)
{
	if (o->count > INT_MAX / (size_t)tutti_size(o->comm))
		return tutti_set_error(TUTTI_ERR_UNSUPPORTED, "MPI counts with int");
	if (mpi_make(o) == MPI_SUCCESS)
		return TUTTI_OK;
	return tutti_set_error(TUTTI_ERR_SYSTEM, "an MPI call failed");
}
