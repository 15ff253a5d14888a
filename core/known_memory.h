/* Host memory whose lifetime this process knows: blocks of tutti_mem_alloc, and memory that the
 * caller names by tutti_mem_register. A fabric registers a block with its devices once, and not in
 * each call. Any thread may call these functions.
 *
 * (Two other lists answer other questions: collectives/window/allocations.c which shared allocation
 * a pointer lies in, for all ranks alike; collectives/engine/direct.c which GPU allocations, whose
 * end nobody announces, adapters have mapped.) */
#ifndef CORE_KNOWN_MEMORY_H
#define CORE_KNOWN_MEMORY_H

#include <tutti/tutti.h>

#include <stdbool.h>

#define KNOWN_MEMORY_USERS 32 /* at a time: devices of this process */

/* A device that registers known memory. Its functions run in one thread at a time, and may not call
 * the functions of this header. */
struct known_memory_user {
	/* Returns the handle of the registration; NULL: the device does without this block. */
	void *(*add)(struct known_memory_user *user, void *base, size_t bytes);
	void (*remove)(struct known_memory_user *user, void *handle);
	int slot; /* 1 to KNOWN_MEMORY_USERS; 0: it is told of nothing */
};

/* Tells all users. Blocks may overlap; of those with one base only the first counts. MEMORY: the
 * block is not known, and calls on it work as on other memory. */
tutti_status known_memory_add(void *base, size_t bytes);
/* Call it before the pages of the block go or change. A base that was not added is fine. */
void known_memory_remove(void *base);

/* Maps zeroed pages, which are not known until they are added. MEMORY, with errno. */
tutti_status known_memory_map(void **base, size_t bytes);
/* Removes and unmaps a block of known_memory_map. False: base is none of these. */
bool known_memory_unmap(void *base);

/* The user is told of the blocks that are there, and of those to come. */
void known_memory_join(struct known_memory_user *user);
/* Removes all registrations of the user. */
void known_memory_leave(struct known_memory_user *user);
/* Calls read(handle, to) with the user's handle of a block in which so many bytes at ptr lie: under
 * a lock, so that the block is not removed meanwhile. False: there is none. */
bool known_memory_read(const struct known_memory_user *user, const void *ptr, size_t bytes,
                       void (*read)(const void *handle, void *to), void *to);

#endif
