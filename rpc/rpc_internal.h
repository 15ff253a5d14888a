/* Inside the rpc: what its files know of each other. No other folder includes it.
 *
 *     create.c      an rpc's life, its configuration
 *     keeper.c      the thread that recovers, and ends calls at their deadline
 *     inbox.c       messages that come in
 *     leave.c       shutdown, abort
 *     refs.c        remote references
 *     caller:
 *       future.c    the functions of rpc.h
 *       call_wait.c    waiting for a call
 *       slots.c     a call's way out: slots, requests
 *       answer.c    messages that come back
 *       call_ending.c  how a call ends
 *     callee:
 *       serve.c     requests, until a function runs
 *       pool.c      threads that run functions
 *       reply.c     a function runs; its answer, and its way back
 *     functions.c   names
 *     sends.c       messages on their way out
 *     post.c        sends and recvs, issued
 *     state.c       failed, ended
 *     lock.c        the lock, and what is called without it
 *     message.h     the messages
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

#include "rpc/rpc_context.h"
#include "rpc/extension.h"
#include "rpc/message.h"
#include "train/base/base.h"

#include <pthread.h>

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

struct rpc_function {
	char name[RPC_NAME_BYTES + 1];
	size_t name_bytes;
	uint64_t hash;
	tutti_rpc_fn fn;
	void *arg;
	bool is_short, is_own;     /* is_own: of the library; it may answer when the others leave */
	struct rpc_function *next; /* of the same bucket */
};

/* A send of memory of ours; the first member of those that follow. */
struct rpc_send {
	tutti_work *work;          /* NULL: it is not in flight */
	struct rpc_parcel *parcel; /* whose it is; NULL: a note's */
	struct rpc_send *next;
};

/* A message on its way out. */
struct rpc_note {
	struct rpc_send send;
	struct rpc_note *next_free;
	_Alignas(64) struct rpc_message message;
};

/* Bytes that come along with a message: a copy, for the pieces may be gone when it is sent again.
 */
struct rpc_parcel {
	struct rpc_send send;
	bool is_held; /* it may be sent again */
	size_t bytes;
	uint8_t data[];
};

/* A recv from any rank. */
struct rpc_inbox {
	_Alignas(64) struct rpc_message message;
	tutti_rpc *rpc;
	tutti_work *work;
	int source;
};

enum rpc_slot_state {
	SLOT_IS_FREE,
	SLOT_CALLS,     /* call is in it                                         */
	SLOT_IS_LEFT,   /* its call is over; the callee's REPLY has not come       */
	SLOT_IS_ONE_WAY /* nobody waits for the REPLY                           */
};

/* The caller's side of a call. */
struct rpc_slot {
	_Alignas(64) struct rpc_message reply; /* of the recv that is posted */
	struct rpc_message request;            /* sent again after a recovery */
	tutti_rpc *rpc;
	int rank;
	uint32_t number;
	enum rpc_slot_state state;
	uint64_t id;
	tutti_work *work; /* the recv of REPLY, or ...; NULL: a thread waits for it, or none is */
	bool takes_along; /* ... of what comes along with it, which is in reply            */
	struct rpc_parcel *parcel; /* comes along with the request */
	bool is_running; /* STATE has come                                                  */
	bool is_own;     /* of shutdown                                                     */
	struct tutti_rpc_future *call;
	struct rpc_slot *next_free;
};

/* A call, for its caller. */
struct tutti_rpc_future {
	tutti_rpc *rpc;
	int rank;
	struct rpc_slot *slot; /* NULL: it is over, or has none yet      */
	uint64_t deadline_ns;  /* 0: none                               */
	size_t bytes;
	int num_pieces;
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];
	tutti_rpc_answer *answer; /* NULL: not wanted */
	tutti_done_fn done;
	void *done_arg;

	bool is_own;                 /* of shutdown, which does not count it */
	bool is_one_way, has_landed; /* has_landed: the callee has all of its payload     */
	bool is_sending;             /* sends read the pieces                                    */
	bool is_receiving;           /* recvs write to block                                     */
	bool is_replied;             /* REPLY has come, but recvs are not over                   */
	uint8_t *block;              /* a long answer: the caller's room, or ...                 */
	bool owns_block;             /* ... ours                                                 */
	tutti_status refusal;        /* why a long answer was not taken; OK: it was            */
	tutti_status leaving; /* it ends with this when is_sending and is_receiving end; or OK */
	unsigned told_in;     /* the epoch of the last CANCEL                           */
	bool is_expiring;     /* its deadline has passed; the callee is asked where it is       */
	int timeout_ms;
	bool is_over;
	bool is_released; /* frees itself after done                                  */
	tutti_status status;
	char name[RPC_NAME_BYTES + 1];
	char error[RPC_ERROR_BYTES];
	struct tutti_rpc_future *next,
		**at; /* the list of calls with done, or of those that are over */
};

/* The caller's function for the pieces of an answer: called without the lock. */
struct rpc_release {
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
	unsigned replied_in; /* the epoch; 0: its REPLY or OFFER is not sent             */
	const struct rpc_function *function;
	uint8_t *payload;       /* ... this */
	tutti_rpc_request seen; /* by the function */
	int is_cancelled;       /* atomic, __atomic_* */
	/* The answer, if it is long. */
	tutti_rpc_piece pieces[TUTTI_RPC_PIECES];
	int num_pieces;
	void *block;                  /* ours, of reply_copy and reply_room */
	struct rpc_release *release;  /* NULL: the pieces need none */
	struct rpc_parcel *parcel;    /* the answer, if it comes along */
	struct tutti_rpc_reply *next; /* in the queue */
};

struct rpc_peer {
	bool is_alive;
	int now;                /* its rank in the communicator of now; -1: not there           */
	struct rpc_slot *slots; /* config.calls; NULL before the first call                    */
	struct rpc_slot *free;
	int slots_waiting; /* threads that wait for a free one                             */
	struct tutti_rpc_reply *entries[RPC_CALLS_MAX / RPC_ENTRY_BLOCK];
};

/* Shutdown: what the ranks have told the lowest living one. */
struct rpc_leaving {
	bool is_leaving;               /* this rank is in shutdown, or has been           */
	bool has_thread;               /* a thread is in it; others wait for that one     */
	bool all_leave;                /* all are: those that go from now on are no deaths */
	struct tutti_rpc_reply **held; /* by rank: it waits for the answer      */
	uint64_t *issued;              /* as it said then                       */
};

struct rpc_refs;

/* Threads that run functions, and requests that wait for one. */
struct rpc_pool {
	struct tutti_rpc_reply *queue, **queue_tail;
	pthread_t *threads;
	int num_threads, idle_threads;
	bool stops;
};

struct rpc_keeper {
	pthread_t thread;
	pthread_cond_t due;
	bool has_thread, stops;
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
	struct train_failure failure;
	struct rpc_peer *peers;

	struct rpc_inbox *inboxes;
	struct rpc_note *free_notes;
	struct rpc_send *sends, **sends_tail; /* that are not over, as far as we know    */
	uint8_t *scratch; /* RPC_ALONG_BYTES that come along and that nobody wants */
	int calling;      /* done functions that are due, or run                         */
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
};

/* lock.c */
void rpc_lock(tutti_rpc *rpc);
/* Then calls what is due without the lock: releases, and in a thread of the library done. */
void rpc_unlock(tutti_rpc *rpc);
/* While a function of the user's runs here, which rpc has called, rpc_unlock calls no other. NULL:
 * none runs. Returns what was said before. */
const tutti_rpc *rpc_calling(const tutti_rpc *rpc);
bool rpc_is_calling(const tutti_rpc *rpc);
/* Waits for rpc->changed. false: deadline_ns, if not 0, has passed. */
bool rpc_wait_changed(tutti_rpc *rpc, uint64_t deadline_ns);
uint64_t rpc_now_ns(void);
/* More than 0: this thread is in a callback of the library, where nothing may wait. */
extern _Thread_local int rpc_in_callback;

/* state.c */
/* The communicator has failed: the keeper is to recover, unless it does already. */
void rpc_note_failure(tutti_rpc *rpc);
/* Ends the rpc: the keeper ends every call with this failure, when no work is in flight. */
void rpc_end(tutti_rpc *rpc, tutti_status status, const char *message);
/* Why no call is possible; sets this thread's message. */
tutti_status rpc_end_status(const tutti_rpc *rpc);
/* Said on stderr, where no call can return it: not with TUTTI_LOG=off. */
void rpc_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* post.c: what it returns is OK, or the rpc recovers or has ended, or MEMORY. */
struct rpc_io {
	bool sends;
	int rank, tag; /* rank: the first communicator's, or TUTTI_ANY */
	const tutti_rpc_piece *pieces;
	int num_pieces;
	tutti_work **work;  /* or ... */
	tutti_done_fn done; /* ... and this, which counts as inside */
	void *done_arg;
	int *source;
};
tutti_status rpc_issue(tutti_rpc *rpc, const struct rpc_io *io);
/* A work that rpc_issue has begun is over. */
void rpc_issued_over(tutti_rpc *rpc, bool has_called);
/* Receives bytes that nobody wants. */
void rpc_swallow(tutti_rpc *rpc, size_t bytes, int rank, int tag);

/* sends.c */
/* Sends a copy of m. */
tutti_status rpc_post(tutti_rpc *rpc, const struct rpc_message *m, int rank, int tag);
/* About the call of that message: kind, with its slot and id. */
void rpc_post_note(tutti_rpc *rpc, enum rpc_kind kind, const struct rpc_message *about, int rank);
/* Afterwards the next rpc_post cannot fail for want of memory. */
tutti_status rpc_notes_reserve(tutti_rpc *rpc);
/* A held parcel with these bytes; NULL: no memory. */
struct rpc_parcel *rpc_parcel_make(const tutti_rpc_piece *pieces, int num_pieces, size_t bytes);
void rpc_parcel_send(tutti_rpc *rpc, struct rpc_parcel *parcel, int rank, int tag);
void rpc_parcel_let_go(struct rpc_parcel **parcel); /* NULL is fine */
void rpc_sends_look(tutti_rpc *rpc); /* whether some are over */
/* Waits for all, of a communicator that has failed. */
void rpc_sends_end(tutti_rpc *rpc);
void rpc_notes_free(tutti_rpc *rpc);

/* functions.c */
tutti_status rpc_functions_add(tutti_rpc *rpc, const tutti_rpc_function *function, bool is_own);
const struct rpc_function *rpc_functions_find(const tutti_rpc *rpc, const char *name, size_t bytes);
/* The registered name that is most like it; NULL: none is. */
const char *rpc_functions_nearest(const tutti_rpc *rpc, const char *name, size_t bytes);
void rpc_functions_free(tutti_rpc *rpc);

/* reply.c */
void rpc_run(struct tutti_rpc_reply *entry); /* without the lock */
void rpc_on_take(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_drop(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_reply_fail(struct tutti_rpc_reply *entry, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void rpc_reply_send(struct tutti_rpc_reply *entry); /* what the entry has, perhaps again */
/* Forgets payload and answer. Calls release, which may not wait. */
void rpc_reply_forget(struct tutti_rpc_reply *entry);
/* The entry of the call that m is about; NULL: there is none. */
struct tutti_rpc_reply *rpc_entry_of(tutti_rpc *rpc, int rank, const struct rpc_message *m);

/* pool.c */
bool rpc_pool_is_full(const tutti_rpc *rpc); /* config.queue requests wait */
tutti_status rpc_pool_push(tutti_rpc *rpc, struct tutti_rpc_reply *entry);
bool rpc_pool_remove(tutti_rpc *rpc, struct tutti_rpc_reply *entry);
void rpc_pool_stop(tutti_rpc *rpc); /* without the lock */

/* serve.c: messages to a callee; m is sound. rpc_on_request returns an entry whose short function
 * is to run now, without the lock, by rpc_run; or NULL. */
struct tutti_rpc_reply *rpc_on_request(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_coming(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_cancel(tutti_rpc *rpc, int rank, const struct rpc_message *m);

/* call_ending.c */
void rpc_slot_free(struct rpc_slot *slot);
/* The slot of the call that m is about; NULL: it is over. */
struct rpc_slot *rpc_slot_of(tutti_rpc *rpc, int rank, const struct rpc_message *m);
/* The keeper looks after its deadline; it has done. */
void rpc_call_watch(struct tutti_rpc_future *call);
/* Ends the call, whose slot is left to the REPLY if that has not come. */
void rpc_call_end(struct tutti_rpc_future *call, tutti_status status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The same; its message, if status is not OK, is there. */
void rpc_call_over(struct tutti_rpc_future *call, tutti_status status);
/* Ends it with status (TIMEOUT, ABORTED) as soon as nothing reads or writes its memory. */
void rpc_call_leave(struct tutti_rpc_future *call, tutti_status status);
void rpc_call_left(struct tutti_rpc_future *call); /* a transfer of it is over */
/* CANCEL: the callee waits for no payload, unless it is being sent already. */
void rpc_call_tell_cancel(struct tutti_rpc_future *call);
/* At its deadline: asks the callee first, then ends it. */
void rpc_call_look_at_clock(struct tutti_rpc_future *call, uint64_t now_ns);

/* answer.c: messages to a caller; m is sound. */
void rpc_on_pull(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_have(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_offer(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_state(tutti_rpc *rpc, int rank, const struct rpc_message *m);
void rpc_on_reply(struct rpc_slot *slot); /* it is in slot->reply, and what comes along is there */
/* Whether bytes come along with it, and the room for them. */
bool rpc_reply_comes_along(const struct rpc_slot *slot);
void *rpc_room_along(struct rpc_slot *slot);

/* slots.c */
/* Takes a slot, for which it waits if the thread may, and sends the request. If the rpc recovers,
 * the keeper sends it later. */
tutti_status rpc_start(struct tutti_rpc_future *call);
/* Posts the recv of the REPLY, and sends the request, or CANCEL of a slot that is left. */
tutti_status rpc_slot_send(struct rpc_slot *slot);
/* Waits for the slot's REPLY, which is dealt with. IN_PROGRESS: it has not come by then. */
tutti_status rpc_slot_await(struct rpc_slot *slot, uint64_t deadline_ns);
/* The recv of the slot is over with status. */
void rpc_slot_answered(struct rpc_slot *slot, tutti_status status);
/* Deals with the REPLY, if it has come and no thread waits for it. */
void rpc_slot_look(struct rpc_slot *slot);
void rpc_slots_look(tutti_rpc *rpc, int rank); /* all for rank */

/* call_wait.c */
/* Waits until the call is over, or is_one_way and has landed; IN_PROGRESS: deadline_ns, if not 0,
 * has passed. */
tutti_status rpc_await(struct tutti_rpc_future *call, uint64_t deadline_ns);

/* future.c: the lock is held before and after. Shutdown does not count it. */
tutti_status rpc_call_own(tutti_rpc *rpc, int rank, const char *name, const tutti_rpc_piece *pieces,
			  int num_pieces, tutti_rpc_answer *answer,
			  const tutti_rpc_options *options);

/* refs.c */
tutti_status rpc_refs_init(tutti_rpc *rpc);
void rpc_refs_rank_died(tutti_rpc *rpc, int rank);
void rpc_refs_end(tutti_rpc *rpc); /* destroys the objects that are left; without the lock */
void rpc_refs_free(tutti_rpc *rpc);

/* leave.c */
tutti_status rpc_leaving_init(tutti_rpc *rpc);
void rpc_leaving_rank_died(tutti_rpc *rpc, int rank);
void rpc_leaving_look(tutti_rpc *rpc); /* whether all that live have reported; without the lock */
void rpc_leaving_free(tutti_rpc *rpc);

/* inbox.c */
tutti_status rpc_inboxes_post(tutti_rpc *rpc);
void rpc_inboxes_cancel(tutti_rpc *rpc);

/* keeper.c */
tutti_status rpc_keeper_start(tutti_rpc *rpc);
void rpc_keeper_stop(tutti_rpc *rpc); /* without the lock */

#endif
