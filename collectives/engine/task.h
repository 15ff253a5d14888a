/* The engine, as a kind of task sees it: the struct itself, works, and ios. A kind is a plan
 * (run.c), a call of the window (window_task.c), a message (collectives/p2p), a call in a graph
 * (captured.c) or GPU kernels (collectives/device). Everything here is under the engine's lock
 * unless it says otherwise. */
#ifndef COLLECTIVES_ENGINE_TASK_H
#define COLLECTIVES_ENGINE_TASK_H

#include "collectives/engine/engine.h"
#include "core/clock.h"
#include "core/long_wait.h"
#include "core/placement/cpu_spread.h"
#include "core/status.h"
#include "cuda/kind.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#define ENGINE_WORKS_MAX 1024 /* works in flight at once; submit waits for room                */
#define ENGINE_DEVICE_WORKS_MAX 128 /* the same where GPUs do them                          */
#define RESEND_FDS         4    /* of an engine's endpoints, that the helper sleeps on           */

struct direct_map;
struct lane_run;
struct run;
struct engine_io;

/* The lanes of successive works that use one direction of one connection, in order of submission:
 * the first issues until it has issued everything. */
struct stream {
	struct lane_run *head, **tail;
};

/* The part of the engine that posted an io, and hears of its end. */
struct io_owner {
	void (*done)(struct engine *e, struct engine_io *io);
	void (*failed)(struct engine *e, struct engine_io *io);
};

/* An operation that the engine posts. Transports see op.io, memory kinds op. */
struct engine_io {
	struct memory_io op;
	const struct io_owner *owner;
	struct tutti_work *work; /* of a work's own ios; NULL for ios of other owners   */
};

/* A kind of task. */
struct task_kind {
	/* Starts work. An error is the communicator's. */
	tutti_status (*begin)(struct engine *e, struct tutti_work *work);
	/* The host copies or the scratch that begin asked for are there. NULL: not needed. */
	void (*prepared)(struct engine *e, struct tutti_work *work);
	/* Of a task that runs before its stream's earlier work is over: that is over now. NULL: it
	 * does not matter. */
	void (*released)(struct engine *e, struct tutti_work *work);
	/* The plan that work ran has ended. NULL: so has work. */
	void (*plan_ended)(struct engine *e, struct tutti_work *work);
	/* The work is over, well or not: gives back what begin took. NULL if there is nothing. */
	void (*finish)(struct engine *e, struct tutti_work *work);
	/* Says in words what work, which is not over, waits for. Returns a rank of it, or -1. */
	int (*explain)(struct engine *e, const struct tutti_work *work, char *text,
		       size_t text_bytes);
	/* The call, for error messages: its name, number and algorithm. Returns text. */
	const char *(*words)(const struct tutti_work *work, char *text, size_t text_bytes);
	/* Takes work back if it still can; then it may be ended. NULL: it never can. */
	bool (*cancel)(struct engine *e, struct tutti_work *work);
	/* Why work ended by itself with an error (engine_work_failed). NULL: it never does. */
	void (*why)(const struct tutti_work *work, char *text, size_t text_bytes);
	/* Whether it has not begun, because the earlier work of its stream lasts: then its deadline
	 * does not pass. NULL: its preparations say so. */
	bool (*is_held)(const struct tutti_work *work);
	/* An AFTER behind all that it does, for which streams may wait instead of a gate. NULL:
	 * there is none. */
	const struct memory_io *(*end_of)(const struct tutti_work *work);
};

/* A user of the engine's endpoints and its lock that is no work: messages that were sent and are
 * done for their caller. */
struct engine_user {
	bool (*is_drained)(struct engine *e); /* all has left, or has had its time */
	/* Before a rank leaves: tells the peers, which takes a moment. Takes the lock by itself. */
	void (*leave)(struct engine *e);
	void (*close)(struct engine *e);      /* its connections, and all that it keeps for peers */
	void (*free)(struct engine *e);
};

/* Host copies of a call's buffers, and the ios that fill them and copy the result out. The data
 * follow in the same block, so only calls with copies have these ios. */
struct bounce_copies {
	struct engine_io in, gaps, out;
	const void *in_src, *gaps_src, *out_src;
	uint8_t *send, *recv;
};

/* Preparations of a task: the earlier work of the call's stream, and for memory that the CPU may
 * not touch host copies of the caller's buffers, or scratch in that memory. */
struct bounce {
	struct bounce_copies *copies; /* NULL: none were needed                   */
	void *scratch;                /* or NULL                                  */
	size_t scratch_bytes;
	int preparing; /* ios still to come before it runs                 */
	bool is_early; /* it runs before they have come                    */
	bool is_held;  /* the stream's earlier work is not over            */
};

/* Mappings of what a call's messages are sent from and received into, if adapters do that; else
 * all are NULL. */
enum direct_part { DIRECT_IN, DIRECT_OUT, DIRECT_SCRATCH, DIRECT_PARTS };
struct work_direct {
	struct direct_map *maps[DIRECT_PARTS];
	void *scratch;
};

/* A call whose kernels and plan take turns: see collectives/device/across.c. */
struct across {
	struct tutti_work *next; /* behind it, in order of submission */
	int phase;
};

enum work_stage { WORK_PREPARES, WORK_RUNS, WORK_CLEANS_UP };

/* What a work's union holds. All begin as a task; a call of the window holds its run from
 * window_begin on, when its preparations are over, to its end. */
enum work_holds { WORK_HOLDS_TASK, WORK_HOLDS_WINDOW_RUN };

/* The members before io are cleared for each new work, io whenever it is posted. */
struct work_task {
	struct run *run;             /* of a plan                                      */
	struct p2p_message *message; /* a send or recv                                 */
	struct work_direct direct;
	struct across across;
	/* One at a time: the end of the stream's earlier work, scratch (allocated, freed), the end
	 * of kernels. */
	struct engine_io io;
	const void *io_src;
};

/* The calls that the one work of a group holds. */
struct work_parts {
	struct tutti_work **part; /* so many, each held once                            */
	size_t count;
	struct engine **engine; /* of the parts, each once                            */
	size_t engine_count;
	_Atomic size_t left; /* parts in flight, and one while they are being started */
	atomic_int status;   /* the first failure; its writer also writes why         */
	char why[ERROR_BYTES];
};

/* The members before tables are cleared for each new work; the rest is written when it is needed.
 * The size matters: up to ENGINE_WORKS_MAX works, and more of groups, are in flight. */
struct tutti_work {
	struct engine *engine;
	struct tutti_work *next, *prev; /* in flight; next alone: free, or waiting for callback */
	struct tutti_work *next_window, *next_ended;
	uint64_t submitted_ns, deadline_ns; /* by the coarse clock */
	struct tutti_work *whole; /* the group's work that this is a part of; or NULL    */
	struct work_parts *parts; /* of a group's work; it is on none of the lists       */
	void *send_copy;         /* of a call that copies its send; or NULL             */
	enum work_stage stage;
	enum work_holds holds; /* of `as`                                              */
	bool is_async;
	atomic_int refs;          /* any thread                                        */
	atomic_int is_done; /* any thread; its release publishes status          */
	tutti_status status;
	tutti_status own_status; /* its own failure, which is not the communicator's; or OK */
	struct bounce bounce;
	size_t *tables; /* the counts and offsets of a v-variant; kept for later works */
	size_t table_room;
	struct task_spec spec;
	struct cuda_gate gate;  /* where streams wait for its end; or none           */
	union {
		struct work_task task;
		struct window_run window_run;
	} as; /* see work_task() and work_window_run() */
};
_Static_assert(sizeof(struct tutti_work) < 900, "a work is small, since many may be in flight");

/* Of a work that holds it. Macros, so that they are const where work is. */
#define work_task(work)       (assert((work)->holds == WORK_HOLDS_TASK), &(work)->as.task)
#define work_window_run(work) (assert(work_has_begun(work)), &(work)->as.window_run)

/* Whether it is a call of the window for which window_begin was called. */
static inline bool work_has_begun(const struct tutti_work *work)
{
	return work->holds == WORK_HOLDS_WINDOW_RUN;
}

/* Of any work: the message that it is; NULL: it is none. */
static inline struct p2p_message *work_message(const struct tutti_work *work)
{
	return work->holds == WORK_HOLDS_TASK ? work->as.task.message : NULL;
}

/* How the peers are reached. Under the engine's lock. Captured calls, whose order is that of the
 * graphs' launches, have connections of their own: see engine_place. */
struct engine_links {
	struct engine_route *routes;
	struct tutti_conn **conns; /* [place] */
	struct stream *streams[2]; /* [sends][place] */
	struct memory_queue *queues[TUTTI_MEMORY_KINDS];
	struct tutti_done done; /* ios that ended, of transports and queues */
};

/* Memory that the adapters of an endpoint know (direct.c). Under the engine's lock. */
struct engine_direct {
	struct tutti_endpoint *endpoint; /* NULL: there is no such                       */
	struct direct_map *maps;         /* DIRECT_MAPS_MAX of them; NULL: none yet      */
	uint64_t used;                   /* how often                                    */
	bool has_told;                   /* why some memory is not mapped                */
};

/* The works in flight, and the calls that are to become works. Under the engine's lock. */
struct engine_works {
	struct tutti_work *newest; /* the first of the list */
	/* window_calls.c: the only call, without a spec; or NULL. Any thread reads the pointer. */
	struct tutti_work *_Atomic alone;
	atomic_int count;          /* without alone; any thread reads it */
	atomic_int numbered;       /* of these: collectives, which have a sequence number */
	int by_message;            /* so many of them are no calls of the window */
	int groups;                /* that start their calls now, without waiting for room */
	const struct task_spec *outside; /* the call that waits for room, or NULL, ... */
	uint64_t outside_since_ns;      /* ... and since when */
	struct tutti_work *window_head, **window_tail; /* calls of the window, in order */
	struct tutti_work *ended, **ended_tail; /* to be finished by engine_settle, in order */
	struct tutti_work *free;
	int made; /* all works of the engine: in flight, free, and in the hands of callers */
};

/* The runs of plans. Under the engine's lock. */
struct engine_runs {
	struct lane_run *dirty, **dirty_tail; /* lanes that may get on */
	struct run *free;
	int free_count;
};

/* The state of the looks at a wait that lasts. Under the engine's lock. */
struct engine_watch {
	uint32_t passes, tries; /* tries: of messages that need no work */
	uint64_t watched_ns;  /* when engine_watch last looked at all works */
	uint64_t looked_ns;   /* when it last asked around */
	bool moved;           /* the last pass did */
	uint64_t told_ns;     /* when the trace was last told what is waited for */
	uint64_t join;        /* the last call that made a communicator: its number + 1 ... */
	struct long_wait wait; /* ... and how long it waits */
	uint64_t absent_ns;   /* since when its absent ranks are asked for, or 0 */
	uint64_t late_ns;     /* the last deadline that passed ... */
	uint64_t asked_ns;    /* ... and when the other ranks were asked about it */
	/* helper.c: when it last looked, what had ended then, and since when that is so. */
	uint64_t replays_looked_ns, replays_ended, replays_since_ns;
	uint64_t reported_ns; /* when the failure that another rank reported was first looked at */
};

/* How the engine failed. Any thread, but is_clean, which is under the engine's lock. Nothing is
 * called under the lock in here. */
struct engine_failure {
	atomic_int stop;          /* set on failure: the holder of the engine's lock cleans up */
	bool is_clean;            /* nothing of ours is posted any more */
	atomic_int report_state;  /* enum report_state */
	pthread_mutex_t lock;     /* of all below, but is_shown */
	atomic_int status, peer;  /* written once; peer: rank + 1, or 0 */
	char error[ERROR_BYTES];  /* written once, before status */
	struct failure reported;  /* what another rank has failed with */
	char reported_message[ERROR_BYTES];
	char *trace_dir;      /* constant; or NULL */
	atomic_bool is_shown; /* the trace of the failure has been written there */
};

/* Works that are over. Any thread, under the lock in here; nothing is called under it. */
struct engine_lists {
	pthread_mutex_t lock;
	struct tutti_work *called, **called_tail; /* their callback was not called yet */
	atomic_bool has_called;              /* there are such; any thread reads it */
	struct tutti_work *_Atomic released; /* by callers; without the lock        */
};

/* While this rank is in no call: the descriptors that wake the helper when a peer needs bytes sent
 * again. */
struct resend {
	int fds[RESEND_FDS], count;
	bool is_due; /* now, or as soon as the lock can be had */
};

/* The helper thread's part of the engine. */
struct engine_help {
	struct engine *next;    /* this and the next two: under the lock of the helper's list */
	bool is_attached, is_leaving; /* leaving: destroy waits for its asynchronous works */
	struct resend resend;   /* the helper thread alone */
	atomic_int async_works; /* any thread: in flight, so that there is something to do */
	atomic_int waiters;     /* any thread: threads that wait for a work, and make progress */
	atomic_int prompt; /* any thread: works in a row that a thread waited for soon */
	_Atomic uint64_t ended; /* works; written under the engine's lock, the helper reads it */
	uint64_t ended_before;  /* the same at its last nap; the helper thread alone         */
	atomic_bool replays;    /* any thread: calls were captured, and may run at any time */
	atomic_int is_dirty;    /* any thread: has failed, and the helper is to clean up */
};

/* Written under the engine's lock, read by any thread. */
struct engine_traffic {
	_Atomic uint64_t messages, sent_bytes, received_bytes;
};

/* The part of captured.c that others call: by a table, since it submits, and they would link what
 * submits in a circle. */
struct replay_tasks {
	void (*start)(struct engine *e); /* those whose graphs have come to them */
	void (*began)(const struct tutti_work *work); /* of a replay, as the next one */
	void (*ended)(struct engine *e, const struct tutti_work *work);
};

/* Calls that are captured: see captured.c. Under the engine's lock, but for what says otherwise. */
struct engine_captured {
	const struct replay_tasks *tasks; /* NULL: none was captured */
	struct captured_call *newest; /* of all */
	int count;
	uint32_t fingerprint;          /* of the replays of collectives so far      */
	struct cuda_captured latest;  /* of the capture that is under way          */
	/* Under the lock of captured.c: those whose replay has begun, in order, and one whose
	 * replay began before that before it had ended. */
	struct captured_call *started, **started_tail, *overlapped;
	atomic_bool has_started; /* any thread: there is something there */
};

struct engine {
	struct engine_config config; /* constant, but what engine_disconnect and engine_take_apart end */
	pthread_mutex_t lock;
	atomic_uintptr_t lock_holder; /* the thread that holds it (pthread_self), or 0 */
	struct engine_links links;
	struct engine_direct direct;
	struct engine_works works;
	struct engine_runs runs;
	struct engine_watch watch;
	struct engine_captured captured;
	/* Of p2p, under the lock. */
	const struct engine_user *user; /* NULL: no message was sent or received yet */
	struct p2p *p2p;                /* what that keeps */
	int loose;                      /* its ios that belong to no work */

	struct spread spread; /* the blocking caller's, without the lock */
	struct engine_failure failure;
	struct engine_lists lists;
	struct engine_help help;
	struct engine_traffic traffic;
	atomic_int refs; /* any thread: the owner's, groups', and after the end those outside */
};

static inline uint64_t engine_now(const struct engine *e)
{
	return e->config.now_ns ? e->config.now_ns(e->config.now_arg) : clock_now_ns();
}

/* The same by a clock that is cheap to read, and late by COARSE_NS at the most. */
#define COARSE_NS 10000000u
static inline uint64_t engine_coarse_now(const struct engine *e)
{
	return e->config.now_ns ? engine_now(e) : clock_read_ns(CLOCK_MONOTONIC_COARSE);
}

/* For kinds of task and groups of calls; engine_internal.h has the rest. */
/* window_task.c: the call that is alone takes its place among the works. */
void engine_enlist(struct engine *e);
/* progress.c */
/* Ends the process, with a message: this thread already holds the lock, since a reduction function
 * has called the library or was left by longjmp. */
void engine_lock_is_ours(const struct engine *e) __attribute__((noreturn, cold));
static inline bool engine_holds_lock(const struct engine *e)
{
	return atomic_load_explicit(&e->lock_holder, memory_order_relaxed) ==
	       (uintptr_t)pthread_self();
}
static inline void engine_set_holder(struct engine *e)
{
	atomic_store_explicit(&e->lock_holder, (uintptr_t)pthread_self(), memory_order_relaxed);
}
/* Without looking at what happened meanwhile, as engine_unlock does. */
static inline void engine_release_lock(struct engine *e)
{
	atomic_store_explicit(&e->lock_holder, 0, memory_order_relaxed);
	pthread_mutex_unlock(&e->lock);
}
/* Takes the lock. A work's waiting thread, and engine_destroy with its timeout, take it by
 * themselves. */
static inline void engine_lock(struct engine *e)
{
	if (__builtin_expect(engine_holds_lock(e), 0))
		engine_lock_is_ours(e);
	pthread_mutex_lock(&e->lock);
	engine_set_holder(e);
	if (__builtin_expect(e->works.alone != NULL, 0))
		engine_enlist(e);
}
static inline bool engine_trylock(struct engine *e)
{
	if (pthread_mutex_trylock(&e->lock) != 0)
		return false;
	engine_set_holder(e);
	if (__builtin_expect(e->works.alone != NULL, 0))
		engine_enlist(e);
	return true;
}

/* How every holder of the lock lets it go; a failure that came meanwhile is cleaned up. */
void engine_unlock(struct engine *e);

/* connections.c */
/* A connection of its own on a channel that is not 0: the caller's to keep and to close. */
struct tutti_conn *engine_connect(struct engine *e, int peer, int channel);

/* engine_failure.c */
/* Of a collective: its name, number and algorithm. Returns text. */
const char *collective_words(const struct tutti_work *work, char *text, size_t text_bytes);
/* The first failure stays, and the other ranks are told. rank: as in struct failure. From any
 * thread. The holder of the lock, perhaps this thread, cleans up when it lets go. */
void engine_set_failure(struct engine *e, tutti_status status, int rank, const char *message);
/* The failure of work's call. */
void engine_fail_in(struct engine *e, const struct tutti_work *work, tutti_status status,
		    const char *why);
/* Why an operation of this kind of memory failed, which ended with status. */
const char *engine_queue_error(const struct engine *e, const struct memory_kind *kind,
			       tutti_status status);
/* "rank 3: ", the call in words, and why. text has ERROR_BYTES; returns it. */
const char *engine_in_words(const struct engine *e, const struct tutti_work *work, const char *why,
			    char *text);
/* work's connection to peer is lost, for why; that is the failure unless a rank knows better. */
void engine_lost(struct engine *e, const struct tutti_work *work, int peer, tutti_status status,
		 const char *why);
/* progress.c */
/* One pass over everything; is_eager: by a thread that waits. Returns whether anything moved. */
bool engine_pass(struct engine *e, bool is_eager);
/* Sleeps, without the lock, until an endpoint or the window has news, or 1 ms. */
void engine_sleep(struct engine *e);

/* bounce.c */
/* Posts work's io on q, cleared but for op; its src may be io_src. */
void work_post_io(struct engine *e, struct tutti_work *work, struct memory_queue *q,
		  const struct io_owner *owner, const struct memory_io *op);
/* Begins the preparations of work: its stream's earlier work, host copies of the caller's buffers,
 * scratch in their memory. If there are any its stage is WORK_PREPARES then, and the kind's
 * prepared comes later; else it is WORK_RUNS. */
struct bounce_needs {
	bool copies; /* where the CPU may not touch the buffers */
	/* A recv: runs at once, into a copy, which goes to its buffer after the stream's work. */
	bool is_early;
	size_t scratch_bytes;
};
tutti_status bounce_prepare(struct engine *e, struct tutti_work *work, struct bounce_needs needs);
/* Host copies of a task that has none, and whose stream's earlier work, if it sends, is over; then
 * its prepared is called once more, when they are filled. */
tutti_status bounce_copy_late(struct engine *engine, struct tutti_work *work);
/* The plan, window operation or message of work is over: gives host copies and scratch back, and
 * finishes work at the end of the pass. */
void engine_work_ended(struct engine *e, struct tutti_work *work);
/* The same with an error that is work's alone: the communicator stays well. */
void engine_work_failed(struct engine *e, struct tutti_work *work, tutti_status status);

/* run_create.c */
/* Where a chunk of POOL_FILLED lies, of work whose scratch is there. */
void *run_filled(const struct tutti_work *work, uint32_t chunk);

/* helper.c */
/* A call has been captured. */
void engine_expect_replays(struct engine *e);

/* submit.c */
/* A group's work: made for up to count parts; then parts are added, and it is sealed. false: it
 * has none. Until then it cannot end. Parts are given away to it. No lock. */
tutti_status work_new_whole(struct tutti_work **whole, struct engine *e, size_t count,
			    const tutti_call *call);
void work_add_part(struct tutti_work *whole, struct tutti_work *part);
bool work_seal(struct tutti_work *whole);
void work_note_error(struct tutti_work *whole, tutti_status status, const char *why);

/* Of e->traffic. Only the holder of the lock writes. Any thread reads. */
static inline void engine_add_traffic(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

#endif
