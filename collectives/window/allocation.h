/* One shared allocation of tutti_mem_alloc. The list of all is in allocations.c, under its lock. */
#ifndef COLLECTIVES_WINDOW_ALLOCATION_H
#define COLLECTIVES_WINDOW_ALLOCATION_H

#include "collectives/window/window_internal.h"

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

#endif
