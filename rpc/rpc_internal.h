/* Inside the rpc: what its files know of each other. No other folder includes it.
 *
 *     rpc.c         an rpc begins, and ends
 *     leave.c       shutdown, abort
 *     keeper.c      the thread that recovers, and ends calls at their deadline
 *     refs.c        remote references
 *     caller:
 *       rpc_call.c  the functions of rpc.h, and a call's way out: slots, requests
 *       answer.c    messages that come back, and how a call ends
 *     callee:
 *       serve.c     messages that come in; requests, until a thread of the pool runs their function
 *       reply.c     a function runs; its answer, and its way back
 *     message.c     messages, and all sends and recvs
 *     state.c       the lock, the state, the registered functions, the extension
 *
 * rpc_call.h has what the files of the caller declare, rpc_reply.h those of the callee, message.h
 * the messages and rpc_transfer.h how they are sent; this one has the rest.
 *
 * Each file calls those below it.
 *
 * One lock for each rpc, held for some hundred nanoseconds; under it sends and recvs are issued,
 * never a call that waits, and no function of the user is called. Its functions need the lock held,
 * if they do not say otherwise.
 *
 * A caller has slots for each peer, and the callee an entry for each slot of each caller. A slot
 * has one call at a time, numbered by an id. The entry keeps the answer until the next id comes,
 * and so knows a request that is sent again, after a recovery, from a new one. */
#ifndef RPC_RPC_INTERNAL_H
#define RPC_RPC_INTERNAL_H

#include "collectives/api/agreed_error.h"
#include "core/array.h"
#include "core/status.h"
#include "rpc/extension.h"
#include "rpc/rpc_call.h"
#include "rpc/rpc_reply.h"

#include <pthread.h>
#include <stdio.h>

enum {
	RPC_INBOXES = 16,     /* recvs from any rank that are posted                          */
	RPC_DIRECT = 96,      /* more works than that in flight go in groups, which never wait */
	RPC_ENTRY_BLOCK = 16, /* entries are allocated so many at once                        */
	RPC_STATE_MS = 20,    /* after a deadline the callee may say where the call is        */
	RPC_TIMEOUT_MS = 60000,
	RPC_THREADS = 4,
	RPC_CALLS = 64,
};

enum rpc_state {
	RPC_RUNS,
	RPC_RECOVERS, /* the communicator has failed; the keeper makes the next one      */
	RPC_ENDED,    /* no calls any more: failure says why                            */
};

/* A recv from any rank. */
struct rpc_inbox {
	_Alignas(64) struct rpc_message message;
	tutti_rpc *rpc;
	tutti_work *work;
	int source;
};

struct rpc_peer {
	bool is_alive;
	int now;                /* its rank in the communicator of now; -1: not there           */
	struct rpc_slot *slots; /* config.calls; NULL before the first call                    */
	struct rpc_slot *free;
	int slots_waiting; /* threads that wait for a free one                             */
	struct tutti_rpc_reply *entries[RPC_CALLS_MAX / RPC_ENTRY_BLOCK];
};

/* NULL: no call has used that slot. */
static inline struct tutti_rpc_reply *rpc_entry_at(const struct rpc_peer *peer, int slot)
{
	struct tutti_rpc_reply *block = peer->entries[slot / RPC_ENTRY_BLOCK];

	return block ? &block[slot % RPC_ENTRY_BLOCK] : NULL;
}

/* Shutdown: what the ranks have told the lowest living one. */
struct rpc_leaving {
	bool is_leaving;               /* this rank is in shutdown, or has been           */
	bool has_thread;               /* a thread is in it; others wait for that one     */
	bool all_leave;                /* all are: those that go from now on are no deaths */
	struct tutti_rpc_reply **held; /* by rank: it waits for the answer      */
	uint64_t *issued;              /* as it said then                       */
};

struct rpc_refs;

struct rpc_keeper {
	pthread_t thread;
	pthread_cond_t due;
	bool has_thread, stops, has_ended;
	uint64_t sleeps_ns; /* until then; UINT64_MAX: without a limit; 0: it does not sleep */
	int *died;          /* room for ranks                                                */
};

struct tutti_rpc {
	pthread_mutex_t lock;
	pthread_cond_t changed;     /* of rare events that threads wait for                  */
	pthread_cond_t has_request; /* for the pool                                          */
	tutti_comm *comm;
	unsigned epoch;  /* counts communicators, from 1 */
	int rank, size;  /* the first communicator's, as all ranks below */
	int *first_rank; /* of each rank of comm                         */
	tutti_rpc_config config;
	enum rpc_state state;
	struct kept_error failure;
	struct rpc_peer *peers;

	struct rpc_inbox *inboxes;
	struct rpc_note *free_notes;
	struct rpc_send *sends, **sends_tail; /* that are not over, as far as we know    */
	uint8_t *scratch; /* RPC_ALONG_BYTES that come along and that nobody wants */
	int calling;      /* done functions that are due or run; release and died: that run */
	int works;        /* in flight, as far as we know                               */
	int inside;       /* threads that wait for works of comm, and done functions to come */

	struct rpc_function *functions[64];

	struct rpc_pool pool;
	int queued, running; /* running: functions, and answers that come later   */

	struct rpc_keeper keeper;
	struct tutti_rpc_future *with_done, *ended; /* ended: their done is due */
	struct rpc_release *releases; /* due                                          */
	uint64_t issued; /* calls begun here: shutdown compares                       */
	int slots_used;  /* slots that are not free, but for shutdown's own          */
	bool is_shut, is_aborted, all_ended; /* all_ended: the calls, after RPC_ENDED */
	struct rpc_refs *refs;
	struct rpc_extension extension;
	struct rpc_leaving leaving;
	tutti_rpc *next_left; /* the next rpc that destroy has left allocated */
};

/* state.c */
void rpc_lock(tutti_rpc *rpc);
/* Then calls what is due without the lock: releases, and in a thread of the library done. */
void rpc_unlock(tutti_rpc *rpc);
void rpc_release_call(const tutti_rpc *rpc, struct rpc_release *due); /* and frees due */
/* For callback_enter. */
extern const char rpc_release_place[], rpc_short_place[];
/* While a function of the user's runs here, which rpc has called, rpc_unlock calls no other. NULL:
 * none runs. Returns what was said before. */
const tutti_rpc *rpc_calling(const tutti_rpc *rpc);
bool rpc_is_calling(const tutti_rpc *rpc); /* NULL: of any rpc */
/* Waits for rpc->changed. false: deadline_ns, if not 0, has passed. */
bool rpc_wait_changed(tutti_rpc *rpc, uint64_t deadline_ns);
uint64_t rpc_now_ns(void);
/* More than 0: this thread is in a callback of the library, where nothing may wait. */
extern _Thread_local int rpc_in_callback;

/* The communicator has failed: the keeper is to recover, unless it does already. */
void rpc_note_failure(tutti_rpc *rpc);
/* Ends the rpc: the keeper ends every call with this failure, when no work is in flight. */
void rpc_end(tutti_rpc *rpc, tutti_status status, const char *message);
/* Why no call is possible; sets this thread's message. */
tutti_status rpc_end_status(const tutti_rpc *rpc);
/* Said on stderr, where no call can return it: not with TUTTI_LOG=off. */
void rpc_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* refs.c */
tutti_status rpc_refs_init(tutti_rpc *rpc);
void rpc_refs_rank_died(tutti_rpc *rpc, int rank);
/* Takes back the counts that were shared for an answer that its caller does not get. */
void rpc_refs_take_back(struct tutti_rpc_reply *entry);
void rpc_refs_end(tutti_rpc *rpc); /* destroys the objects that are left; without the lock */
void rpc_refs_free(tutti_rpc *rpc);

/* leave.c */
tutti_status rpc_leaving_init(tutti_rpc *rpc);
void rpc_leaving_rank_died(tutti_rpc *rpc, int rank);
void rpc_leaving_look(tutti_rpc *rpc); /* whether all that live have reported; without the lock */
void rpc_leaving_free(tutti_rpc *rpc);
/* Lists the calls that this rank serves, with their states: "'push', called by rank 2, runs". */
void rpc_list_served(const tutti_rpc *rpc, char *text, size_t room);

/* serve.c: some recvs from any rank are always posted. */
tutti_status rpc_inboxes_post(tutti_rpc *rpc);
void rpc_inboxes_cancel(tutti_rpc *rpc);

/* keeper.c */
tutti_status rpc_keeper_start(tutti_rpc *rpc);
void rpc_keeper_stop(tutti_rpc *rpc); /* then it sets has_ended */

#endif
