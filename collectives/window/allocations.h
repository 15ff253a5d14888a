/* The shared allocations of this process (tutti_mem_alloc). */
#ifndef COLLECTIVES_WINDOW_ALLOCATIONS_H
#define COLLECTIVES_WINDOW_ALLOCATIONS_H

#include "collectives/window/window_internal.h"

/* allocation.c: one of them. The list of all is in allocations.c, under its lock. */

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

/* How long the memfd of an allocation of bytes for each rank is. */
size_t allocation_bytes(const struct window *window, size_t bytes);
/* Of bytes for each rank of the window, not mapped yet. NULL when out of memory. */
struct allocation *allocation_new(const struct window *window, uint64_t id, size_t bytes);
void allocation_free(struct allocation *allocation); /* unmaps it, too; NULL is fine */
/* Rank's region is this process's from now on. */
void allocation_own(struct allocation *allocation, int rank);
bool allocation_has_process(const struct allocation *allocation, uint64_t process);
/* Whether another process with a rank of the window has it mapped. */
bool allocation_is_shared(const struct allocation *allocation, const struct window *window);
/* Whether rank has freed its region, or its process has ended. */
bool allocation_is_gone(const struct allocation *allocation, int rank);
/* The same bytes at the same address, but in private memory. */
tutti_status allocation_make_private(uint8_t *region, size_t bytes);

static inline uint8_t *allocation_region(const struct allocation *a, int rank)
{
	return a->base + (size_t)rank * a->stride;
}

struct reach {
	uint64_t id; /* 0 if it is in no allocation */
	uint64_t offset;
};
/* allocation_table.c: the allocation in which ptr lies. From any thread, without a lock. */
struct reach memory_find(const void *ptr, size_t bytes);
#define ALLOCATIONS_MAX 1024u
/* Writes the table anew, from a list in the order of addresses. Its callers take turns. */
void allocation_table_write(const struct allocation *list);

/* Where this process sees allocation id, when every rank of this window does; else NULL. */
uint8_t *memory_base(struct window *window, uint64_t id);
/* For allocation run->memory_id: maps it from fd, unless another rank of this process has; forgets
 * it, when some rank could not map it. run->memory is this rank's region afterwards. */
tutti_status memory_take(struct window *window, struct window_run *run, int fd);
void memory_discard(uint64_t id);

/* window_alloc.c: a run of COLL_MEM_ALLOC goes its path. */
void memory_begin(struct window *window, struct window_run *run);

/* allocation.c: a random word that tells this process from all others, and where it lies. */
uint64_t process_token(void);
uint64_t process_token_at(void);

#endif
