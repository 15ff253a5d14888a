/* Inside the rpc: a call, as its callee has it: functions, their threads, and replies. */
#ifndef RPC_RPC_REPLY_H
#define RPC_RPC_REPLY_H

#include "rpc/rpc_transfer.h"

#include <pthread.h>

struct rpc_function {
	char name[RPC_NAME_BYTES + 1];
	size_t name_bytes;
	uint64_t hash;
	tutti_rpc_fn fn;
	void *arg;
	bool is_short, is_own;     /* is_own: of the library; it may answer when the others leave */
	struct rpc_function *next; /* of the same bucket */
};

/* A function that releases the pieces of an answer, or an object: called without the lock. */
struct rpc_release {
	const char *name, *of; /* for callback_call */
	void (*release)(void *arg);
	void *arg;
	struct rpc_release *next;
};

enum rpc_entry_state {
	ENTRY_IS_FREE,
	ENTRY_PULLS,    /* its payload is asked for         */
	ENTRY_RECEIVES, /* its payload comes                */
	ENTRY_QUEUES,   /* waits for a thread               */
	ENTRY_RUNS,     /* its function has begun           */
	ENTRY_OFFERS,   /* a long answer waits for TAKE     */
	ENTRY_SENDS,    /* a long answer is being sent      */
	ENTRY_REPLIED,  /* kept until the next id           */
};

/* The callee's side of a call; also the reply that its function gets. */
struct tutti_rpc_reply {
	_Alignas(64) struct rpc_message request; /* its data are the payload, or ... */
	struct rpc_message reply;
	tutti_rpc *rpc;
	int rank;
	enum rpc_entry_state state;
	uint64_t id;
	bool is_held;        /* its function has returned IN_PROGRESS; not ended yet       */
	unsigned replied_in; /* the epoch; 0: its REPLY or OFFER is not sent             */
	const struct rpc_function *function;
	uint8_t *payload;       /* ... this */
	tutti_rpc_request seen; /* by the function */
	int is_cancelled; /* CANCEL arrived before the end; written with the lock, read without */
	/* The answer, if it is long. */
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];
	int num_pieces;
	void *block;                 /* ours, of reply_copy and reply_room */
	struct rpc_release *release; /* NULL: the pieces need none */
	struct rpc_parcel *parcel;   /* the answer, if it comes along */
	uint64_t *shared;            /* references that the function has shared with the caller */
	size_t num_shared;
	struct tutti_rpc_reply *next; /* in the queue */
};

/* Threads that run functions, and requests that wait for one. */
struct rpc_pool {
	struct tutti_rpc_reply *queue, **queue_tail;
	pthread_t *threads;
	int num_threads, idle_threads, num_ended;
	bool stops; /* no thread starts from now on */
};

/* state.c */
tutti_status rpc_functions_add(tutti_rpc *rpc, const tutti_rpc_function *function, bool is_own);
const struct rpc_function *rpc_functions_find(const tutti_rpc *rpc, const char *name, size_t bytes);
/* The registered name that is most like it; NULL: none is. */
const char *rpc_functions_nearest(const tutti_rpc *rpc, const char *name, size_t bytes);
void rpc_functions_free(tutti_rpc *rpc);

/* reply.c */
void rpc_run(struct tutti_rpc_reply *entry); /* without the lock */
/* rpc_run for a done function of the library's, which counts as inside until this returns. */
void rpc_run_inside(struct tutti_rpc_reply *entry);
void rpc_on_take(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_drop(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_reply_fail(struct tutti_rpc_reply *entry, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void rpc_reply_send(struct tutti_rpc_reply *entry); /* what the entry has, perhaps again */
/* Forgets payload and answer. Calls release, which may not wait. */
void rpc_reply_forget(struct tutti_rpc_reply *entry);
/* rpc_reply_forget, and clears the entry for the next call: counts that were shared for its answer
 * now belong to the caller. */
void rpc_reply_clear(struct tutti_rpc_reply *entry);
/* The call from rank whose function this thread runs; NULL: none, or its reply has been ended. */
struct tutti_rpc_reply *rpc_reply_running(const tutti_rpc *rpc, int rank);
/* The entry of the call that m is about; NULL: there is none. */
struct tutti_rpc_reply *rpc_entry_of(tutti_rpc *rpc, int rank, const struct rpc_message *m);

/* serve.c: false: it does not wait for a thread. */
bool rpc_pool_remove(tutti_rpc *rpc, struct tutti_rpc_reply *entry);

#endif
