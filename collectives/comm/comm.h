/* A communicator: who its ranks are, how they reach each other, its engine and its plans. */
#ifndef COLLECTIVES_COMM_COMM_H
#define COLLECTIVES_COMM_COMM_H

#include "collectives/control/consensus.h"
#include "collectives/engine/engine.h"
#include "collectives/trace/recorder.h"
#include "collectives/select/select.h"
#include "collectives/trace/trace.h"
#include "core/env.h"
#include "core/status.h"
#include "transport/registry.h"

#include <stdatomic.h>

#define HOST_ID_BYTES 96

/* What a rank tells the others when it joins. All ranks lay it out alike: same library, same
 * machine word order, checked by version. */
struct member_address {
	char transport[16];
	uint32_t bytes;
	uint8_t address[TUTTI_ADDRESS_BYTES];
};
struct member {
	struct cpu_location cpu_location;
	struct wait_cpus cpus; /* that it may use                                       */
	char version[16], host_id[HOST_ID_BYTES];
	char host[64]; /* its name, for sentences                                */
	int64_t window, window_bytes, scratch_bytes, slice_bytes, checksum, tls, reconnect,
		deterministic;
	char algo[256], transports[64];
	int32_t status; /* of this rank's preparations                           */
	uint32_t addresses;
	struct member_address address[TRANSPORTS_MAX];
	struct member_address control, consensus; /* for the control ring; see consensus.h */
};

/* A built plan, kept for the communicator's life. */
struct cached_plan {
	struct cached_plan *next;
	struct plan *plan;
	int root;
	bool in_place;
	struct plan_options options;
};

#define COMM_ALGORITHMS_MAX 64

struct tutti_comm {
	int rank, size, local_rank, local_size, node_rank, num_nodes;
	int ranks_on_host;         /* the job's ranks on this node: how many threads may wait here, in
			    * this communicator and in its relatives, at the same time     */
	struct cpu_location near[CPU_LOCATIONS_MAX]; /* the ranks of this node, where they might be
						   * spread by them: ranks_near_count of them */
	int ranks_near_count;
	int cores;         /* that the ranks_on_host may use together                              */
	int *parent_ranks; /* by rank, in the communicator it came from; NULL: from none   */
	int parent_rank;   /* ours, while a job grows; -1: none                            */
	uint64_t id[2];
	uint8_t key[TUTTI_KEY_BYTES];
	struct env env; /* its texts are our own: children are made from them         */
	int timeout_ms;
	bool deterministic;
	char *filter; /* of transports, or NULL                                       */
	char host_id[HOST_ID_BYTES];
	const struct tutti_transport *transports[TRANSPORTS_MAX];
	struct tutti_endpoint *endpoints[TRANSPORTS_MAX];
	int endpoint_count;
	struct tutti_endpoint *control_endpoint; /* until the control ring has it        */
	struct control_peer *peers;              /* all ranks, by it                     */
	struct consensus *consensus;
	uint32_t consensus_calls;   /* of tutti_comm_shrink and _agree                         */
	/* Of communicators that this one comes from, where a rank was left behind that may come back:
	 * as long as this one lives it must not take them for deserted. */
	struct consensus **ancestors;
	int ancestor_count;
	uint32_t kinds_in_place; /* memory that every transport in use reads and writes   */
	struct route *routes;    /* only while joining                                    */
	struct window *window;   /* the engine's, once there is one                       */
	bool may_window;
	int window_refusal;      /* -1, or by which the others learn that this rank has none  */
	struct engine *engine;
	struct select select;
	struct cached_plan *plans[COMM_ALGORITHMS_MAX];
	size_t *packed[2]; /* by side: the offsets of a v-variant called with NULL for them */
	bool has_links;      /* select.links were in TUTTI_LINKS, on all ranks              */
	int partners[LINKS]; /* with whom this rank measures its links; -1: nobody          */
	struct nodes nodes; /* what select.nodes points to                                  */
	_Atomic uint64_t sequence; /* collectives issued                                    */
	struct recorder *recorder, *own_recorder; /* what they were; own: not the window's   */
	struct trace *trace;       /* the same calls and messages, with times, for others' eyes */
	uint32_t fingerprint;      /* of the latest and all before it; 0: none yet          */
	atomic_int is_issuing;     /* a thread is in a call: 1, or 2 when it waits there    */
	atomic_uint aborts;        /* how often tutti_comm_abort was called                 */
	unsigned aborts_before;    /* the call that recovers, which they do not concern     */
};

/* init.c: INVALID and UNSUPPORTED what no communicator can have. */
tutti_status comm_check_config(const tutti_config *config);

/* join.c, describe.c, meet.c: make a communicator in steps, so that ranks of one process can take them
 * together. */
tutti_status comm_new(struct tutti_comm **comm, const tutti_config *config, const struct env *env,
		      int rank, int size);
tutti_status comm_describe(struct tutti_comm *comm, struct member *member);
/* members in rank order. Finds nodes and routes; INVALID when settings disagree. */
tutti_status comm_meet(struct tutti_comm *comm, const struct member *members);
struct window_config comm_window_config(struct tutti_comm *comm);
/* Where the ranks may have a window: opens it. Who cannot goes on with messages, so this cannot fail. The ranks
 * have all said that they come: it waits for them for half of what is left, and for 10 s at most, or until
 * is_over(arg) (may be NULL). Then the ranks agree whether all have it, and it is kept, or is given up. */
void comm_open_window(struct tutti_comm *comm, uint64_t deadline_ns, bool (*is_over)(void *arg),
		      void *arg);
void comm_keep_window(struct tutti_comm *comm, bool all_have_it);
/* What sentence says behind "rank 3" or "Rank 3", if it begins with that rank; else NULL. Who tells the others whose
 * sentence it is does not say the name twice. */
const char *comm_behind_name(const char *sentence, int rank);
tutti_status comm_start(struct tutti_comm *comm);
/* After comm_start of all ranks of this process, and before anybody is told that the communicator is there:
 * returns when the control ring is up. Nothing where there is a window. */
tutti_status comm_connect(struct tutti_comm *comm, uint64_t deadline_ns);
/* The same, but given up soon when is_over(arg). */
tutti_status comm_connect_unless(struct tutti_comm *comm, uint64_t deadline_ns,
				 bool (*is_over)(void *arg), void *arg);
/* Connections, endpoints, window: all that others could wait for. The last error stays. */
void comm_close(struct tutti_comm *comm);
void comm_free(struct tutti_comm *comm);
/* child, which has none yet, comes from comm: holds its ancestors, and its consensus if that misses a rank. */
tutti_status comm_keep_ancestors(struct tutti_comm *child, const struct tutti_comm *comm);

/* call.c: issues one validated call. INVALID when another thread is issuing on comm. */
tutti_status comm_call(struct tutti_comm *comm, struct call_args *args, const tutti_call *call);
/* Waits for the job here, or hands out its work: as call says. */
tutti_status comm_start_job(struct tutti_comm *comm, const struct job_spec *spec,
			    const tutti_call *call);
/* p2p_call.c: the same for a send or recv. */
tutti_status p2p_issue(struct tutti_comm *comm, struct job_spec *spec, const tutti_call *call);
/* Around whatever else issues on comm: INVALID, with a sentence that begins with name, while another thread
 * does. A blocking call leaves when it returns (and sets is_issuing to 2 before it waits), an
 * asynchronous one when it is submitted. A callback waits for a submission, which is short: it may be called
 * before its own call's submission has returned. */
tutti_status comm_enter(struct tutti_comm *comm, const char *name);
void comm_leave(struct tutti_comm *comm);
/* The same around a call that works on a failed communicator too: who waits in between, this thread, goes on until the
 * communicator is aborted again (core/cancel.h). */
tutti_status comm_enter_recovery(struct tutti_comm *comm, const char *name);
void comm_leave_recovery(struct tutti_comm *comm);
/* This rank has no memory for the call that it is in, which the others make and would wait for: the
 * communicator fails, with the thread's last sentence. Not in a group, whose calls come at its end or not at all. */
void comm_lacks_memory(struct tutti_comm *comm);
/* comm_call in between: for what is made of several calls. */
tutti_status comm_issue(struct tutti_comm *comm, struct call_args *args, const tutti_call *call);

/* agree.c: puts question to the ranks of comm that still take part, see consensus.h: of a call's, all are its own of these
 * and a multiple of 4. Fills in number, has_ended and arg, which is comm for wait as well. */
enum { CALL_AGREE, CALL_SHRINK, CALL_GROW };
tutti_status comm_ask(struct tutti_comm *comm, struct consensus_question *question, uint32_t which,
		      uint8_t *marks, void *records);

/* alloc.c: tutti_mem_alloc where ranks share no window */
tutti_status private_alloc(void **ptr, size_t bytes);
tutti_status private_free(void *ptr);

#endif
