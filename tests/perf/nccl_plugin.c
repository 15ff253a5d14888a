/* In place of libnccl.so.2, for perf/nccl.c: NCCL's functions by those of Tutti, with NCCL's
 * numbers of types and operations, as nccl.h has them. One communicator, whose ranks are threads.
 */
#include <tutti/tutti.h>

#include <pthread.h>
#include <stddef.h>

typedef struct {
	char internal[128];
} ncclUniqueId;
typedef tutti_comm *ncclComm_t;

static const tutti_dtype types[] = {TUTTI_I8,  TUTTI_U8,   TUTTI_I32,     TUTTI_U32,
				    TUTTI_I64, TUTTI_U64,  TUTTI_F16,     TUTTI_F32,
				    TUTTI_F64, TUTTI_BF16, TUTTI_F8_E4M3, TUTTI_F8_E5M2};
static const tutti_op ops[] = {TUTTI_SUM, TUTTI_PROD, TUTTI_MAX, TUTTI_MIN, TUTTI_AVG};

static tutti_comm *comms[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define NCCL(name, ...)                                                                            \
	int nccl##name(__VA_ARGS__);                                                               \
	__attribute__((visibility("default"))) int nccl##name(__VA_ARGS__)

NCCL(GetVersion, int *version)
{
	*version = 23004;
	return 0;
}

NCCL(GetUniqueId, ncclUniqueId *id)
{
	id->internal[127] = 'x';
	return 0;
}

NCCL(CommInitRank, ncclComm_t *comm, int size, ncclUniqueId id, int rank)
{
	pthread_mutex_lock(&lock);
	int failed = id.internal[127] != 'x' ||
		     (!comms[0] && tutti_init_all(comms, size, NULL) != TUTTI_OK);
	pthread_mutex_unlock(&lock);
	*comm = comms[rank];
	return failed;
}

NCCL(CommDestroy, ncclComm_t comm)
{
	tutti_comm_destroy(comm);
	return 0;
}

const char *ncclGetErrorString(int error);
__attribute__((visibility("default"))) const char *ncclGetErrorString(int error)
{
	return error ? tutti_comm_error(NULL) : "no error";
}

#define CALL(stream_) (&(tutti_call){.stream = (stream_)})

NCCL(AllReduce, const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
     void *stream)
{
	return tutti_all_reduce(send, recv, count, types[type], ops[op], comm, CALL(stream));
}

NCCL(Reduce, const void *send, void *recv, size_t count, int type, int op, int root,
     ncclComm_t comm, void *stream)
{
	return tutti_reduce(send, recv, count, types[type], ops[op], root, comm, CALL(stream));
}

NCCL(Broadcast, const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm,
     void *stream)
{
	return tutti_broadcast(send, recv, count, types[type], root, comm, CALL(stream));
}

NCCL(AllGather, const void *send, void *recv, size_t count, int type, ncclComm_t comm, void *stream)
{
	return tutti_all_gather(send, recv, count, types[type], comm, CALL(stream));
}

NCCL(ReduceScatter, const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
     void *stream)
{
	return tutti_reduce_scatter(send, recv, count, types[type], ops[op], comm, CALL(stream));
}

/* The stream of a group is its members'. */
static _Thread_local void *group_stream;

NCCL(Send, const void *send, size_t count, int type, int peer, ncclComm_t comm, void *stream)
{
	group_stream = stream;
	return tutti_send(send, count, types[type], peer, comm, NULL);
}

NCCL(Recv, void *recv, size_t count, int type, int peer, ncclComm_t comm, void *stream)
{
	group_stream = stream;
	return tutti_recv(recv, count, types[type], peer, comm, NULL);
}

NCCL(GroupStart, void)
{
	return tutti_group_begin();
}

NCCL(GroupEnd, void)
{
	return tutti_group_end(CALL(group_stream));
}
