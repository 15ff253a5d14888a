/* NCCL as the library that is measured. Its ranks are threads; libnccl.so.2 is loaded at run time,
 * and these are our own declarations of it. */
#include "gpu_rank.h"
#include "library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

const bool library_has_kernels = false;

typedef void *ncclComm_t;
typedef void *stream_t;
typedef struct {
	char internal[128];
} ncclUniqueId;

#define NCCL_FUNCTIONS(X)                                                                          \
	X(GetVersion, (int *version))                                                              \
	X(GetUniqueId, (ncclUniqueId * id))                                                        \
	X(CommInitRank, (ncclComm_t * comm, int size, ncclUniqueId id, int rank))                  \
	X(CommDestroy, (ncclComm_t comm))                                                          \
	X(AllReduce, (const void *send, void *recv, size_t count, int type, int op,                \
		      ncclComm_t comm, stream_t stream))                                           \
	X(Reduce, (const void *send, void *recv, size_t count, int type, int op, int root,         \
		   ncclComm_t comm, stream_t stream))                                              \
	X(Broadcast, (const void *send, void *recv, size_t count, int type, int root,              \
		      ncclComm_t comm, stream_t stream))                                           \
	X(AllGather, (const void *send, void *recv, size_t count, int type, ncclComm_t comm,       \
		      stream_t stream))                                                            \
	X(ReduceScatter, (const void *send, void *recv, size_t count, int type, int op,            \
			  ncclComm_t comm, stream_t stream))                                       \
	X(Send,                                                                                    \
	  (const void *send, size_t count, int type, int peer, ncclComm_t comm, stream_t stream))  \
	X(Recv, (void *recv, size_t count, int type, int peer, ncclComm_t comm, stream_t stream))  \
	X(GroupStart, (void))                                                                      \
	X(GroupEnd, (void))

static struct {
#define MEMBER(name, parameters) int(*name) parameters;
	NCCL_FUNCTIONS(MEMBER)
#undef MEMBER
	const char *(*text)(int error);
} nccl;
static const char *lacks = "libnccl.so.2 is not here"; /* NULL: it is */

/* This rank's: a thread. */
static _Thread_local ncclComm_t nccl_comm;
static _Thread_local struct gpu_rank *nccl_gpu;

static void nccl_load(void)
{
	void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL), *symbol;

	if (!library)
		return;
	lacks = NULL;
#define FIND(name, parameters)                                                                     \
	symbol = dlsym(library, "nccl" #name);                                                     \
	memcpy(&nccl.name, &symbol, sizeof symbol);                                                \
	if (!symbol)                                                                               \
		lacks = "libnccl.so.2 has no nccl" #name;
	NCCL_FUNCTIONS(FIND)
#undef FIND
	symbol = dlsym(library, "ncclGetErrorString");
	memcpy(&nccl.text, &symbol, sizeof symbol);
}

static bool nccl_is_here(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, nccl_load);
	return !lacks;
}

/* The others do not wait for this rank. */
static tutti_status nccl_result_of(int error, tutti_comm *comm, const char *call)
{
	if (error == 0)
		return TUTTI_OK;
	tutti_comm_abort(comm);
	return fail(TUTTI_ERR_DEVICE, "nccl%s failed: %s", call,
		    nccl.text ? nccl.text(error) : "no text");
}

const char *library_name(void)
{
	static char name[64];
	int version = 0;

	if (nccl_is_here())
		nccl.GetVersion(&version);
	snprintf(name, sizeof name, "NCCL %d.%d.%d", version / 10000, version % 10000 / 100,
		 version % 100);
	return name;
}

/* By tutti.h's order; -1: NCCL has no such numbers. */
static int nccl_type_of(tutti_dtype dtype)
{
	static const int types[DTYPES] = {7, 8, 6, 9, 10, 11, 0, 1, -1, -1, 2, 3, 4, 5};

	return types[dtype];
}

static int nccl_op_of(tutti_op op)
{
	static const int ops[] = {0, 1, 3, 2, 4};

	return op <= TUTTI_AVG ? ops[op] : -1;
}

const char *library_refuses_ranks(bool are_processes, bool are_threads, int *code)
{
	(void)are_threads;
	*code = nccl_is_here() ? 2 : LIBRARY_MISSING;
	if (lacks)
		return lacks;
	return are_processes ? "NCCL's ranks are threads here: -g N, no --ranks" : NULL;
}

const char *library_refuses(const struct request *r)
{
	if (!r->is_on_gpu)
		return "NCCL has memory of GPUs only: -g is needed";
	if (r->is_zero_copy || !collective_has_data(r->collective))
		return "NCCL has neither a barrier nor --zero-copy";
	if (nccl_type_of(r->dtype) < 0)
		return "NCCL has no such type";
	if (r->collective->is_reduced && nccl_op_of(r->op) < 0)
		return "NCCL has no such operation";
	return NULL;
}

tutti_status library_join(tutti_comm *comm)
{
	ncclUniqueId id = {{0}};
	int error = 0;
	const char *why;

	if (gpu_rank_count(&why) == 0)
		return tutti_set_error(TUTTI_ERR_DEVICE, why);
	if (tutti_rank(comm) == 0)
		error = nccl.GetUniqueId(&id);
	TRY(nccl_result_of(error, comm, "GetUniqueId"));
	TRY(tutti_broadcast(&id, &id, sizeof id, TUTTI_U8, 0, comm, NULL));
	TRY(gpu_rank_open(&nccl_gpu, tutti_local_rank(comm), comm));
	error = nccl.CommInitRank(&nccl_comm, tutti_size(comm), id, tutti_rank(comm));
	return nccl_result_of(error, comm, "CommInitRank");
}

void library_leave(void)
{
	if (nccl_comm)
		nccl.CommDestroy(nccl_comm);
	gpu_rank_close(nccl_gpu);
}

/* Whether a rank sends to that peer, of the calls that NCCL does not have; the other one receives.
 */
static bool nccl_sends(const struct operation *o, int rank, int peer)
{
	switch (o->what) {
	case CALL_GATHER:
		return peer == o->root;
	case CALL_SCATTER:
		return rank == o->root;
	case CALL_SENDRECV:
		return peer == (rank + 1) % tutti_size(o->comm);
	default:
		return true; /* CALL_ALL_TO_ALL */
	}
}

/* These by messages, whose blocks are one for each peer where a buffer has several. */
static int nccl_exchange(const struct operation *o, void *stream)
{
	int rank = tutti_rank(o->comm), type = nccl_type_of(o->dtype), error = nccl.GroupStart();
	size_t block = o->count * element_bytes(o->dtype);
	bool has_blocks_to = o->what == CALL_SCATTER || o->what == CALL_ALL_TO_ALL;
	bool has_blocks_from = o->what == CALL_GATHER || o->what == CALL_ALL_TO_ALL;

	for (int peer = 0; error == 0 && peer < tutti_size(o->comm); peer++) {
		size_t at = (size_t)peer * block;

		if (nccl_sends(o, rank, peer))
			error = nccl.Send((const char *)o->send + (has_blocks_to ? at : 0),
					  o->count, type, peer, nccl_comm, stream);
		if (error == 0 && nccl_sends(o, peer, rank))
			error = nccl.Recv((char *)o->recv + (has_blocks_from ? at : 0), o->count,
					  type, peer, nccl_comm, stream);
	}
	int ended = nccl.GroupEnd();
	return error ? error : ended;
}

static int nccl_make(const struct operation *o, void *stream)
{
	int type = nccl_type_of(o->dtype), op = nccl_op_of(o->op);

	switch (o->what) {
	case CALL_ALL_REDUCE:
		return nccl.AllReduce(o->send, o->recv, o->count, type, op, nccl_comm, stream);
	case CALL_ALL_GATHER:
		return nccl.AllGather(o->send, o->recv, o->count, type, nccl_comm, stream);
	case CALL_REDUCE_SCATTER:
		return nccl.ReduceScatter(o->send, o->recv, o->count, type, op, nccl_comm, stream);
	case CALL_BROADCAST:
		return nccl.Broadcast(o->send, o->recv, o->count, type, o->root, nccl_comm, stream);
	case CALL_REDUCE:
		return nccl.Reduce(o->send, o->recv, o->count, type, op, o->root, nccl_comm,
				   stream);
	default:
		return nccl_exchange(o, stream);
	}
}

tutti_status library_call(const struct operation *o)
{
	static const char *const calls[] = {
		"AllReduce",    "AllGather",    "ReduceScatter", "Broadcast",    "Reduce",
		"Send or Recv", "Send or Recv", "Send or Recv",  "Send or Recv", "",
	};

	if (o->what == CALL_BARRIER)
		return tutti_barrier(o->comm, NULL);
	return nccl_result_of(nccl_make(o, o->call->stream), o->comm, calls[o->what]);
}
