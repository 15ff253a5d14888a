/* The shared allocations of this process (tutti_mem_alloc). */
#ifndef COLLECTIVES_WINDOW_ALLOCATIONS_H
#define COLLECTIVES_WINDOW_ALLOCATIONS_H

#include "collectives/window/window_internal.h"

struct reach {
	uint64_t id; /* 0 if it is in no allocation */
	uint64_t offset;
};
/* allocation_table.c: the allocation in which ptr lies. From any thread, without a lock. */
struct reach memory_find(const void *ptr, size_t bytes);
/* Writes the table anew. Its callers take turns. */
struct allocation_entry {
	uintptr_t first, end;
	uint64_t id;
};
#define ALLOCATIONS_MAX 1024u
void allocation_table_begin(void);
/* In the order of addresses. */
void allocation_table_add(uint32_t i, struct allocation_entry entry);
void allocation_table_end(uint32_t count);

/* Where this process sees allocation id, when every rank of this window does; else NULL. */
uint8_t *memory_base(struct window *window, uint64_t id);
/* For allocation run->memory_id: maps it from fd; finds it mapped by another rank of this process;
 * forgets it, when some rank could not map it. run->memory is this rank's region afterwards. */
tutti_status memory_map(struct window *window, struct window_run *run, int fd);
bool memory_adopt(struct window *window, struct window_run *run);
void memory_discard(uint64_t id);

/* window_alloc.c: a run of COLL_MEM_ALLOC goes its path. */
void memory_begin(struct window *window, struct window_run *run);

/* allocation.c: a random word that tells this process from all others, and where it lies. */
uint64_t process_token(void);
uint64_t process_token_at(void);

#endif
