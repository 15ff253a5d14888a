/* NCCL behind the calls that the benchmark driver makes, so that it is measured by the very same
 * loop. Its ranks are threads; libnccl.so.2 is loaded at run time, and these are our own
 * declarations of it. What the driver sends between ranks on the host goes by nccl_host.c. */
#include "gpu_rank.h"
#include "library.h"
#include "nccl_host.h"
#include "start.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_NCCL 77 /* the exit code: nothing can be compared */

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

struct tutti_comm {
	int rank, size;
	ncclComm_t comm;
	struct gpu_rank *gpu;
};

static _Thread_local char message[300] = "";

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

static tutti_status nccl_result_of(int error, const char *call)
{
	if (error == 0)
		return TUTTI_OK;
	snprintf(message, sizeof message, "nccl%s failed: %s", call,
		 nccl.text ? nccl.text(error) : "no text");
	nccl_host_abort();
	return TUTTI_ERR_DEVICE;
}

#define NCCL(name, ...) nccl_result_of(nccl.name(__VA_ARGS__), #name)

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

const char *library_refuses(const struct request *r)
{
	if (!r->is_on_gpu)
		return "NCCL has memory of GPUs only: -g is needed";
	if (r->is_zero_copy || !r->collective->shape)
		return "NCCL has neither a barrier nor --zero-copy";
	if (nccl_type_of(r->dtype) < 0)
		return "NCCL has no such type";
	if (r->collective->is_reduced && nccl_op_of(r->op) < 0)
		return "NCCL has no such operation";
	return NULL;
}

/* ---- ranks ------------------------------------------------------------------------------- */
static struct {
	int size;
	ncclUniqueId id;
} job;

static tutti_status nccl_join(struct tutti_comm *comm)
{
	if (gpu_rank_open(&comm->gpu, comm->rank, comm) != TUTTI_OK)
		return TUTTI_ERR_DEVICE;
	return NCCL(CommInitRank, &comm->comm, job.size, job.id, comm->rank);
}

static bool nccl_prepare(int size)
{
	const char *why;

	if (gpu_rank_count(&why) == 0) {
		fprintf(stderr, "%s: %s.\n", program_invocation_short_name, why);
		return false;
	}
	job.size = size;
	nccl_host_open(size);
	return nccl.GetUniqueId(&job.id) == 0;
}

/* Nobody to talk to, but NCCL's own copies. */
tutti_status tutti_init(tutti_comm **comm, const tutti_config *config)
{
	struct tutti_comm *c = calloc(1, sizeof *c);

	(void)config;
	if (!c || !nccl_is_here() || !nccl_prepare(1)) {
		snprintf(message, sizeof message, "%s", lacks ? lacks : "no memory, or no GPU");
		free(c);
		return TUTTI_ERR_UNSUPPORTED;
	}
	c->size = 1;
	*comm = c;
	return nccl_join(c);
}

void tutti_comm_destroy(tutti_comm *comm)
{
	if (comm->comm)
		nccl.CommDestroy(comm->comm);
	gpu_rank_close(comm->gpu);
	free(comm);
}

int start_processes(int ranks, int (*part)(int rank, void *arg), void *arg)
{
	(void)ranks, (void)part, (void)arg;
	fprintf(stderr, "%s: NCCL's ranks are threads here: -g N, no --ranks.\n",
		program_invocation_short_name);
	return 2;
}

struct thread {
	pthread_t id;
	struct tutti_comm *comm;
	int (*body)(tutti_comm *comm, const void *arg);
	const void *arg;
	int code;
};

static void *nccl_run_body(void *arg)
{
	struct thread *t = arg;

	t->code = 3;
	if (nccl_join(t->comm) == TUTTI_OK)
		t->code = t->body(t->comm, t->arg);
	else
		fprintf(stderr, "%s: rank %d: %s\n", program_invocation_short_name, t->comm->rank,
			message);
	return NULL;
}

static int nccl_run_all(struct thread *threads, int n)
{
	int code = 0;

	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i].id, NULL, nccl_run_body, &threads[i]) != 0)
			exit(3);
	for (int i = 0; i < n; i++) {
		pthread_join(threads[i].id, NULL);
		code = threads[i].code > code ? threads[i].code : code;
	}
	return code;
}

int start_threads(int n, const tutti_config *config, int (*body)(tutti_comm *comm, const void *arg),
		  const void *arg)
{
	(void)config;
	struct thread *threads = calloc((size_t)n, sizeof *threads);
	int code = 2;

	if (!nccl_is_here()) {
		fprintf(stderr, "%s: %s.\n", program_invocation_short_name, lacks);
		code = NO_NCCL;
	} else if (threads && nccl_prepare(n)) {
		for (int i = 0; i < n; i++) {
			struct tutti_comm *comm = calloc(1, sizeof *comm);

			if (!comm)
				exit(3);
			*comm = (struct tutti_comm){.rank = i, .size = n};
			threads[i] = (struct thread){.comm = comm, .body = body, .arg = arg};
		}
		code = nccl_run_all(threads, n);
		for (int i = 0; i < n; i++)
			tutti_comm_destroy(threads[i].comm);
	}
	free(threads);
	return code;
}

tutti_status tutti_comm_abort(tutti_comm *comm)
{
	(void)comm;
	nccl_host_abort();
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
	return comm->rank;
}

int tutti_local_size(const tutti_comm *comm)
{
	return comm->size;
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
	snprintf(message, sizeof message, "%s", text);
	return status;
}

const char *tutti_status_string(tutti_status status)
{
	return status == TUTTI_ERR_ABORTED ? "another rank has failed" : "failed";
}

/* ---- calls ------------------------------------------------------------------------------- */
tutti_status tutti_barrier(tutti_comm *comm, const tutti_call *call)
{
	(void)comm, (void)call;
	return nccl_host_meet();
}

/* Without a call it is one of the driver's own, on the host. */
tutti_status tutti_all_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	if (!call)
		return nccl_host_all_reduce(comm->rank, recv, count, dtype, op);
	return NCCL(AllReduce, send, recv, count, nccl_type_of(dtype), nccl_op_of(op), comm->comm,
		    call->stream);
}

tutti_status tutti_reduce(const void *send, void *recv, size_t count, tutti_dtype dtype,
			  tutti_op op, int root, tutti_comm *comm, const tutti_call *call)
{
	return NCCL(Reduce, send, recv, count, nccl_type_of(dtype), nccl_op_of(op), root,
		    comm->comm, call->stream);
}

tutti_status tutti_broadcast(const void *send, void *recv, size_t count, tutti_dtype dtype,
			     int root, tutti_comm *comm, const tutti_call *call)
{
	return NCCL(Broadcast, send, recv, count, nccl_type_of(dtype), root, comm->comm,
		    call->stream);
}

tutti_status tutti_all_gather(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	return NCCL(AllGather, send, recv, count, nccl_type_of(dtype), comm->comm, call->stream);
}

tutti_status tutti_reduce_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype,
				  tutti_op op, tutti_comm *comm, const tutti_call *call)
{
	return NCCL(ReduceScatter, send, recv, count, nccl_type_of(dtype), nccl_op_of(op),
		    comm->comm, call->stream);
}

/* Blocks of send to all ranks, and of recv from all: NULL where this rank has none. */
static tutti_status nccl_exchange(const char *send, size_t send_step, char *recv, size_t recv_step,
				  size_t count, tutti_dtype dtype, int root, tutti_comm *comm,
				  const tutti_call *call)
{
	int type = nccl_type_of(dtype), error = nccl.GroupStart();

	for (int peer = 0; error == 0 && peer < comm->size; peer++) {
		bool is_sent_to = send && (send_step || root < 0 || peer == root);
		bool is_heard = recv && (recv_step || root < 0 || peer == root);

		if (is_sent_to)
			error = nccl.Send(send + (size_t)peer * send_step, count, type, peer,
					  comm->comm, call->stream);
		if (error == 0 && is_heard)
			error = nccl.Recv(recv + (size_t)peer * recv_step, count, type, peer,
					  comm->comm, call->stream);
	}
	int ended = nccl.GroupEnd();
	return nccl_result_of(error ? error : ended, "Send or Recv");
}

tutti_status tutti_all_to_all(const void *send, void *recv, size_t count, tutti_dtype dtype,
			      tutti_comm *comm, const tutti_call *call)
{
	size_t step = count * element_bytes(dtype);

	return nccl_exchange(send, step, recv, step, count, dtype, -1, comm, call);
}

tutti_status tutti_gather(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			  tutti_comm *comm, const tutti_call *call)
{
	size_t step = count * element_bytes(dtype);

	return nccl_exchange(send, 0, comm->rank == root ? recv : NULL, step, count, dtype, root,
			     comm, call);
}

tutti_status tutti_scatter(const void *send, void *recv, size_t count, tutti_dtype dtype, int root,
			   tutti_comm *comm, const tutti_call *call)
{
	size_t step = count * element_bytes(dtype);

	return nccl_exchange(comm->rank == root ? send : NULL, step, recv, 0, count, dtype, root,
			     comm, call);
}

tutti_status tutti_group_begin(void)
{
	return NCCL(GroupStart);
}

tutti_status tutti_send(const void *buf, size_t count, tutti_dtype dtype, int peer,
			tutti_comm *comm, const tutti_call *call)
{
	return NCCL(Send, buf, count, nccl_type_of(dtype), peer, comm->comm, call->stream);
}

tutti_status tutti_recv(void *buf, size_t count, tutti_dtype dtype, int peer, tutti_comm *comm,
			const tutti_call *call)
{
	return NCCL(Recv, buf, count, nccl_type_of(dtype), peer, comm->comm, call->stream);
}

tutti_status tutti_group_end(const tutti_call *call)
{
	(void)call;
	return NCCL(GroupEnd);
}

tutti_status tutti_work_wait(tutti_work **work, int timeout_ms)
{
	(void)work, (void)timeout_ms;
	return TUTTI_ERR_UNSUPPORTED;
}

tutti_status tutti_mem_alloc(void **ptr, size_t bytes, tutti_comm *comm)
{
	(void)ptr, (void)bytes, (void)comm;
	return TUTTI_ERR_UNSUPPORTED;
}

tutti_status tutti_mem_free(void *ptr)
{
	(void)ptr;
	return TUTTI_OK;
}
