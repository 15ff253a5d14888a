/* The shared allocations of this process: each one memfd with a region for each rank, mapped whole
 * by every process; and the run in which ranks agree on a new one.
 *
 * They are known by address (memory_find, on the way of every long call) and by id (memory_base).
 * An allocation stays mapped here until every rank has freed its region: until then another rank
 * may still say "my buffer is in there", and all must agree that all can reach it. A freed region
 * gives its pages back at once; its addresses stay taken. */
#include "collectives/window/allocations.h"

#include "collectives/window/doorbell.h"
#include "collectives/window/run_progress.h"
#include "collectives/window/window.h"
#include "core/auth.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/known_memory.h"
#include "core/machine.h"
#include "core/memory_left.h"
#include "core/net.h"
#include "core/shared_memory.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* One shared allocation: a memfd with a region for each rank, as this process has it mapped. */

static uint64_t token;

/* A forked child is another process. */
uint64_t process_token(void)
{
	static pthread_mutex_t token_lock = PTHREAD_MUTEX_INITIALIZER;
	static pid_t owner;
	uint64_t result;

	pthread_mutex_lock(&token_lock);
	if (owner != getpid()) {
		owner = getpid();
		do
			auth_random(&token, sizeof token);
		while (!token);
	}
	result = token;
	pthread_mutex_unlock(&token_lock);
	return result;
}

uint64_t process_token_at(void)
{
	return (uintptr_t)&token;
}

/* Whether rank has freed its region, or its process has ended. */
static bool allocation_is_gone(const struct allocation *a, int rank)
{
	const struct allocation_user *user = &a->users[rank];

	if (atomic_load(&user->is_freed))
		return true;
	return user->pid > 0 && user->pid_space && user->pid_space == machine_namespace("pid") &&
	       kill(user->pid, 0) != 0 && errno == ESRCH;
}

/* Rank's region is this process's from now on. */
static void allocation_own(struct allocation *a, int rank)
{
	a->is_own[rank] = true;
	a->owned++;
	a->users[rank].pid = (int32_t)getpid();
	a->users[rank].pid_space = machine_namespace("pid");
}

static bool allocation_has_process(const struct allocation *a, uint64_t process)
{
	for (int rank = 0; rank < a->size; rank++) {
		if (a->processes[rank] == process)
			return true;
	}
	return false;
}

static size_t allocation_stride_of(size_t bytes)
{
	size_t unit = bytes >= 1u << 20 ? 2u << 20 : 4096;
	return bytes ? (bytes + unit - 1) / unit * unit : unit;
}

/* Unmaps it, too; NULL is fine. */
static void allocation_free(struct allocation *a)
{
	if (!a)
		return;
	shared_memory_close(a->memory);
	free(a->is_own);
	free(a->processes);
	free(a);
}

/* How long the memfd of an allocation of bytes for each rank is. */
static size_t allocation_bytes(const struct window *w, size_t bytes)
{
	size_t page = 4096, users = (size_t)w->size * sizeof(struct allocation_user);

	return allocation_stride_of(bytes) * (size_t)w->size + (users + page - 1) / page * page;
}

/* Of bytes for each rank of the window, not mapped yet. NULL when out of memory. */
static struct allocation *allocation_new(const struct window *w, uint64_t id, size_t bytes)
{
	struct allocation *a = calloc(1, sizeof *a);
	size_t n = (size_t)w->size;

	if (!a)
		return NULL;
	a->id = id;
	a->size = w->size;
	a->stride = allocation_stride_of(bytes);
	a->bytes = allocation_bytes(w, bytes);
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

/* The same bytes at the same address, but in private memory. */
static tutti_status allocation_make_private(uint8_t *region, size_t bytes)
{
	void *copy = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return fail_errno("%zu bytes of shared memory cannot be made private", bytes);
	memcpy(copy, region, bytes);
	madvise(region, bytes, MADV_REMOVE); /* the shared pages are needed no more */
	if (mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, region) == MAP_FAILED)
		return fail_errno("%zu bytes of shared memory cannot be made private", bytes);
	return TUTTI_OK;
}

/* Whether another process with a rank of the window has it mapped. */
static bool allocation_is_shared(const struct allocation *a, const struct window *w)
{
	for (int rank = 0; rank < w->size; rank++) {
		uint64_t process = w->at.areas[rank].process;
		if (process != process_token() && allocation_has_process(a, process))
			return true;
	}
	return false;
}

/* The allocations of this process by address: sorted, read without a lock. */

/* A reader that meets an odd version, or another one afterwards, reads again. Fields are released
 * by the writer and acquired by readers, so that what they see is no older than the version they
 * saw. */
static struct {
	_Atomic uint32_t version, count;
	struct {
		_Atomic uintptr_t first, end;
		_Atomic uint64_t id;
	} entries[ALLOCATIONS_MAX];
} table;

/* Writes the table anew, from a list in the order of addresses. Its callers take turns. */
static void allocation_table_write(const struct allocation *list)
{
	uint32_t count = 0;

	atomic_fetch_add(&table.version, 1);
	for (const struct allocation *a = list; a; a = a->next) {
		uintptr_t first = (uintptr_t)a->base, end = first + a->stride * (size_t)a->size;
		if (a->owned == 0 || a->is_withdrawn)
			continue;
		atomic_store_explicit(&table.entries[count].first, first, memory_order_release);
		atomic_store_explicit(&table.entries[count].end, end, memory_order_release);
		atomic_store_explicit(&table.entries[count++].id, a->id, memory_order_release);
	}
	atomic_store_explicit(&table.count, count, memory_order_release);
	atomic_fetch_add(&table.version, 1);
}

static struct reach allocation_table_find(uintptr_t ptr, size_t bytes, uint32_t count)
{
	uint32_t low = 0, high = count < ALLOCATIONS_MAX ? count : ALLOCATIONS_MAX;

	while (low < high) {
		uint32_t mid = (low + high) / 2;
		uintptr_t first =
			atomic_load_explicit(&table.entries[mid].first, memory_order_acquire);
		uintptr_t end = atomic_load_explicit(&table.entries[mid].end, memory_order_acquire);
		if (ptr < first)
			high = mid;
		else if (ptr >= end)
			low = mid + 1;
		else if (bytes > end - ptr)
			break;
		else
			return (struct reach){
				atomic_load_explicit(&table.entries[mid].id, memory_order_acquire),
				ptr - first};
	}
	return (struct reach){0, 0};
}

struct reach memory_find(const void *ptr, size_t bytes)
{
	for (;;) {
		uint32_t version = atomic_load_explicit(&table.version, memory_order_acquire);
		uint32_t count = atomic_load_explicit(&table.count, memory_order_acquire);
		struct reach reach = allocation_table_find((uintptr_t)ptr, bytes, count);
		if (!(version & 1) &&
		    atomic_load_explicit(&table.version, memory_order_relaxed) == version)
			return reach;
	}
}

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

static uint8_t *allocation_base_for(const struct window *w, uint64_t id)
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
		w->memory.known[i].base = allocation_base_for(w, id);
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
	if (bytes <= whole && place.offset <= whole - bytes &&
	    allocation_base_for(w, place.allocation))
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

static void allocation_memory_discard(uint64_t id)
{
	pthread_mutex_lock(&lock);
	allocations_discard(id);
	pthread_mutex_unlock(&lock);
}

static struct allocation *allocation_find_region(const void *ptr, int *rank)
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
	a = allocation_find_region(ptr, &rank);
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
	a = ptr ? allocation_find_region(ptr, &rank) : NULL;
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
			known_memory_remove(allocation_region(a, rank));
			status = allocation_make_private(allocation_region(a, rank), a->stride);
		}
	}
	allocation_table_write(allocations);
	pthread_mutex_unlock(&lock);
	return status;
}

/* The run of COLL_MEM_ALLOC: the leader makes the memory and passes it to the others; all map it,
 * and use it when all could. */

static const struct window_path path; /* at the end */

#define PASS_TIMEOUT_NS 1000000000u

/* Every rank computes the same. */
static uint64_t allocation_next_id(struct window *w)
{
	uint64_t h = w->memory.comm_id[0] ^
		     (w->memory.comm_id[1] + ++w->memory.made * 0x9e3779b97f4a7c15u);

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	h ^= h >> 31;
	return h ? h : 1;
}

void memory_begin(struct window *w, struct window_run *run)
{
	run->path = &path;
	run->pieces = 1; /* one generation, of a slot that stays empty */
	run->steps = 2;
	run->memory_id = allocation_next_id(w);
}

static tutti_status allocation_check_room(const struct window *w, const struct window_run *run)
{
	struct sysinfo info;

	if (sysinfo(&info) == 0 &&
	    allocation_bytes(w, run->args.count) / info.mem_unit > info.totalram)
		return fail(TUTTI_ERR_MEMORY,
			    "that is %zu bytes, more than the %llu of this machine: ask for less",
			    allocation_bytes(w, run->args.count),
			    (unsigned long long)info.totalram * info.mem_unit);
	return TUTTI_OK;
}

static tutti_status allocation_memory_pass_on(struct window *w, const struct window_run *run,
					      int fd)
{
	for (int rank = 1; w->memory.mail >= 0 && rank < w->size; rank++)
		TRY(net_send_fds(w->memory.mail, &run->memory_id, sizeof run->memory_id, &fd, 1,
				 clock_now_ns() + PASS_TIMEOUT_NS));
	return TUTTI_OK;
}

/* The leader's part. */
static tutti_status allocation_memory_make(struct window *w, struct window_run *run, int *fd)
{
	TRY(allocation_check_room(w, run));
	TRY(shared_memory_create("tutti-memory", allocation_bytes(w, run->args.count), fd));
	return memory_take(w, run, *fd);
}

/* The leader sends it now. The memory of an earlier run that failed may lie before it. */
static tutti_status allocation_memory_receive(struct window *w, struct window_run *run, int *fd)
{
	for (;;) {
		uint64_t id;
		TRY(net_recv_fds(w->memory.mail, &id, sizeof id, fd, 1,
				 clock_now_ns() + PASS_TIMEOUT_NS));
		if (id == run->memory_id)
			return TUTTI_OK;
		close(*fd);
	}
}

/* The others' part. A rank of the leader's process, or the second of another one, finds it mapped.
 */
static tutti_status allocation_memory_follow(struct window *w, struct window_run *run)
{
	tutti_status status;
	int fd = -1;

	if (w->at.areas[0].memory_status != TUTTI_OK)
		return w->at.areas[0].memory_status;
	if (w->memory.mail >= 0)
		TRY(allocation_memory_receive(w, run, &fd));
	status = memory_take(w, run, fd);
	if (fd >= 0)
		close(fd);
	return status;
}

static int allocation_rank_without(const struct window *w)
{
	int rank = 0;

	while (rank < w->size && w->at.areas[rank].memory_status == TUTTI_OK)
		rank++;
	return rank < w->size ? rank : -1;
}

void window_outcome_text(const struct window *w, const struct window_run *run, char *text,
			 size_t text_bytes)
{
	int rank = allocation_rank_without(w);

	snprintf(text, text_bytes,
		 "tutti_mem_alloc of %zu bytes on each of %d ranks: rank %d has failed: %.*s.",
		 run->args.count, w->size, rank, MEMORY_ERROR_BYTES - 1,
		 rank < 0 ? "" : w->at.areas[rank].memory_error);
}

/* All ranks decide alike: all have the memory, or none. */
static tutti_status allocation_outcome_of(struct window *w, struct window_run *run)
{
	char text[ERROR_BYTES];

	if (allocation_rank_without(w) < 0)
		return TUTTI_OK;
	allocation_memory_discard(run->memory_id);
	run->memory = NULL;
	window_outcome_text(w, run, text, sizeof text);
	return fail(TUTTI_ERR_MEMORY, "%s", text);
}

static bool allocation_of_leader(const struct window *w, const struct window_run *run, int rank)
{
	(void)w, (void)run;
	return rank == 0;
}

static struct need allocation_memory_need(const struct window *w, const struct window_run *run)
{
	if (run->step == 0)
		return (struct need){WORD_STAGED, w->generation + 1, allocation_of_leader};
	return (struct need){WORD_TAKEN, w->generation + 1, NULL};
}

/* All ranks are to know why. */
static void allocation_say_outcome(struct rank_area *area, tutti_status status)
{
	area->memory_status = status;
	if (status != TUTTI_OK)
		snprintf(area->memory_error, sizeof area->memory_error, "%s", last_error());
}

/* The others take it while it is sent: for a message to each of many ranks a socket has no room.
 * Where sending fails some rank gets none, and says so. */
static void allocation_memory_lead(struct window *w, struct window_run *run)
{
	int fd = -1;
	tutti_status status = allocation_memory_make(w, run, &fd);

	allocation_say_outcome(w->area, status);
	word_post(w, WORD_STAGED, w->generation + 1);
	if (status == TUTTI_OK && allocation_memory_pass_on(w, run, fd) != TUTTI_OK)
		log_info("memory was not passed to all ranks: %s", last_error());
	if (fd >= 0)
		close(fd);
}

static tutti_status allocation_memory_step(struct window *w, struct window_run *run)
{
	if (run->step > 0) {
		run->outcome = allocation_outcome_of(w, run);
		return TUTTI_OK;
	}
	if (w->rank == 0) {
		allocation_memory_lead(w, run);
	} else {
		allocation_say_outcome(w->area, allocation_memory_follow(w, run));
		word_post(w, WORD_STAGED, w->generation + 1);
	}
	word_post(w, WORD_TAKEN, w->generation + 1);
	return TUTTI_OK;
}

static const struct window_path path = {"allocation", allocation_memory_need,
					allocation_memory_step};

/* 2 MiB pages for the memory that ranks share, where the system gives none to shared memory by
 * itself: the pages are collapsed into large ones while the memory is new. Only whole large pages
 * of what was asked for, so that no memory is added. The others' mappings get the large pages as
 * they touch them. Where this fails, the memory silently stays in small pages. */

#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define HUGE_PAGE ((size_t)2 << 20)
/* The bytes of one madvise call. The kernel works long on every large page, so the first call that
 * fails is the last one. */
#define AT_ONCE ((size_t)16 << 20)

void window_mem_enlarge(void *ptr, size_t bytes, int ranks)
{
	uint8_t *at = ptr, *end = at + bytes / HUGE_PAGE * HUGE_PAGE;
	uint64_t left = at < end ? memory_left("") : 0;

	/* A caller that asks for more than it will use must not fill the machine with it. */
	if (at == end || left == UINT64_MAX || bytes > left / 2 / (uint64_t)ranks)
		return;
	for (size_t n; at < end; at += n) {
		n = (size_t)(end - at) < AT_ONCE ? (size_t)(end - at) : AT_ONCE;
		/* A small page in each: what is not mapped at all is not collapsed. */
		for (size_t i = 0; i < n; i += HUGE_PAGE)
			(void)*(volatile uint8_t *)(at + i);
		if (madvise(at, n, MADV_COLLAPSE) != 0)
			return;
	}
}
