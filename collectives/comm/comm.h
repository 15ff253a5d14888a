/* A communicator: which ranks it has, how they reach each other, its engine and its plans. Outside
 * of this folder only the API looks into it, and only by this header. */
#ifndef COLLECTIVES_COMM_COMM_H
#define COLLECTIVES_COMM_COMM_H

#include "collectives/engine/engine.h"
#include "collectives/plan/plan.h"
#include "collectives/select/select.h"
#include "core/env.h"
#include "core/placement/cpu_location.h"
#include "core/status.h"
#include "transport/registry.h"

#include <stdatomic.h>

struct cached_plan;
struct consensus;
struct control_peer;
struct device;
struct engine;
struct job_record;
struct origin;
struct task_spec;
struct recorder;
struct engine_route;
struct trace;
struct window;

#define HOST_ID_BYTES 96

/* The calls of this rank. */
struct comm_calls {
	_Atomic uint64_t sequence; /* collectives issued                                  */
	uint32_t fingerprint;      /* of the latest and of all before it, or 0 */
	atomic_int is_issuing;     /* a thread is in a call: 1, or 2 when it waits there   */
	struct recorder *recorder;     /* the latest calls, for the other ranks ...        */
	struct recorder *own_recorder; /* ... NULL: it is the window's                     */
	struct trace *trace;           /* the same calls and messages, with times, for tools */
	size_t *packed[2]; /* by side: the offsets of a v-variant that was called without   */
};

/* Set by the caller and the environment. */
struct comm_settings {
	struct env env; /* its texts are our own: children are made from them            */
	int timeout_ms;
	bool deterministic;
	int device; /* the ordinal of a CUDA device; -1: the one that is current         */
	bool device_memory; /* tutti_mem_alloc gives memory of it: the caller has named it */
	char *filter; /* of transports, or NULL                                          */
	char name[ENGINE_NAME_BYTES]; /* or ""                                           */
};

/* Tells this communicator from all others, on all its ranks. */
struct comm_identity {
	uint64_t id[2];
	uint8_t key[TUTTI_KEY_BYTES];
};

/* Where this rank is, and which ranks share its node. */
struct comm_place {
	char host_id[HOST_ID_BYTES];
	int local_rank, local_size, node_rank, num_nodes;
	struct nodes nodes; /* what select.nodes points to                               */
	int ranks_on_host;  /* the job's ranks on this node: how many threads may wait here, in
			     * this communicator and in its relatives, at the same time   */
	bool has_no_thread; /* a rank among several of its process, whose threads are not known
			     * while they join                                            */
	int cores;          /* that these ranks may use together                         */
	struct cpu_location near[CPU_LOCATIONS_MAX]; /* the ranks of this node, where they may be
						      * spread over its CPUs ...           */
	int ranks_near_count; /* ... so many of them, or 0                                */
	int partners[LINKS];  /* the ranks to measure links with, or -1                    */
};

/* The communicator that this one came from. */
struct comm_parent {
	int *ranks; /* by rank: its rank there; NULL without a parent                     */
	int rank;   /* this rank's there, while a job grows, or -1                        */
	struct job_record *job; /* of all that were split from one, with it (control/job.h) */
	int *numbers;           /* by rank: its number in the job; NULL: the same           */
};

/* How the ranks reach each other. */
struct comm_reach {
	const struct tutti_transport *transports[TRANSPORTS_MAX]; /* that may be used */
	int transport_count;
	struct tutti_endpoint *endpoints[TRANSPORTS_MAX]; /* once the others are known: in use */
	int endpoint_count;
	struct engine_route *routes;    /* only while joining                                   */
	uint32_t kinds_in_place; /* memory that every transport in use reads and writes  */
	uint8_t *direct; /* by peer: the kinds of which both ends may map memory; NULL: none   */
	int direct_kind; /* the one that such memory is of; 0: none                      */
	struct tutti_endpoint *control_endpoint; /* until the control ring has it       */
	struct control_peer *peers;              /* all ranks, for the control ring     */
	bool may_have_window;
	int window_refusal; /* a descriptor, by which the others learn that this rank has no window,
			     * or -1                                                     */
};

/* How the ranks go on after a failure. */
struct comm_recovery {
	struct consensus *consensus;
	uint32_t calls; /* of tutti_comm_shrink, _grow and _agree                         */
	/* Of communicators that this one comes from, where a rank was left behind that may come
	 * back: as long as this one lives it must not take them for deserted. */
	struct consensus **ancestors;
	int ancestor_count;
	struct origin *origin;  /* where the ranks joined, for new ones (rendezvous.h)    */
	atomic_uint aborts;     /* how often tutti_comm_abort was called                */
	unsigned aborts_before; /* of aborts: they do not concern the recovery call     */
	int server; /* of a grow that waits for it: rank + 1, or 0               */
	struct trace_mark mark; /* the recovery call under way                          */
};

struct tutti_comm {
	int rank, size;
	struct window *window; /* the engine's, once there is one; NULL: messages        */
	struct device *device; /* for buffers of GPUs that all ranks map; or NULL        */
	struct engine *engine; /* free() writes into the first 16 bytes, not into this   */
	struct comm_calls calls;
	struct select select;
	bool has_links; /* select.links were in TUTTI_LINKS, on all ranks                */
	struct cached_plan *plans[ALGORITHMS]; /* by algorithm       */
	struct comm_settings settings;
	struct comm_identity identity;
	struct comm_place place;
	struct comm_parent parent;
	struct comm_reach reach;
	struct comm_recovery recovery;
	bool is_left; /* engine_destroy gave up: nothing that it uses may be freed      */
};

/* init.c, split.c, create_from.c, shrink.c, grow.c, agree.c: what tutti.h says of these, for
 * arguments that are not NULL where it needs them, outside groups. */
tutti_status comm_init(struct tutti_comm **comm, const tutti_config *config);
tutti_status comm_init_all(struct tutti_comm **comms, int n, const tutti_config *config);
tutti_status comm_split(struct tutti_comm *parent, int color, int key, const tutti_config *config,
			struct tutti_comm **child);
tutti_status comm_dup(struct tutti_comm *parent, struct tutti_comm **copy);
tutti_status comm_create_from(struct tutti_comm *parent, const int *ranks, int n, int tag,
			      const tutti_config *config, struct tutti_comm **child);
tutti_status comm_shrink(struct tutti_comm *comm, struct tutti_comm **survivors);
tutti_status comm_grow(struct tutti_comm *comm, int size, const tutti_config *config,
		       struct tutti_comm **grown);
tutti_status comm_agree(struct tutti_comm *comm, int *flag);

/* recover.c: *comm is always a communicator, the old one or one in its place. */
tutti_status comm_recover(struct tutti_comm **comm, int size);

/* The config that comm was made with, for one more like it. Its texts are comm's. */
tutti_config comm_config(const struct tutti_comm *comm);
/* NULL is fine. Works in flight end first. */
void comm_free(struct tutti_comm *comm);

/* call.c: issues one call whose arguments were checked, between comm_enter and comm_leave. */
tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call);
/* Whether comm_call would refuse it, without making the call. */
tutti_status comm_check_call(const struct tutti_comm *comm, const struct call_args *args);
/* Enters, calls and leaves. */
tutti_status comm_call_alone(struct tutti_comm *comm, struct call_args *args,
			     const tutti_call *call);
/* Whether what goes into stream goes into a graph, and comm can have sends and receives there.
 * Those of a group are checked, and issued, together. */
bool comm_captures(const struct tutti_comm *comm, void *stream);
tutti_status comm_check_captured(const struct tutti_comm *comm,
				 const struct task_spec *const *messages, size_t n, void *stream);
tutti_status comm_call_captured(struct tutti_comm *comm, const struct task_spec *const *messages,
				size_t n, const tutti_call *call);
#define MESSAGES_AT_ONCE 16
struct comm_message {
	const struct send_recv *message;
	const char *label; /* or NULL */
	bool is_over;
};
/* Completes blocking messages of a group, at most MESSAGES_AT_ONCE, which were checked, in the
 * calling thread: sends first, then recvs, up to the first that needs a work. Sets is_over of those
 * that are complete. It enters and leaves by itself. */
void comm_messages_at_once(struct tutti_comm *comm, struct comm_message *messages, size_t n);
struct task_spec comm_message_spec(const struct send_recv *m);
/* Issues a checked send or recv. It enters and leaves by itself. */
tutti_status comm_call_message(struct tutti_comm *comm, const struct send_recv *m,
			       const tutti_call *call);

/* One thread at a time is between comm_enter and comm_leave: INVALID, with a message that
 * begins with name, while another thread is. A blocking call leaves when it returns (and sets
 * is_issuing to 2 before it waits), an asynchronous one when it is submitted. A callback may run
 * before its own call's submission has returned: it waits for that, which is short. */
tutti_status comm_enter_slowly(struct tutti_comm *comm, const char *name);
static inline tutti_status comm_enter(struct tutti_comm *comm, const char *name)
{
	int nobody = 0;

	if (__builtin_expect(
		    atomic_compare_exchange_strong_explicit(&comm->calls.is_issuing, &nobody, 1,
							    memory_order_acquire,
							    memory_order_relaxed),
		    1))
		return TUTTI_OK;
	return comm_enter_slowly(comm, name);
}
static inline void comm_leave(struct tutti_comm *comm)
{
	atomic_store_explicit(&comm->calls.is_issuing, 0, memory_order_release);
}
static inline int comm_timeout_ms(const struct tutti_comm *comm, const tutti_call *call)
{
	return call && call->timeout_ms ? call->timeout_ms : comm->settings.timeout_ms;
}
/* This rank has no memory for the call that it is in, which the other ranks make and would wait
 * for: the communicator fails, with the thread's last error message. */
void comm_lacks_memory(struct tutti_comm *comm);

/* routes.c: frees the plans that calls have asked for. */
void plan_cache_free(struct tutti_comm *comm);

#endif
