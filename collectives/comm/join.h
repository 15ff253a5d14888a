/* Inside comm/: the steps by which ranks make a communicator, what they tell each other for that,
 * and how those of one that has failed come together. */
#ifndef COLLECTIVES_COMM_JOIN_H
#define COLLECTIVES_COMM_JOIN_H

#include "collectives/comm/comm.h"
#include "collectives/control/control.h"
#include "collectives/device/device.h"
#include "collectives/window/window.h"
#include "core/wait.h"
#include "core/join/rendezvous.h"

/* A rank's message to the others when it joins. All ranks have the same layout of it: the version
 * is checked. */
struct member_address {
	char transport[16];
	uint32_t bytes;
	uint32_t maps; /* kinds of memory that may be mapped for it: struct engine_route   */
	uint8_t address[TUTTI_ADDRESS_BYTES];
};
/* The settings that all ranks need alike: X(name, this rank's value, of env and comm). */
#define MEMBER_SETTINGS(X) \
	X("TUTTI_WINDOW", env->window) \
	X("TUTTI_WINDOW_BYTES", env->window_bytes) \
	X("TUTTI_SCRATCH_BYTES", env->scratch_bytes) \
	X("TUTTI_SLICE_BYTES", env->slice_bytes) \
	X("TUTTI_CHECKSUM", env->checksum) \
	X("TUTTI_TLS", env->tls) \
	X("TUTTI_RECONNECT", env->reconnect) \
	X("config.deterministic", comm->settings.deterministic)
#define COUNT_SETTING(name, value) +1
enum { MEMBER_SETTINGS_COUNT = 0 MEMBER_SETTINGS(COUNT_SETTING) };

struct member {
	struct cpu_location cpu_location;
	struct wait_cpus cpus; /* that it may use                                       */
	struct cuda_part gpu;  /* and how the others map its memory                     */
	char version[16], host_id[HOST_ID_BYTES];
	char host[64]; /* its name, for messages                                */
	int64_t settings[MEMBER_SETTINGS_COUNT];
	char algo[256], transports[64];
	int32_t status; /* how its preparations ended                            */
	uint32_t addresses;
	struct member_address address[TRANSPORTS_MAX];
	struct member_address control, consensus; /* for the control ring; see consensus.h */
};

/* init.c: INVALID or UNSUPPORTED if no communicator can have these settings. */
tutti_status comm_check_config(const tutti_config *config);

/* comm.c, describe.c and topology.c: make a communicator in steps, so that ranks of one process can
 * take them together. */
tutti_status comm_new(struct tutti_comm **comm, const tutti_config *config, const struct env *env,
		      int rank, int size);
tutti_status comm_describe(struct tutti_comm *comm, struct member *member);
/* Keeps the rendezvous and the secret of comm's ranks, for tutti_comm_grow. MEMORY. */
tutti_status comm_keep_origin(struct tutti_comm *comm, const struct job *job);
/* The config that the endpoints of comm are opened with. Its texts are comm's. */
struct tutti_endpoint_config comm_endpoint_config(const struct tutti_comm *comm);
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
/* Parts of comm that a rank may lack, and that are of use only if all have them: those are the & of
 * the ranks'. comm_keep keeps these, and closes the rest. The bits above are device_levels(). */
enum { HAS_WINDOW = 1, HAS_DEVICE = 2, HAS_LEVELS_SHIFT = 2 };
#define HAS_ALL UINT32_MAX
uint32_t comm_has(const struct tutti_comm *comm);
void comm_keep(struct tutti_comm *comm, uint32_t all_have);
void comm_keep_device(struct tutti_comm *comm, uint32_t all_have);
/* describe.c: opens what consensus_rest has closed, before a question. OK: it takes part. */
tutti_status comm_wake_consensus(struct tutti_comm *comm);
tutti_status comm_start(struct tutti_comm *comm);
/* After comm_start of all ranks of this process, and before other ranks are told that the
 * communicator is there: returns when the control ring is up, or fails soon after is_over(arg) (may
 * be NULL). Does nothing with a window. */
tutti_status comm_connect(struct tutti_comm *comm, uint64_t deadline_ns, bool (*is_over)(void *arg),
			  void *arg);
/* Closes connections, endpoints and window: all that others could wait for. The last error stays.
 */
void comm_close(struct tutti_comm *comm);

/* split.c: a new communicator of ranks of parent; the caller fills in parent.ranks. After an error
 * *child may be there, to be freed. */
tutti_status comm_new_child(struct tutti_comm **child, const struct tutti_comm *parent,
			    const tutti_config *config, int rank, int size);
/* Sets the id and key of child: keyed hashes of parent's id, the names and of, which are the same
 * on all ranks of child. Ranks that are not in parent cannot know them. */
void comm_derive_identity(struct tutti_comm *child, const struct tutti_comm *parent,
			  const char *key_name, const char *id_name, const void *of, size_t bytes);

/* measure.c, collective. In one node all ranks measure together. Across nodes pairs measure, all
 * at the same time: each rank with its neighbour in the node, the first ranks of nodes with each
 * other. links: this rank's measurements, 0 without a partner. Takes 2 to 10 ms on an idle
 * machine; fails as any call does. */
tutti_status measure_links(struct tutti_comm *comm, struct links *links);
/* The key of this host's links, of so many ranks on so many cores, in the file TUTTI_LINKS. Returns
 * key. */
const char *measure_key(const struct tutti_comm *comm, char *key, size_t key_bytes);

/* arrive.c: how ranks make a communicator at a rendezvous. */

/* The meeting of ranks that have arrived, until comm_conclude. */
struct arrival {
	struct rendezvous *meeting; /* NULL: it is over */
	uint64_t deadline;
};

/* Fills in comm, which is empty (comm_new), within its timeout: OK on all ranks, or an error on
 * all that have not died. parent_rank: this rank's in the communicator that grows; -1 if new. */
tutti_status comm_arrive(struct tutti_comm *comm, const struct job *job, int parent_rank,
			 struct arrival *arrival);
/* Ends the meeting, also after an error. If the communicator has grown, the old ranks (parent_rank)
 * pass what they have agreed on as decided, and get it back. New ranks pass OK, and get the error
 * if an old rank has one or is missing. So no rank has joined what the others have given up. */
tutti_status comm_conclude(struct tutti_comm *comm, struct arrival *arrival, tutti_status decided);

/* comm_describe for a new communicator: an error, too, if the files that the environment names
 * cannot be used. */
tutti_status arrive_describe(struct tutti_comm *comm, struct member *member);

/* agree.c: what tutti_comm_agree, _shrink and _grow have in common. */

/* comm_enter and comm_leave around a call that works on a failed communicator too: waits of this
 * thread in between end only when the communicator is aborted again (core/cancel.h). */
tutti_status comm_enter_recovery(struct tutti_comm *comm, const char *name, unsigned trace_kind);
void comm_leave_recovery(struct tutti_comm *comm, tutti_status status);
/* Puts question to the ranks of comm that still take part (consensus.h). which: a call adds a
 * multiple of 4 to its own number of these for each question. Fills in number, has_ended and arg,
 * which is comm for wait as well. */
enum { CALL_AGREE, CALL_SHRINK, CALL_GROW };
tutti_status comm_ask(struct tutti_comm *comm, struct consensus_question *question, uint32_t which,
		      uint8_t *marks, void *records);

#endif
