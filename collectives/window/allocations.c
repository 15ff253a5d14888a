/* The shared allocations of this process: each one memfd with a region for each rank, mapped whole
 * by every process. How ranks agree on a new one is in window_alloc.c.
 *
 * They are known by address (memory_find, on the way of every long call)
 * and by id (memory_base). An allocation stays mapped here until every rank has freed its region:
 * until then another rank may still say "my buffer is in there", and all must agree that all can
 * reach it. What is freed gives its pages back at once; what remains is address space. */
#include "collectives/window/allocations.h"

#include "collectives/window/shared_memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* At the end of the memfd, one for each rank: whether the rank still uses its region. */
struct control {
	_Atomic uint32_t is_freed;
	int32_t pid;
	uint64_t pid_space; /* pids of different spaces do not compare              */
};

struct allocation {
	struct allocation *next;
	uint64_t id;
	uint8_t *base;
	size_t bytes, stride;
	int size, owned; /* owned: regions of this process not yet freed         */
	bool *is_own;
	bool is_withdrawn;   /* own regions are private now: never published again    */
	uint64_t *processes; /* by rank: the process that has it mapped              */
	struct control *control;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations; /* under lock, in the order of addresses */

/* Under lock. */
static void allocation_table_write(void)
{
	uint32_t count = 0;

	allocation_table_begin();
	for (struct allocation *a = allocations; a; a = a->next) {
		uintptr_t first = (uintptr_t)a->base;
		if (a->owned > 0 && !a->is_withdrawn)
			allocation_table_add(
				count++,
				(struct allocation_entry){
					first, first + a->stride * (size_t)a->size, a->id});
	}
	allocation_table_end(count);
}

/* ---- by id ----------------------------------------------------------------------------- */

static bool has_process(const struct allocation *a, uint64_t process)
{
	for (int rank = 0; rank < a->size; rank++) {
		if (a->processes[rank] == process)
			return true;
	}
	return false;
}

static uint8_t *base_for(const struct window *w, uint64_t id)
{
	struct allocation *a = allocations;

	while (a && a->id != id)
		a = a->next;
	for (int rank = 0; a && rank < w->size; rank++) {
		if (!has_process(a, w->at.areas[rank].process))
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

/* ---- allocations ----------------------------------------------------------------------- */

static uint64_t pid_space(void)
{
	struct stat st;
	return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

static size_t stride_of(size_t bytes)
{
	size_t unit = bytes >= 1u << 20 ? 2u << 20 : 4096;
	return bytes ? (bytes + unit - 1) / unit * unit : unit;
}

static void allocation_free(struct allocation *a)
{
	if (!a)
		return;
	if (a->base)
		munmap(a->base, a->bytes);
	free(a->is_own);
	free(a->processes);
	free(a);
}

size_t memory_total(const struct window *w, size_t bytes)
{
	size_t page = 4096, control = (size_t)w->size * sizeof(struct control);

	return stride_of(bytes) * (size_t)w->size + (control + page - 1) / page * page;
}

static struct allocation *allocation_new(const struct window *w, uint64_t id, size_t bytes)
{
	struct allocation *a = calloc(1, sizeof *a);
	size_t n = (size_t)w->size;

	if (!a)
		return NULL;
	a->id = id;
	a->size = w->size;
	a->stride = stride_of(bytes);
	a->bytes = memory_total(w, bytes);
	a->is_own = calloc(n, sizeof *a->is_own);
	a->processes = calloc(n, sizeof *a->processes);
	if (!a->is_own || !a->processes) {
		allocation_free(a);
		return NULL;
	}
	for (int rank = 0; rank < w->size; rank++)
		a->processes[rank] = w->at.areas[rank].process;
	return a;
}

/* Under lock. Keeps the list, and so the table, in the order of addresses. */
static tutti_status insert(struct allocation *a)
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

static void own(struct allocation *a, int rank)
{
	a->is_own[rank] = true;
	a->owned++;
	a->control[rank].pid = (int32_t)getpid();
	a->control[rank].pid_space = pid_space();
	allocation_table_write();
}

static uint8_t *region_of(const struct allocation *a, int rank)
{
	return a->base + (size_t)rank * a->stride;
}

static bool is_gone(const struct allocation *a, int rank)
{
	const struct control *c = &a->control[rank];

	if (atomic_load(&c->is_freed))
		return true;
	return c->pid > 0 && c->pid_space && c->pid_space == pid_space() && kill(c->pid, 0) != 0 &&
	       errno == ESRCH;
}

/* Under lock: unmaps what no rank uses any more. */
static void reap(void)
{
	struct allocation **at = &allocations;

	while (*at) {
		struct allocation *a = *at;
		int rank = 0;
		while (rank < a->size && is_gone(a, rank))
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
static void disown(struct allocation *a, int rank)
{
	uint8_t *region = region_of(a, rank);

	a->is_own[rank] = false;
	a->owned--;
	madvise(region, a->stride, MADV_REMOVE);
	if (a->owned == 0)
		mprotect(region, a->stride, PROT_NONE);
	atomic_store(&a->control[rank].is_freed, 1);
	allocation_table_write();
	reap();
}

tutti_status memory_map(struct window *w, struct window_run *run, int fd)
{
	struct allocation *a = allocation_new(w, run->memory_id, run->args.count);
	tutti_status status;
	void *base;

	if (!a)
		return fail(TUTTI_ERR_MEMORY, "No memory to record a shared allocation.");
	status = shared_map(fd, a->bytes, &base);
	if (status == TUTTI_OK) {
		a->base = base;
		a->control = (struct control *)(void *)region_of(a, a->size);
		run->memory = region_of(a, w->rank);
		pthread_mutex_lock(&lock);
		reap();
		status = insert(a);
		if (status == TUTTI_OK)
			own(a, w->rank);
		pthread_mutex_unlock(&lock);
	}
	if (status != TUTTI_OK)
		allocation_free(a);
	return status;
}

bool memory_adopt(struct window *w, struct window_run *run)
{
	struct allocation *a;

	pthread_mutex_lock(&lock);
	for (a = allocations; a && a->id != run->memory_id; a = a->next)
		;
	if (a) {
		own(a, w->rank);
		run->memory = region_of(a, w->rank);
	}
	pthread_mutex_unlock(&lock);
	return a != NULL;
}

/* Under lock. */
static void discard(uint64_t id)
{
	for (struct allocation **at = &allocations; *at; at = &(*at)->next) {
		struct allocation *a = *at;
		if (a->id == id) {
			*at = a->next;
			allocation_free(a);
			break;
		}
	}
	allocation_table_write();
}

void memory_discard(uint64_t id)
{
	pthread_mutex_lock(&lock);
	discard(id);
	pthread_mutex_unlock(&lock);
}

static struct allocation *find_region(const void *ptr, int *rank)
{
	for (struct allocation *a = allocations; a; a = a->next) {
		for (int r = 0; r < a->size; r++) {
			if (a->is_own[r] && region_of(a, r) == ptr) {
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
		disown(a, rank);
	pthread_mutex_unlock(&lock);
	if (!a)
		return fail(TUTTI_ERR_INVALID,
			    "tutti_mem_free: %p is not what tutti_mem_alloc returned here.", ptr);
	return TUTTI_OK;
}

/* ---- after a failure ------------------------------------------------------------------- */

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
		disown(a, rank);
	if (last)
		discard(last);
	pthread_mutex_unlock(&lock);
}

/* The same bytes at the same address, but in private memory. */
static tutti_status make_private(uint8_t *region, size_t bytes)
{
	void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return fail_errno("Taking %zu bytes of shared memory back", bytes);
	memcpy(copy, region, bytes);
	madvise(region, bytes, MADV_REMOVE); /* the shared pages are needed no more */
	if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, region) == MAP_FAILED)
		return fail_errno("Taking %zu bytes of shared memory back", bytes);
	return TUTTI_OK;
}

static bool is_shared_with(const struct allocation *a, const struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		uint64_t process = w->at.areas[rank].process;
		if (process != process_token() && has_process(a, process))
			return true;
	}
	return false;
}

tutti_status window_mem_withdraw(struct window *w)
{
	tutti_status status = TUTTI_OK;

	pthread_mutex_lock(&lock);
	for (struct allocation *a = allocations; a; a = a->next) {
		if (a->is_withdrawn || !is_shared_with(a, w))
			continue;
		a->is_withdrawn = true;
		for (int rank = 0; rank < a->size && status == TUTTI_OK; rank++) {
			if (a->is_own[rank])
				status = make_private(region_of(a, rank), a->stride);
		}
	}
	allocation_table_write();
	pthread_mutex_unlock(&lock);
	return status;
}
