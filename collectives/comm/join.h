/* Inside comm/: the steps by which ranks make a communicator, and what they tell each other for that. */
#ifndef COLLECTIVES_COMM_JOIN_H
#define COLLECTIVES_COMM_JOIN_H

#include "collectives/comm/comm.h"
#include "collectives/window/window.h"
#include "core/wait.h"

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

/* init.c: INVALID and UNSUPPORTED what no communicator can have. */
tutti_status comm_check_config(const tutti_config *config);

/* comm.c, describe.c and topology.c: make a communicator in steps, so that ranks of one process can take them
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
/* child, which has none yet, comes from comm: holds its ancestors, and its consensus if that misses a rank. */
tutti_status comm_keep_ancestors(struct tutti_comm *child, const struct tutti_comm *comm);

#endif
