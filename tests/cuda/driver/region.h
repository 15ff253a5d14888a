/* Which addresses are memory, and whose. Device memory is mapped twice: at its user address, where
 * the CPU may not touch it, and at a shadow address, which copies and kernels use. */
#ifndef TESTS_CUDA_REGION_H
#define TESTS_CUDA_REGION_H

#include "tests/cuda/driver/driver.h"

enum region_kind {
	REGION_ALLOCATED, /* cuMemAlloc                            */
	REGION_HOST,      /* cuMemHostAlloc: the shadow is itself  */
	REGION_IPC,       /* cuIpcOpenMemHandle                    */
	REGION_MAPPED,    /* cuMemMap                              */
	REGION_MULTICAST, /* the same, of a multicast object: no shadow, and only multimem reaches it */
};

struct region {
	uintptr_t user;
	size_t bytes;
	char *shadow;
	enum region_kind kind;
	int gpu;
	CUcontext context; /* NULL: mapped */
	unsigned access;   /* bits of devices; for allocated memory, their contexts' peers count */
	uint64_t id;
	void *owner; /* what its kind keeps of it */
	bool is_exported; /* as a dma-buf         */
};

/* All with the lock. The table owns the regions. */
struct region *region_add(const struct region *like);
void region_remove(struct region *region); /* and frees it */
struct region *region_find(CUdeviceptr address);
struct region *region_next(uintptr_t from); /* the first that begins there or later, or NULL */

/* Addresses at which nothing but device memory can be. */
void region_reserve(uintptr_t user, size_t bytes);
void region_unreserve(uintptr_t user);
size_t region_reserved(uintptr_t user); /* bytes of the reservation that begins here, or 0 */
bool region_is_reserved(CUdeviceptr address);

/* Where the driver reaches [address, address + bytes) from that device; NULL: it may not. With the
 * lock. Other memory of the process, which only copies reach, has no region: see region_find. */
char *region_reach(int gpu, CUdeviceptr address, size_t bytes);

/* Changes whenever a region goes or is protected: what a thread remembers of regions is stale then. */
uint64_t region_generation(void);
void region_forget(void);

/* Shadow mappings go when no copy and no kernel runs that may still use them. With the lock. */
void region_retire(char *shadow, size_t bytes);
void region_work_begins(void);
void region_work_ends(void);

/* Reserves device memory of that many bytes by count; false: there is not so much. With the lock. */
bool memory_take(int gpu, size_t bytes);
void memory_give(int gpu, size_t bytes);
/* New memory is not clear. */
void memory_spoil(char *memory, size_t bytes);
/* Clears much memory by giving back its pages, which are clear when they come again; false: it does
 * not, since it is not so much, or of another kind, or a dma-buf has them. With the lock. */
bool memory_clear(const struct region *region, char *shadow, size_t bytes);

/* Waits for all work of this context that has been enqueued. With the lock. */
void context_wait(CUcontext context);
/* Frees what was allocated in the context. With the lock. */
void memory_free_all(CUcontext context);

#endif
