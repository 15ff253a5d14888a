/* Calls of ranks whose GPUs reach each other's memory: by kernels that meet, or take turns where
 * processes share a GPU, and across nodes with messages between; docs/cuda.md has which call goes
 * which way. The host starts the kernels and looks on. */
#ifndef COLLECTIVES_DEVICE_DEVICE_H
#define COLLECTIVES_DEVICE_DEVICE_H

#include "collectives/engine/engine.h"
#include "collectives/plan/plan.h"
#include "cuda/channels.h"
#include "cuda/regions.h"

/* A rank's part of it; not NULL where all ranks have one. */
struct device;

/* The ordinal of this rank's GPU, which is named (or -1: the one that is current); -1: none. */
int device_wanted(int ordinal);

struct device_config {
	int most;             /* so many ranks at the most                                    */
	int ordinal;          /* of a CUDA device; -1: the one that is current in this thread */
	bool is_deterministic; /* config.deterministic                                        */
	bool opens_buffers;    /* TUTTI_CUDA_IPC                                               */
	size_t staging_bytes; /* of each rank, for buffers that the others do not map         */
};

/* Opens this rank's part and describes it to the others. Without one, which is no failure, *device
 * is NULL and part says so. */
void device_open(struct device **device, struct cuda_part *part,
		 const struct device_config *config);
int device_ordinal(const struct device *device);
/* With the parts of all ranks; or, in a communicator of several nodes, with those of this rank's
 * node, which are a group of its ranks. nodes: NULL for one node; they outlive the device. false:
 * there is no way; the log says why. */
bool device_connect(struct device *device, const struct cuda_part *parts, struct group ranks,
		    const struct nodes *nodes);
/* For struct engine_device; of a communicator of `size` ranks. NULL: no memory for it. */
const struct engine_stages *device_stages(struct device *device, int size);
/* How many blocks this rank's kernels may have, as a bit mask: the bitwise and of all ranks' masks
 * stands for the smallest number. */
uint32_t device_levels(const struct device *device);
/* Limits the blocks to those of all ranks; levels: the bitwise and of their masks. Before the first
 * call. */
void device_agree(struct device *device, uint32_t levels);
/* NULL is fine. After the engine. */
void device_close(struct device *device);

/* tutti_mem_alloc's memory of this rank's GPU: made, then shared in steps by those who have part.
 * regions: of all ranks of the communicator. As cuda_region_alloc and _step. */
tutti_status device_mem_alloc(struct device *device, const struct cuda_region_wish *wish,
			      void **ptr, struct cuda_region *region);
tutti_status device_mem_step(struct device *device, const struct cuda_region *regions,
			     struct cuda_region *own);
/* From any thread. false: it is no such memory. */
bool device_mem_free(void *ptr);
/* Why that memory has no multicast, without a full stop; NULL: it has. */
const char *device_no_multicast(const struct device *device);

/* Whether it serves this call on the cuda kind's memory: depends on what all ranks agree on. Of a
 * call without elements, and a barrier, only if it goes into a graph. */
bool device_serves(const struct device *device, const struct call_args *args);
bool device_serves_captured(const struct device *device, const struct call_args *args);
/* Whether the ranks of a node do their part of it there: the plan two_level of its pattern does the
 * rest. */
bool device_serves_across(const struct device *device, const struct call_args *args);
/* Whether this rank may make the call, in this stream: INVALID. */
tutti_status device_check(const struct device *device, const struct call_args *args,
			  const tutti_call *call);

/* For struct engine_device. After a failure the kernels of this rank end, and none touches a buffer
 * afterwards. */
void device_fail(void *device);
bool device_runs(void *device, uint64_t *ended);
bool device_differs(void *device, char *text, size_t text_bytes);

/* Tasks whose spec has a device: the second with a plan of two_level whose option across is set. */
extern const struct task_kind device_tasks, device_across_tasks;

/* Sends and receives go by a kernel where they are captured into a graph, all of a group by one:
 * a kernel that waits for its receiver would keep the others of this rank behind it. */
bool device_captures(const struct device *device, void *stream);
/* Whether the ranks of a node take turns, since processes share a GPU. */
bool device_takes_turns(const struct device *device);
/* Whether kernels of all ranks meet: no others are captured. */
bool device_meets(const struct device *device);
/* Of messages that are captured together, by kernels or not: INVALID. */
tutti_status device_check_captured(const struct task_spec *const *messages, size_t n);
/* Whether this rank may capture these, whose specs have buffers, peers and tags: INVALID. */
tutti_status device_check_messages(const struct device *device,
				   const struct task_spec *const *messages, size_t n,
				   void *stream);
/* A task whose spec has a device and messages. It is over when it has begun. */
extern const struct task_kind device_message_tasks;

#endif
