/* The engine of one communicator on this rank: connections, works in flight, and their order.
 *
 * It knows neither collectives nor transports. It has one lock. A thread that waits makes progress
 * under the lock; if no thread waits, the helper thread of the process makes progress while
 * asynchronous works are in flight. */
#ifndef COLLECTIVES_ENGINE_ENGINE_H
#define COLLECTIVES_ENGINE_ENGINE_H

#include "collectives/control/control.h"
#include "collectives/plan/plan.h"
#include "collectives/trace/trace.h"
#include "core/placement/cpu_location.h"
#include "collectives/window/window.h"
#include "core/wait.h"
#include "core/memory/memory.h"

#include <tutti/transport.h>

struct captured_call;
struct device;
struct engine;
struct tutti_work;

/* Where to reach each rank: an endpoint of ours and the address of theirs. */
struct engine_route {
	struct tutti_endpoint *endpoint; /* NULL: this rank itself, or unreachable        */
	uint8_t address[TUTTI_ADDRESS_BYTES];
	size_t address_bytes;
	uint32_t maps; /* kinds of memory that both ends' adapters may reach */
};

#define ENGINE_NAME_BYTES 32

/* Pieces of each rank's GPU's memory through which its messages to others go. */
struct engine_stages {
	void **of;    /* [rank]: that rank's first one, as this rank maps it; NULL: it does not */
	size_t bytes; /* of each */
	unsigned count;
};

/* Kernels of this rank that wait for those of others; all NULL: there are none. Under the lock. */
struct engine_device {
	void (*fail)(void *arg); /* the engine has: they are to end, before works do */
	bool (*runs)(void *arg, uint64_t *ended); /* whether one does, and a count of ends */
	/* Whether one has found that the ranks' calls differ; says how. */
	bool (*differs)(void *arg, char *text, size_t text_bytes);
	void *arg;
	const struct engine_stages *stages; /* constant, and lives longer */
};

struct engine_config {
	int rank, size;
	char name[ENGINE_NAME_BYTES]; /* of the communicator, for messages; or ""   */
	struct tutti_endpoint **endpoints; /* all that progress must visit; engine owns them */
	int endpoint_count;
	const struct engine_route *routes; /* size of them, copied                          */
	struct window *window;      /* or NULL; the engine owns it                   */
	struct control *control;    /* finds and tells failures; or NULL; owned, too */
	struct trace *trace;        /* where it says what it waits for; or NULL; lives longer */
	const char *trace_dir;      /* the trace of a failure goes there; or NULL; copied     */
	int linger_ms; /* how long destroy sends lost bytes again, on transports that
			* reconnect */
	size_t slice_bytes, scratch_bytes;
	struct wait_policy policy, helper_policy;
	/* The ranks of this node, this one included, if they are to be spread over its CPUs. */
	struct cpu_location near[CPU_LOCATIONS_MAX];
	int ranks_near_count, ranks_near_me;
	struct engine_device device;
	int timeout_ms; /* of captured calls */
	uint64_t (*now_ns)(void *arg); /* NULL: the machine's clock. With a clock of its own
					* the engine moves by engine_progress alone      */
	void *now_arg;
};

tutti_status engine_create(struct engine **engine, const struct engine_config *config);
/* The helper thread serves the control ring from here on. */
tutti_status engine_open_control(struct engine *engine);
/* Returns when the control ring, if any, is up, or soon after is_over(arg), which may be NULL. */
tutti_status engine_wait_control(struct engine *engine, uint64_t deadline_ns,
				 bool (*is_over)(void *arg), void *arg);
/* Pending works end first, by themselves or at their deadline; then connections, endpoints and the
 * window go. NULL is fine. False, after a notice: for config.timeout_ms a callback has held the
 * lock or not returned. Then all that the engine uses stays allocated: it may still be in use. */
bool engine_destroy(struct engine *engine);

enum p2p_side { P2P_NONE, P2P_SEND, P2P_RECV };

/* A send or recv, besides buffer, count and dtype. */
struct p2p_args {
	enum p2p_side side;
	int peer; /* recv: or TUTTI_ANY                                          */
	int tag;
	int *source; /* recv: where the sender's rank goes; or NULL                 */
	uint64_t other_count; /* after a MISMATCH: what the peer's call has ...       */
	uint32_t other_dtype; /* ... and peer is who that is                          */
};

/* A send or recv, before it is a task. */
struct send_recv {
	const char *name; /* of its call */
	enum p2p_side side;
	int peer, tag; /* as in p2p_args */
	tutti_dtype dtype;
	size_t count, bytes;
	void *buf;   /* a send only reads it            */
	int *source; /* as in p2p_args                  */
	const struct memory_kind *memory; /* of buf     */
	tutti_done_fn done;
	void *done_arg;
	int timeout_ms;
	bool is_grouped;
};

/* The kinds of tasks: a plan, a call of the window; p2p/p2p.h has the third. */
struct task_kind;
extern const struct task_kind plan_tasks, window_tasks;
/* A collective by a plan (replays_as), or messages, into the graph of the spec's stream: the task
 * is over when it has begun, and replays do it. */
extern const struct task_kind captured_tasks;

/* A task to do: a plan with its buffers, a send or recv, or a call for the window. */
struct task_spec {
	const struct task_kind *kind;
	const struct plan *plan; /* lives as long as the engine                   */
	/* The same without copies in host memory, to be taken if this rank's buffers can be mapped;
	 * and another one, for chunks that are not cut and lie side by side. Or NULL. */
	const struct plan *direct_plan, *whole_plan;
	/* The kind of memory that the buffers of other ranks may be of, whatever this rank's are,
	 * and that adapters reach; 0: there is none. */
	int direct_kind;
	struct layout layout;
	uint32_t width;                   /* scratch chunks it needs, the same on all ranks */
	const struct memory_kind *memory; /* of the caller's buffers                       */
	bool is_ordered; /* it begins after the work that stream has now */
	void *stream;
	bool is_in_stream;     /* the stream's later work waits for it: no handle, no callback */
	struct device *device; /* of a call that it serves                                     */
	size_t send_bytes, recv_bytes;    /* their lengths on this rank                    */
	bool checks_counts;               /* all_to_allv: pairs compare their counts        */
	bool copies_send;                 /* in place, but recv is written before send is out */
	struct call_args args;
	struct p2p_args p2p;
	/* Sends and receives that are captured together; they live until begin has returned. */
	const struct task_spec *const *messages;
	size_t message_count;
	const struct task_kind *replays_as; /* of captured_tasks: a collective's kind        */
	struct captured_call *captured;     /* of a replay; or NULL ...                      */
	uint32_t replay;                    /* ... and which it is, from 1 on                */
	const char *name, *algorithm; /* of the call, for messages                     */
	struct trace_mark trace;
	int timeout_ms;
	tutti_done_fn done;
	void *done_arg;
};

/* Starts it and returns at once. *work is held twice: by the engine until it ends, by the caller
 * until work_release. Fails with the sticky status of the communicator, or MEMORY. */
tutti_status engine_submit(struct engine *engine, const struct task_spec *spec,
			   struct tutti_work **work);
/* A call of the window that has a handle and no callback, where nothing else is in flight, in less
 * time. NULL: other calls are in flight, or there is no memory; engine_submit is to do it. */
struct tutti_work *engine_submit_alone(struct engine *engine, const struct call_args *args,
				       int timeout_ms);
/* Tries n blocking messages in order, under the lock and without works, and stops at the first for
 * which try_it returns false. If that one may still come (*may_come) it looks for it, for 1 ms at
 * the most, and goes on. Returns how many messages are complete; the others are for engine_run.
 * since: n zeroes; entry i receives the tick at which the look for message i began, if it did. */
typedef bool engine_try_fn(struct engine *e, const struct send_recv *m, bool *may_come);
size_t engine_at_once(struct engine *engine, engine_try_fn *try_it,
		      const struct send_recv *const *messages, size_t n, uint64_t *since);
/* The blocking call: the shortest way from here to the wire. */
tutti_status engine_run(struct engine *engine, const struct task_spec *spec);
/* The same to the window, for a call on host memory. IN_PROGRESS: engine_run is to do it, since other
 * calls are before it or the engine has failed. */
tutti_status engine_run_window(struct engine *engine, const struct call_args *args, int timeout_ms);

/* Whether one more call may be captured: INVALID. */
tutti_status engine_check_capture(struct engine *engine);

/* One pass over everything; for the simulator and the helper. Returns whether anything happened. */
bool engine_progress(struct engine *engine);
/* From any thread, any time: the first failure sticks, everything pending ends with it. */
void engine_fail(struct engine *engine, tutti_status status, const char *message);
/* The same, but another thread cleans up, so that the caller need not wait for that. */
void engine_abort(struct engine *engine, const char *message);
tutti_status engine_status(const struct engine *engine);
/* After a failure: returns when nothing of ours touches a caller's buffer any more. */
void engine_settle_failure(struct engine *engine);
/* For a rank in no call: asks around as a slow call would. Returns whether it has failed. */
bool engine_is_broken(struct engine *engine);
/* Whether this thread is in a callback that runs under the engine's lock, such as a reduction
 * function. */
bool engine_is_in_callback(const struct engine *engine);
const char *engine_error(const struct engine *engine); /* "" until it failed */
/* Takes up a failure that another rank has told, though no call waits here: from any thread, never
 * blocks. */
void engine_look(struct engine *engine);
/* The rank that the failure is about, where it is one other rank (PEER); else -1. */
int engine_failed_peer(const struct engine *engine);
/* Before a caller hears of the failure, without any lock: writes the trace if wanted, once. */
void engine_show_failure(struct engine *engine);
/* Of a call that returns status: this thread's error says which communicator it is about, where
 * that has a name. Returns status. */
tutti_status engine_name_error(const struct engine *engine, tutti_status status);
void engine_stats(const struct engine *engine, tutti_stats *stats);
void engine_forget_stats(struct engine *engine); /* counts messages from here on */

/* From any thread. If timeout_ms is 0, as long as it takes. Releases and forgets *work, but on
 * IN_PROGRESS. */
tutti_status work_wait(struct tutti_work **work, int timeout_ms);
tutti_status work_test(struct tutti_work *work, bool *is_done);
tutti_status work_cancel(struct tutti_work *work); /* as tutti_work_cancel */
void work_release(struct tutti_work *work);
/* The later work of a stream waits for work; or the caller does, where the driver would keep other
 * threads waiting. From any thread. */
tutti_status work_wait_stream(struct tutti_work *work, void *stream);
/* That has failed with status for a call of this name: the stream goes on too early, so engine
 * fails. */
void engine_fail_stream(struct engine *engine, tutti_status status, const char *name);
void work_retain(struct tutti_work *work);        /* one release more is due */
void *work_memory(const struct tutti_work *work); /* what an allocation's call returns */

#endif
