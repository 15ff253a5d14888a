/* The shared allocations of this process (tutti_mem_alloc). */
#ifndef COLLECTIVES_WINDOW_ALLOCATIONS_H
#define COLLECTIVES_WINDOW_ALLOCATIONS_H

#include "collectives/window/window_internal.h"

/* One of them. The list of all is under a lock. */

/* At the end of the memfd, one for each rank: whether the rank still uses its region. */
struct allocation_user {
	_Atomic uint32_t is_freed;
	int32_t pid;
	uint64_t pid_space; /* pids of different spaces do not compare */
};

struct allocation {
	struct allocation *next;
	uint64_t id;
	struct shared_memory *memory; /* mapped at base */
	uint8_t *base;
	size_t bytes, stride;
	int size;
	int owned; /* regions of this process that are not freed yet */
	bool *is_own;
	bool is_withdrawn;   /* own regions are private now: never published again */
	uint64_t *processes; /* by rank: the process that has it mapped */
	struct allocation_user *users;
};

static inline uint8_t *allocation_region(const struct allocation *a, int rank)
{
	return a->base + (size_t)rank * a->stride;
}

struct reach {
	uint64_t id; /* 0 if it is in no allocation */
	uint64_t offset;
};
/* The allocation in which ptr lies. From any thread, without a lock. */
struct reach memory_find(const void *ptr, size_t bytes);
#define ALLOCATIONS_MAX 1024u

/* Where this process sees allocation id, when every rank of this window does; else NULL. */
uint8_t *memory_base(struct window *window, uint64_t id);
/* For allocation run->memory_id: maps it from fd, unless another rank of this process has; forgets
 * it, when some rank could not map it. run->memory is this rank's region afterwards. */
tutti_status memory_take(struct window *window, struct window_run *run, int fd);

/* A run of COLL_MEM_ALLOC goes its path. */
void memory_begin(struct window *window, struct window_run *run);

/* A random word that tells this process from all others, and where it lies. */
uint64_t process_token(void);
uint64_t process_token_at(void);

#endif
