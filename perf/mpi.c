/* MPI behind the few calls that the benchmark driver makes, so that Open MPI and MPICH are measured
 * by the very same loop. Not a way to use Tutti over MPI: it knows a blocking all_reduce on
 * MPI_COMM_WORLD. */
#include "start.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

struct tutti_comm {
	int rank, size;
};

static const char *sentence = "";

static tutti_status refuse(const char *why)
{
	sentence = why;
	return TUTTI_ERR_UNSUPPORTED;
}

static tutti_status result_of(int code)
{
	sentence = "an MPI call failed";
	return code == MPI_SUCCESS ? TUTTI_OK : TUTTI_ERR_SYSTEM;
}

static MPI_Datatype type_of(tutti_dtype dtype)
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

static MPI_Op op_of(tutti_op op)
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
	default:
		return MPI_OP_NULL;
	}
}

tutti_status tutti_init(tutti_comm **comm, const tutti_config *config)
{
	tutti_comm *c = malloc(sizeof *c);

	(void)config;
	if (!c)
		return TUTTI_ERR_MEMORY;
	MPI_Init(NULL, NULL);
	MPI_Comm_rank(MPI_COMM_WORLD, &c->rank);
	MPI_Comm_size(MPI_COMM_WORLD, &c->size);
	*comm = c;
	return TUTTI_OK;
}

void tutti_comm_destroy(tutti_comm *comm)
{
	MPI_Finalize();
	free(comm);
}

int tutti_rank(const tutti_comm *comm)
{
	return comm->rank;
}

int tutti_size(const tutti_comm *comm)
{
	return comm->size;
}

int tutti_num_nodes(const tutti_comm *comm)
{
	(void)comm;
	return 1;
}

const char *tutti_version(void)
{
	static char text[MPI_MAX_LIBRARY_VERSION_STRING];
	int length;

	MPI_Get_library_version(text, &length);
	for (char *c = text; *c; c++) {
		if (*c == ',' || *c == '\n')
			*c = '\0';
	}
	return text;
}

const char *tutti_comm_error(const tutti_comm *comm)
{
	(void)comm;
	return sentence;
}

const char *tutti_status_string(tutti_status status)
{
	return status == TUTTI_ERR_UNSUPPORTED ? "not supported here" : "failed";
}

tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	(void)comm, (void)call;
	return result_of(MPI_Barrier(MPI_COMM_WORLD));
}

/* What MPI_Allreduce cannot do, or not here. */
static tutti_status check(size_t count, tutti_dtype dtype, tutti_op op, const tutti_call *call)
{
	if (call)
		return refuse("the MPI benchmark makes blocking calls only: no -z 0, no -m");
	if (type_of(dtype) == MPI_DATATYPE_NULL || op_of(op) == MPI_OP_NULL)
		return refuse("MPI has no such type or operation");
	return count > 0x7fffffff ? refuse("MPI counts with int") : TUTTI_OK;
}

tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	tutti_status status = check(count, dtype, op, call);

	(void)comm;
	if (status != TUTTI_OK)
		return status;
	return result_of(MPI_Allreduce(send == recv ? MPI_IN_PLACE : send, recv, (int)count,
				       type_of(dtype), op_of(op), MPI_COMM_WORLD));
}

tutti_status tutti_work_wait(tutti_work **work, int timeout_ms)
{
	(void)work, (void)timeout_ms;
	return refuse("no asynchronous calls");
}

tutti_status tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm)
{
	(void)ptr, (void)bytes, (void)comm;
	return refuse("MPI has no memory like tutti_mem_alloc's: no --zero-copy");
}

tutti_status tutti_mem_free(void *ptr)
{
	(void)ptr;
	return TUTTI_OK;
}

int start_processes(int ranks, int argc, char **argv)
{
	(void)argc;
	fprintf(stderr, "%s: start it with: mpirun -n %d %s\n", argv[0], ranks, argv[0]);
	return 2;
}

int start_threads(int n, int (*body)(tutti_comm *comm, const void *arg), const void *arg)
{
	(void)n, (void)body, (void)arg;
	fputs("MPI ranks are processes: no -t, no -g.\n", stderr);
	return 2;
}
