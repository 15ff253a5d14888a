/* The shared allocations of this process: each one memfd with a region for each rank, mapped whole
 * by every process. How ranks agree on a new one is in window_alloc.c.
 *
 * They are known by address (memory_find, on the way of every long call)
 * and by id (memory_base). An allocation stays mapped here until every rank has freed its region:
 * until then another rank may still say "my buffer is in there", and all must agree that all can
 * reach it. A freed region gives its pages back at once; its addresses stay taken. */
#include "collectives/window/allocations.h"

#include "core/long_lived.h"
#include "core/shared_memory.h"

#include <pthread.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations; /* under lock, in the order of addresses */

/* Under lock. */
static struct allocation *allocations_find(uint64_t id)
{
	struct allocation *a = allocations;

	while (a && a->id != id)
		a = a->next;
	return a;
}

static uint8_t *base_for(const struct window *w, uint64_t id)
{
	struct allocation *a = allocations_find(id);

	for (int rank = 0; a && rank < w->size; rank++) {
		if (!allocation_has_process(a, w->at.areas[rank].process))
			return NULL;
	}
	return a ? a->base : NULL;
}

uint8_t *memory_base(struct window *w, uint64_t id)
{
	size_t i = id % KNOWN_ALLOCATIONS;

	if (w->memory.known[i].id != id) {
		pthread_mutex_lock(&lock);
		w->memory.known[i].base = base_for(w, id);
		w->memory.known[i].id = id;
		pthread_mutex_unlock(&lock);
	}
	return w->memory.known[i].base;
}

struct window_place window_mem_place(const struct window *w, const void *ptr, size_t bytes)
{
	struct reach reach = memory_find(ptr, bytes);
	struct window_place place = {reach.id, reach.offset};

	return window_mem_at(w, place, bytes) ? place : (struct window_place){0, 0};
}

void *window_mem_at(const struct window *w, struct window_place place, size_t bytes)
{
	void *at = NULL;

	pthread_mutex_lock(&lock);
	struct allocation *a = allocations_find(place.allocation);
	size_t whole = a ? a->stride * (size_t)a->size : 0;
	if (bytes <= whole && place.offset <= whole - bytes && base_for(w, place.allocation))
		at = a->base + place.offset;
	pthread_mutex_unlock(&lock);
	return at;
}

/* Under lock. Keeps the list, and so the table, in the order of addresses. */
static tutti_status allocations_insert(struct allocation *a)
{
	struct allocation **at = &allocations;
	uint32_t count = 0;

	for (struct allocation *b = allocations; b; b = b->next)
		count++;
	if (count >= ALLOCATIONS_MAX)
		return fail(TUTTI_ERR_MEMORY,
			    "This process has %u shared allocations, which is the most; "
			    "tutti_mem_free frees one.",
			    count);
	while (*at && (*at)->base < a->base)
		at = &(*at)->next;
	a->next = *at;
	*at = a;
	return TUTTI_OK;
}

/* Under lock. */
static void allocations_own(struct allocation *a, int rank)
{
	allocation_own(a, rank);
	allocation_table_write(allocations);
}

/* Under lock: unmaps what no rank uses any more. */
static void allocations_reap(void)
{
	struct allocation **at = &allocations;

	while (*at) {
		struct allocation *a = *at;
		int rank = 0;
		while (rank < a->size && allocation_is_gone(a, rank))
			rank++;
		if (a->owned > 0 || rank < a->size) {
			at = &a->next;
			continue;
		}
		*at = a->next;
		allocation_free(a);
	}
}

/* Under lock. The region's pages go back to the system for all ranks; its addresses must not be
 * used. While other ranks of this process have their own they stay valid: after a failure one of
 * those may be in the middle of a copy. */
static void allocations_disown(struct allocation *a, int rank)
{
	uint8_t *region = allocation_region(a, rank);

	a->is_own[rank] = false;
	a->owned--;
	madvise(region, a->stride, MADV_REMOVE);
	if (a->owned == 0)
		mprotect(region, a->stride, PROT_NONE);
	atomic_store(&a->users[rank].is_freed, 1);
	allocation_table_write(allocations);
	allocations_reap();
}

/* Under lock. */
static tutti_status allocations_map(struct window *w, struct window_run *run, int fd)
{
	static const struct shared_memory_use use = {1, true};
	struct allocation *a = allocation_new(w, run->memory_id, run->args.count);
	tutti_status status;

	if (!a)
		return fail(TUTTI_ERR_MEMORY,
			    "Rank %d has no memory to record a shared allocation.", w->rank);
	status = shared_memory_open(&a->memory, fd, a->bytes, use);
	if (status == TUTTI_OK) {
		a->base = a->memory->base;
		a->users = (struct allocation_user *)(void *)allocation_region(a, a->size);
		allocations_reap();
		status = allocations_insert(a);
	}
	if (status != TUTTI_OK)
		allocation_free(a);
	return status;
}

/* Ranks of one process come here at the same time, and one of them maps it for all. */
tutti_status memory_take(struct window *w, struct window_run *run, int fd)
{
	tutti_status status = TUTTI_OK;
	struct allocation *a;

	pthread_mutex_lock(&lock);
	if (!allocations_find(run->memory_id))
		status = allocations_map(w, run, fd);
	if (status == TUTTI_OK) {
		a = allocations_find(run->memory_id);
		allocations_own(a, w->rank);
		run->memory = allocation_region(a, w->rank);
	}
	pthread_mutex_unlock(&lock);
	return status;
}

/* Under lock. */
static void allocations_discard(uint64_t id)
{
	for (struct allocation **at = &allocations; *at; at = &(*at)->next) {
		struct allocation *a = *at;
		if (a->id == id) {
			*at = a->next;
			allocation_free(a);
			break;
		}
	}
	allocation_table_write(allocations);
}

void memory_discard(uint64_t id)
{
	pthread_mutex_lock(&lock);
	allocations_discard(id);
	pthread_mutex_unlock(&lock);
}

static struct allocation *find_region(const void *ptr, int *rank)
{
	for (struct allocation *a = allocations; a; a = a->next) {
		for (int r = 0; r < a->size; r++) {
			if (a->is_own[r] && allocation_region(a, r) == ptr) {
				*rank = r;
				return a;
			}
		}
	}
	return NULL;
}

tutti_status window_mem_free(void *ptr)
{
	struct allocation *a;
	int rank = 0;

	pthread_mutex_lock(&lock);
	a = find_region(ptr, &rank);
	if (a)
		allocations_disown(a, rank);
	pthread_mutex_unlock(&lock);
	if (!a)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_mem_free: %p is not what tutti_mem_alloc returned here.", ptr);
	return TUTTI_OK;
}

/* The other ranks may never have got their regions, so the allocation does not wait for them to
 * free it. */
void window_mem_drop(void *ptr)
{
	struct allocation *a;
	uint64_t last = 0;
	int rank = 0;

	pthread_mutex_lock(&lock);
	a = ptr ? find_region(ptr, &rank) : NULL;
	if (a && a->owned == 1)
		last = a->id;
	if (a)
		allocations_disown(a, rank);
	if (last)
		allocations_discard(last);
	pthread_mutex_unlock(&lock);
}

tutti_status window_mem_withdraw(struct window *w)
{
	tutti_status status = TUTTI_OK;

	pthread_mutex_lock(&lock);
	for (struct allocation *a = allocations; a; a = a->next) {
		if (a->is_withdrawn || !allocation_is_shared(a, w))
			continue;
		a->is_withdrawn = true;
		for (int rank = 0; rank < a->size && status == TUTTI_OK; rank++) {
			if (!a->is_own[rank])
				continue;
			long_lived_remove(allocation_region(a, rank));
			status = allocation_make_private(allocation_region(a, rank), a->stride);
		}
	}
	allocation_table_write(allocations);
	pthread_mutex_unlock(&lock);
	return status;
}
