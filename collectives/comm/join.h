/* Inside comm/: the steps by which ranks make a communicator, and what they tell each other for
 * that. */
#ifndef COLLECTIVES_COMM_JOIN_H
#define COLLECTIVES_COMM_JOIN_H

#include "collectives/comm/comm.h"
#include "collectives/window/window.h"
#include "core/wait.h"

/* What a rank tells the others when it joins. All ranks have the same layout of it: the version is
 * checked. */
struct member_address {
	char transport[16];
	uint32_t bytes;
	uint8_t address[TUTTI_ADDRESS_BYTES];
};
struct member {
	struct cpu_location cpu_location;
	struct wait_cpus cpus; /* that it may use                                       */
	char version[16], host_id[HOST_ID_BYTES];
	char host[64]; /* its name, for messages                                */
	int64_t window, window_bytes, scratch_bytes, slice_bytes, checksum, tls, reconnect,
		deterministic;
	char algo[256], transports[64];
	int32_t status; /* how its preparations ended                            */
	uint32_t addresses;
	struct member_address address[TRANSPORTS_MAX];
	struct member_address control, consensus; /* for the control ring; see consensus.h */
};

/* init.c: INVALID and UNSUPPORTED what no communicator can have. */
tutti_status comm_check_config(const tutti_config *config);

/* comm.c, describe.c and topology.c: make a communicator in steps, so that ranks of one process can
 * take them together. */
tutti_status comm_new(struct tutti_comm **comm, const tutti_config *config, const struct env *env,
		      int rank, int size);
tutti_status comm_describe(struct tutti_comm *comm, struct member *member);
/* members in rank order. Finds nodes and routes; INVALID when settings disagree. */
tutti_status comm_meet(struct tutti_comm *comm, const struct member *members);
struct window_config comm_window_config(struct tutti_comm *comm);
/* Opens the window, if the ranks may have one. This cannot fail: without a window there are
 * messages. All ranks have said that they come, so it waits for them for half of the time left, for
 * 10 s at most, or until is_over(arg) (may be NULL). Then the ranks agree whether all have it, and
 * comm_keep_window keeps it or closes it. */
void comm_open_window(struct tutti_comm *comm, uint64_t deadline_ns, bool (*is_over)(void *arg),
		      void *arg);
void comm_keep_window(struct tutti_comm *comm, bool all_have_it);
tutti_status comm_start(struct tutti_comm *comm);
/* After comm_start of all ranks of this process, and before other ranks are told that the
 * communicator is there: returns when the control ring is up. Does nothing with a window. */
tutti_status comm_connect(struct tutti_comm *comm, uint64_t deadline_ns);
/* The same, but fails soon after is_over(arg). */
tutti_status comm_connect_unless(struct tutti_comm *comm, uint64_t deadline_ns,
				 bool (*is_over)(void *arg), void *arg);
/* Closes connections, endpoints and window: all that others could wait for. The last error stays.
 */
void comm_close(struct tutti_comm *comm);
/* child, which has no ancestors yet, comes from comm: it holds comm's, and comm's consensus if that
 * misses a rank. */
tutti_status comm_keep_ancestors(struct tutti_comm *child, const struct tutti_comm *comm);

#endif
