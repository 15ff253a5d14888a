/* Remote procedure calls between the ranks of a communicator: what torch.distributed.rpc is in
 * PyTorch. docs/rpc.md says more. Conventions are those of tutti.h.
 *
 *   functions  have names, and each rank registers its own. A call names the rank and the function.
 *   payloads   are bytes: a list of pieces in the caller's memory, which arrive as one block.
 *   errors     of the callee come to the caller as its own: "rank 1, 'push': there is no row 7".
 *   threads    any thread, any number at once, may make any call here; but create and destroy are
 *              called alone, and by no function that the library calls: there destroy does nothing
 *              but say so. A function of a call that says "waits" is INVALID in a function with
 *              TUTTI_RPC_SHORT and in a done function.
 *   deaths     A rank that dies or leaves ends the calls to it with PEER. Calls between the others
 *              go on, and each is executed once. Ranks keep their numbers, which are those of comm
 *              in create.
 *   groups     INVALID while this thread's tutti_group_begin is open.
 *   memory     host memory only.
 */
#ifndef TUTTI_RPC_H
#define TUTTI_RPC_H

#include <tutti/train.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

typedef struct tutti_rpc tutti_rpc;
typedef struct tutti_rpc_reply tutti_rpc_reply;   /* the answer that a function makes         */
typedef struct tutti_rpc_future tutti_rpc_future; /* a call in flight: torch.futures.Future   */

#define TUTTI_RPC_PIECES 16 /* of one payload or answer, at most */

typedef struct tutti_rpc_piece {
	const void *data;       /* NULL: bytes is 0                                         */
	size_t bytes;
} tutti_rpc_piece;

/* ---- functions ---------------------------------------------------------------------------- */
/* A call as its function sees it, until it has returned; after IN_PROGRESS until
 * tutti_rpc_reply_end. */
typedef struct tutti_rpc_request {
	tutti_rpc *rpc;         /* whose function it is: for calls of its own               */
	int rank;               /* who calls                                                */
	int timeout_ms;         /* how long the caller waits, from its call on; 0: no limit */
	int is_one_way;         /* nobody gets the answer                                   */
	const char *name;       /* of the function                                          */
	void *data;             /* the payload, aligned to 64 bytes; the function may write */
	size_t bytes;
	uint64_t reserved[3];
} tutti_rpc_request;

/* Serves a call. Without a word about the reply the answer has no bytes.
 *   OK           the answer is what the functions below made of reply.
 *   IN_PROGRESS  it comes later: another thread, or this one, calls tutti_rpc_reply_end once.
 *   else         an error. Its message is what tutti_set_error, or the call that failed, has left
 *                in this thread; the caller gets "rank 1, 'name': message" with the same status. Of
 *                a one-way call it is said on stderr here, not with TUTTI_LOG=off.
 * It may make any call of Tutti, and of this rpc, too. Called from one of config.threads threads,
 * several at once; with TUTTI_RPC_SHORT from the library's helper thread. */
typedef tutti_status (*tutti_rpc_fn)(void *arg, const tutti_rpc_request *request,
                                     tutti_rpc_reply *reply);

/* For functions that take some microseconds and never wait: no thread is woken for the call. They
 * hold up all messages of this process meanwhile, so long ones go without. */
#define TUTTI_RPC_SHORT 1

typedef struct tutti_rpc_function {
	const char *name;       /* 1 to 63 bytes, printable, copied                         */
	tutti_rpc_fn fn;
	void *arg;              /* fn and arg are used until tutti_rpc_destroy              */
	int flags;              /* TUTTI_RPC_SHORT, or 0                                    */
	uint64_t reserved[2];
} tutti_rpc_function;

/* Three ways to give the answer its bytes, one of them in a call, from any thread, before the
 * function returns or tutti_rpc_reply_end. After an error the answer is what it was: it has no
 * bytes, or those of an earlier one of these, after which the others are INVALID. */

/* Copies them. MEMORY. */
tutti_status tutti_rpc_reply_copy(tutti_rpc_reply *reply, const void *data, size_t bytes);
/* Memory of the library's for the caller to fill, aligned to 64 bytes; no copy is made of it. NULL:
 * MEMORY or INVALID, and tutti_comm_error(NULL) says why. */
void *tutti_rpc_reply_room(tutti_rpc_reply *reply, size_t bytes);
/* The pieces themselves, without a copy; they may be of request->data. release(arg) is called once,
 * from any thread, when the library does not read them any more, which may be before this returns
 * (up to 8 KiB are copied) and after an error, too; NULL: they stay until tutti_rpc_destroy, or are
 * of request->data. It may not wait. INVALID: more than
 * TUTTI_RPC_PIECES. */
tutti_status tutti_rpc_reply_pieces(tutti_rpc_reply *reply, const tutti_rpc_piece *pieces,
                                    int num_pieces, void (*release)(void *arg), void *arg);
/* After the function has returned IN_PROGRESS, or a moment before: sends the answer, or with a
 * status the error, whose message is this thread's last. Neither reply nor request is used after
 * it. Any thread; never waits. If tutti_rpc_destroy gave up waiting for this reply, it may still be
 * called, and discards the answer. */
void tutti_rpc_reply_end(tutti_rpc_reply *reply, tutti_status status);
/* 1: the call was cancelled, its deadline has passed, or the caller has died or left. From then on
 * neither an answer nor an error of the function reaches the caller, whose call ends with TIMEOUT
 * or ABORTED. A function that takes long should poll this, and return when it is 1. A one-way call
 * whose payload has arrived is cancelled only if its caller has died or left. Any thread. */
int tutti_rpc_reply_is_cancelled(const tutti_rpc_reply *reply);

/* ---- joining and leaving ------------------------------------------------------------------ */
/* {0} is all defaults. Ranks may differ in it. */
typedef struct tutti_rpc_config {
	int threads;            /* that run functions, at most; they start when needed. 0: 4 */
	int timeout_ms;         /* of calls that name none; 0: 60,000, as PyTorch; < 0: none */
	int calls;              /* of this rank to one other in flight, at most; the next one
	                         * waits. 0: 64; at most 1,024                              */
	int queue;              /* requests that wait for a thread, at most: the next call is
	                         * refused, with MEMORY. 0: no bound but the callers' calls */
	size_t max_bytes;       /* of a payload that this rank takes; 0: what memory has    */
	const tutti_rpc_function *functions; /* registered before any rank can call them    */
	int num_functions;
	/* Called once for each rank that has died or left without waiting, from a thread of the
	 * library, when the calls to it have ended; in shutdown, too, until all ranks are there.
	 * It may not wait, but may end answers that were held for that rank's sake. */
	void (*died)(void *arg, int rank);
	void *died_arg;
	uint64_t reserved[8];
} tutti_rpc_config;

/* torch.distributed.rpc.init_rpc. Collective over comm, which is free for other calls afterwards,
 * since the messages go over a communicator of their own. A NULL config: {0}. Errors: INVALID;
 * MEMORY, SYSTEM (no thread): then the others get PEER in their first call; else as
 * tutti_comm_dup. *rpc is written before a function is called here, which may be before this
 * returns. */
tutti_status tutti_rpc_create(tutti_rpc **rpc, tutti_comm *comm, const tutti_rpc_config *config);
/* Local. The other ranks can call it from now on; who calls it before gets INVALID. INVALID: a name
 * that is registered, or a bad one. MEMORY. */
tutti_status tutti_rpc_register(tutti_rpc *rpc, const tutti_rpc_function *function);
/* torch.distributed.rpc.shutdown. Waits until all living ranks have called it and all calls that
 * were begun, by functions too, are over. Meanwhile this rank serves calls, and afterwards it can
 * only be destroyed. TIMEOUT after timeout_ms (0: config's; < 0: none) names the ranks that are
 * missing; it may be called again. INVALID: in a function of this rpc, for which it would wait.
 * Else: the failure of the rpc. */
tutti_status tutti_rpc_shutdown(tutti_rpc *rpc, int timeout_ms);
/* Any thread: leaves without waiting. Pending and later calls return ABORTED here. To the other
 * ranks it looks as if this rank had died: their calls to it return PEER. */
void tutti_rpc_abort(tutti_rpc *rpc);
/* NULL is fine. Calls tutti_rpc_shutdown with the rpc's timeout (60 s if it has none), unless it or
 * abort was called before; after an error it goes on as abort does. Waits for functions that run
 * and replies that have not been ended until that timeout, from this call's beginning, has passed,
 * and at least for 1 s after shutdown. Then it cancels them, and gives up 1 s later; if none is
 * left, it waits up to 10 s for the library's threads. Destroying the communicator has the limits
 * of tutti_comm_destroy. Release functions, and destroy functions of references, that it calls in
 * its own thread have no limit.
 * When it gives up, a line on stderr (not with TUTTI_LOG=off) names what has not ended, with the
 * callers. Such functions may still return, and such replies be ended, at any time: the rpc stays
 * allocated with its payloads, references and parameters, and their release functions are not
 * called. No future may be left. */
void tutti_rpc_destroy(tutti_rpc *rpc);

int tutti_rpc_rank(const tutti_rpc *rpc); /* -1 of NULL; as create's comm */
int tutti_rpc_size(const tutti_rpc *rpc);
/* 0: the rank is known to have died or left. Any thread, never waits. */
int tutti_rpc_is_alive(const tutti_rpc *rpc, int rank);
/* OK, or why no call is possible any more. Any thread, never waits. */
tutti_status tutti_rpc_status(tutti_rpc *rpc);

/* ---- calls -------------------------------------------------------------------------------- */
/* Where the answer goes. */
typedef struct tutti_rpc_answer {
	void *data;             /* room for it; NULL: memory that the library allocates, and
	                         * the caller gives back with tutti_rpc_free                */
	size_t bytes;           /* of the room; becomes those of the answer. A longer answer is
	                         * INVALID, with both numbers                               */
	uint64_t reserved[2];
} tutti_rpc_answer;

typedef struct tutti_rpc_options {
	int timeout_ms;         /* 0: config's; < 0: none                                   */
	tutti_done_fn done;     /* call_async: called once at its end, from a thread of the
	                         * library without a lock. It may not wait                  */
	void *done_arg;
	uint64_t reserved[4];
} tutti_rpc_options;

/* torch.distributed.rpc.rpc_sync. Calls the function of that name on rank, this one included, and
 * waits for its answer. The payload is the pieces one behind the other, which may be 0 and NULL;
 * they are read without a copy until it returns. answer NULL: its bytes are dropped. OK: *answer is
 * written, on OK only.
 *   the function's error  with its message, as "rank 1, 'name': ..."
 *   TIMEOUT   with the place where the call was then, if that is known. The function is told
 *             (tutti_rpc_reply_is_cancelled), or not begun. If it had ended before it could be told
 *             and its answer arrives within 20 ms of the deadline, the call is OK. A transfer of
 *             the payload or of the answer that has begun is waited for, so that nothing reads or
 *             writes here later.
 *   PEER      rank has died or left: the function may have run, or not.
 *   MEMORY    there is none here for the answer, or there for the payload; the callee's queue is
 *             full
 *   INVALID   an argument; rank has no such function (the message has the nearest name); the answer
 *             is longer than its room
 *   ABORTED   tutti_rpc_abort, tutti_rpc_cancel
 * At most config.calls are in flight to a rank; the next one waits, within its timeout. */
tutti_status tutti_rpc_call(tutti_rpc *rpc, int rank, const char *name,
                            const tutti_rpc_piece *pieces, int num_pieces,
                            tutti_rpc_answer *answer, const tutti_rpc_options *options);
/* torch.distributed.rpc.rpc_async. The same without waiting, but for room: OK means that it has
 * begun. pieces are copied, what they point to and *answer belong to the library until the call is
 * over: a wait that does not say IN_PROGRESS, a test that says done, or done. future may be NULL
 * with done; else the handle is stored there. Where it cannot wait (see threads above) and there is
 * no room it is MEMORY. */
tutti_status tutti_rpc_call_async(tutti_rpc *rpc, int rank, const char *name,
                                  const tutti_rpc_piece *pieces, int num_pieces,
                                  tutti_rpc_answer *answer, const tutti_rpc_options *options,
                                  tutti_rpc_future **future);
/* One way: returns when rank has the payload, or a copy of a short one is under way. Its errors are
 * said on rank's stderr. At most config.calls are unfinished; the next one waits, so a slow callee
 * slows its callers. Waits, but for a payload of up to 8 KiB: where nothing may wait and there is
 * no room it is MEMORY. Errors: as tutti_rpc_call, as far as they are known by then. */
tutti_status tutti_rpc_send(tutti_rpc *rpc, int rank, const char *name,
                            const tutti_rpc_piece *pieces, int num_pieces,
                            const tutti_rpc_options *options);

/* Future.wait. As tutti_work_wait: frees the handle and sets *future to NULL, but not on
 * IN_PROGRESS (timeout_ms has passed; 0: only the call's own). One thread at a time. A NULL *future
 * is OK. Waits, with done until done has returned. If that has not returned 20 ms after the call's
 * deadline, and 1 s after the call ended, this is TIMEOUT with a message that says so: *future is
 * NULL then, *answer belongs to the caller, and done may still use its argument. */
tutti_status tutti_rpc_wait(tutti_rpc_future **future, int timeout_ms);
/* Future.done. Never waits; returns the call's status when *is_done is 1. */
tutti_status tutti_rpc_test(tutti_rpc_future *future, int *is_done);
/* From any thread: the call ends with ABORTED, unless it has ended, and its function is told. Wait
 * or release as ever. Never waits. */
void tutti_rpc_cancel(tutti_rpc_future *future);
/* Cancels the call, if it is in flight, waits until nothing reads or writes its memory any more,
 * and frees the handle. NULL and a NULL *future are fine. With done, which is called as ever, it
 * does not cancel and does not wait. In a function with TUTTI_RPC_SHORT or a done function it never
 * waits: a call whose transfers go on is cancelled, and *future stays, to be released elsewhere. */
void tutti_rpc_release(tutti_rpc_future **future);
void tutti_rpc_free(void *data); /* of an answer; NULL is fine */

/* ---- remote references -------------------------------------------------------------------- */
/* torch.distributed.rpc.RRef: an object of the owner rank, which lives as long as a rank has a
 * count on it. Plain bytes: it travels in a payload, to a rank that it was shared with. */
typedef struct tutti_rpc_ref {
	int32_t owner, reserved;
	uint64_t number;
} tutti_rpc_ref;
/* Local: this rank is the owner, and has one count. destroy(object) is called once, when the last
 * count goes or in tutti_rpc_destroy, from any thread of the library; it may not wait. NULL:
 * nothing is called. MEMORY. */
tutti_status tutti_rpc_ref_create(tutti_rpc *rpc, void *object, void (*destroy)(void *object),
                                  tutti_rpc_ref *ref);
/* On the owner: its object, with one more count of this rank. INVALID: this rank is not the owner,
 * or there is no such object. Never waits. */
tutti_status tutti_rpc_ref_get(tutti_rpc *rpc, const tutti_rpc_ref *ref, void **object);
/* Gives rank a count, and returns when the owner knows; then the reference can be sent there. This
 * rank has a count meanwhile. On the owner it never waits, so a function may return a reference to
 * its caller. A count that a function has shared with its caller before it returns is taken back if
 * the caller does not get the answer. PEER: the owner or rank has died or left. INVALID: no such
 * object, or no such rank. */
tutti_status tutti_rpc_ref_share(tutti_rpc *rpc, const tutti_rpc_ref *ref, int rank);
/* Takes one count of this rank back; does not wait for the owner. A rank that dies loses all its
 * counts. INVALID, said by the owner on its stderr: this rank has none. NULL is fine. On the owner
 * it never waits; else, as tutti_rpc_send. */
tutti_status tutti_rpc_ref_release(tutti_rpc *rpc, const tutti_rpc_ref *ref);

/* ---- parameters --------------------------------------------------------------------------- */
/* The f32 values that steps of contexts update: the caller's, in the memory of the rank that
 * registers them. Numbers are this rank's; names are for messages. */
typedef struct tutti_rpc_param {
	const char *name;       /* 1 to 63 bytes, printable, once on a rank; copied       */
	float *values;          /* the caller's, until release, or tutti_rpc_destroy        */
	size_t count;           /* 0: values may be NULL                                    */
	int group;              /* of the optimizers of a step                              */
	int flags;              /* TUTTI_PARAM_NO_DECAY, or 0                               */
	/* Called once, from any thread, when the library does not use values any more: after
	 * tutti_rpc_param_remove, or in tutti_rpc_destroy; not after an error of
	 * tutti_rpc_param_add. It may not wait. NULL: nothing is called. */
	void (*release)(void *arg);
	void *release_arg;
	uint64_t reserved[4];
} tutti_rpc_param;
/* Local. *number counts from 0, and is not used again. The optimizer's state is made by the first
 * step. INVALID; MEMORY. Never waits. */
tutti_status tutti_rpc_param_add(tutti_rpc *rpc, const tutti_rpc_param *param, int *number);
/* Later calls do not know it; gradients that contexts have of it are INVALID in their step. Never
 * waits: a step that updates it goes on, and release is called after it. INVALID: no such one. */
tutti_status tutti_rpc_param_remove(tutti_rpc *rpc, int number);
/* Until unlock no step updates these values, so that the caller may read them; several threads at
 * once may. A thread that waits for a parameter holds none: it locks all that it needs by one call,
 * and unlocks before it locks others. Short: a step waits meanwhile. Waits. TIMEOUT after
 * timeout_ms (0: 60,000; < 0: none) names the parameter. INVALID: no such one. */
tutti_status tutti_rpc_param_lock(tutti_rpc *rpc, const int *numbers, int count, int timeout_ms);
/* The same ones, by any thread. Never waits. INVALID: some are not locked; the others are. */
tutti_status tutti_rpc_param_unlock(tutti_rpc *rpc, const int *numbers, int count);

/* ---- contexts ----------------------------------------------------------------------------- */
/* torch.distributed.autograd.context without autograd: functions compute their backward themselves,
 * and a context keeps, on each rank, the sums of the gradients of one backward pass, apart from
 * those of other contexts, of this rank or of others. A thread's calls carry its current context to
 * their functions, which run with it. docs/remote-training.md says more.
 *
 *   beginner      The rank that begins a context steps and ends it. No other one of the job has
 *                 its number.
 *   participants  are the ranks with gradients of it: a rank's first tutti_rpc_context_add tells
 *                 the beginner before it returns.
 *   deaths        If the beginner dies or leaves, its contexts are freed on all ranks. If a
 *                 participant does, the contexts that it takes part in can only be ended. */
#define TUTTI_RPC_CONTEXTS 1024 /* begun by one rank and not ended, at most */

/* torch.distributed.autograd.context.__enter__. Local; *context, not 0, is the thread's current one
 * afterwards. MEMORY: there are TUTTI_RPC_CONTEXTS; or no memory. */
tutti_status tutti_rpc_context_begin(tutti_rpc *rpc, uint64_t *context);
/* Waits until all participants have freed its gradients; those that are dead are passed over. The
 * current context of this thread is none afterwards, if it was this one. After TIMEOUT (timeout_ms;
 * 0: the rpc's; < 0: none), with the rank in the message, it may be called again. INVALID: this
 * rank has no such context, or another thread steps or ends it. */
tutti_status tutti_rpc_context_end(tutti_rpc *rpc, uint64_t context, int timeout_ms);
/* This thread's current context; 0: none. For a function that goes on in another thread. */
uint64_t tutti_rpc_context_now(void);
void tutti_rpc_context_set(uint64_t context);

/* Adds count gradients to the sum that the current context has of parameter number, which is this
 * rank's. They are not used after it. Sums of concurrent calls are in any order. Waits where this
 * rank has none of the context yet, so in a function with TUTTI_RPC_SHORT it may be INVALID.
 * INVALID: no current context; it has ended, or is in a step; no such parameter; another count.
 * PEER: the beginner has died or left. MEMORY. Else as tutti_rpc_call. */
tutti_status tutti_rpc_context_add(tutti_rpc *rpc, int number, const float *grad, size_t count);
/* torch.distributed.autograd.get_gradients: copies the sum; zeros, if nothing was added. INVALID:
 * this rank has none of the context; no such parameter; another count. Never waits. */
tutti_status tutti_rpc_context_grad(tutti_rpc *rpc, uint64_t context, int number, float *grad,
                                    size_t count);
/* On the beginner: stores up to room participants, in the order of their numbers, and in *count how
 * many there are. INVALID: no such context. Never waits. */
tutti_status tutti_rpc_context_ranks(tutti_rpc *rpc, uint64_t context, int *ranks, int room,
                                     int *count);

typedef struct tutti_rpc_step_config {
	const tutti_optimizer *groups; /* as of tutti_step */
	int num_groups;
	int timeout_ms;         /* of each of the step's two calls; 0: the rpc's; < 0: none */
	double items;           /* gradients are divided by it; 0: 1                        */
	float max_grad_norm;    /* > 0: clips the norm over all participants                */
	uint64_t reserved[4];
} tutti_rpc_step_config;
/* torch.distributed.optim.DistributedOptimizer.step. On the beginner: all participants update their
 * parameters from this context's sums, by two calls to each, of which all are in flight at once:
 *   1. each checks, makes what state is missing, and answers with its sum of squares. The norm has
 *      the same bits however parameters are divided among ranks. After an error no rank updates,
 *      nor if a gradient is not finite: then it is OK with info->skipped, and
 *      tutti_comm_error(NULL) names the parameter.
 *   2. each locks all its parameters of the context, and updates them. Steps of other contexts come
 *      before or after, on each rank. A failure names the ranks that have updated.
 * Functions that add have returned before. info may be NULL; loss_scale is 1. Sums stay as they
 * are, and more can be added; after a failure or a skip the context can only be stepped again, or
 * ended. Participants need a thread of config.threads that is free. Waits. INVALID: an argument;
 * this rank has no such context; a participant's parameter is of no group, was updated by the other
 * kind, or was removed. PEER: a participant has died or left. TIMEOUT; MEMORY. */
tutti_status tutti_rpc_context_step(tutti_rpc *rpc, uint64_t context,
                                    const tutti_rpc_step_config *config, tutti_step_info *info);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
