/* tutti_mem_alloc on a node: one memfd with a region for each rank, mapped whole by every process.
 *
 * The allocations of a process are known by address (memory_find, on the way of every long call)
 * and by id (memory_base). An allocation stays mapped here until every rank has freed its region:
 * until then another rank may still say "my buffer is in there", and all must agree that all can
 * reach it. What is freed gives its pages back at once; what remains is address space. */
#include "collectives/window_internal.h"

#include "core/clock.h"
#include "core/net.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#define ALLOCATIONS_MAX 1024u
#define PASS_TIMEOUT_NS 1000000000u

/* At the end of the memfd: who still uses his region. */
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
	uint64_t *processes; /* who has it mapped, by rank                           */
	struct control *control;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations; /* under lock */

/* ---- by address: sorted, read without a lock ------------------------------------------- */

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

static void table_set(uint32_t i, uintptr_t first, uintptr_t end, uint64_t id)
{
	atomic_store_explicit(&table.entries[i].first, first, memory_order_release);
	atomic_store_explicit(&table.entries[i].end, end, memory_order_release);
	atomic_store_explicit(&table.entries[i].id, id, memory_order_release);
}

/* Under lock: writes the table anew. */
static void table_write(void)
{
	uint32_t count = 0;

	atomic_fetch_add(&table.version, 1);
	for (struct allocation *a = allocations; a; a = a->next) {
		if (a->owned > 0) {
			uintptr_t first = (uintptr_t)a->base;
			table_set(count++, first, first + a->stride * (size_t)a->size, a->id);
		}
	}
	atomic_store_explicit(&table.count, count, memory_order_release);
	atomic_fetch_add(&table.version, 1);
}

static struct reach table_find(uintptr_t ptr, size_t bytes, uint32_t count)
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
		struct reach reach = table_find((uintptr_t)ptr, bytes, count);
		if (!(version & 1) &&
		    atomic_load_explicit(&table.version, memory_order_relaxed) == version)
			return reach;
	}
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
		if (!has_process(a, w->areas[rank].process))
			return NULL;
	}
	return a ? a->base : NULL;
}

uint8_t *memory_base(struct window *w, uint64_t id)
{
	size_t i = id % KNOWN_ALLOCATIONS;

	if (w->known[i].id != id) {
		pthread_mutex_lock(&lock);
		w->known[i].base = base_for(w, id);
		w->known[i].id = id;
		pthread_mutex_unlock(&lock);
	}
	return w->known[i].base;
}

/* ---- this process ---------------------------------------------------------------------- */

static uint64_t random_token(void)
{
	uint64_t token = 0;

	while (!token) {
		if (getrandom(&token, sizeof token, 0) != (ssize_t)sizeof token)
			token = clock_now_ns() ^ (uint64_t)getpid() << 40;
	}
	return token;
}

/* A forked child is another process. */
uint64_t process_token(void)
{
	static pthread_mutex_t token_lock = PTHREAD_MUTEX_INITIALIZER;
	static uint64_t token;
	static pid_t owner;
	uint64_t result;

	pthread_mutex_lock(&token_lock);
	if (owner != getpid()) {
		owner = getpid();
		token = random_token();
	}
	result = token;
	pthread_mutex_unlock(&token_lock);
	return result;
}

static uint64_t pid_space(void)
{
	struct stat st;
	return stat("/proc/self/ns/pid", &st) == 0 ? (uint64_t)st.st_ino : 0;
}

/* ---- allocations ----------------------------------------------------------------------- */

static size_t stride_of(size_t bytes)
{
	size_t unit = bytes >= 1u << 20 ? 2u << 20 : 4096;
	return (bytes + unit - 1) / unit * unit;
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

static struct allocation *allocation_new(const struct window *w, uint64_t id, size_t bytes)
{
	struct allocation *a = calloc(1, sizeof *a);
	size_t n = (size_t)w->size, page = 4096;

	if (!a)
		return NULL;
	a->id = id;
	a->size = w->size;
	a->stride = stride_of(bytes ? bytes : 1);
	a->bytes = a->stride * n + (n * sizeof(struct control) + page - 1) / page * page;
	a->is_own = calloc(n, sizeof *a->is_own);
	a->processes = calloc(n, sizeof *a->processes);
	if (!a->is_own || !a->processes) {
		allocation_free(a);
		return NULL;
	}
	for (int rank = 0; rank < w->size; rank++)
		a->processes[rank] = w->areas[rank].process;
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
		return fail(TUTTI_ERR_MEMORY, "This process has %u shared allocations already.",
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
	table_write();
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
 * used. */
static void disown(struct allocation *a, int rank)
{
	uint8_t *region = a->base + (size_t)rank * a->stride;

	a->is_own[rank] = false;
	a->owned--;
	madvise(region, a->stride, MADV_REMOVE);
	mprotect(region, a->stride, PROT_NONE);
	atomic_store(&a->control[rank].is_freed, 1);
	table_write();
	reap();
}

static struct allocation *find_region(const void *ptr, int *rank)
{
	for (struct allocation *a = allocations; a; a = a->next) {
		for (int r = 0; r < a->size; r++) {
			if (a->is_own[r] && a->base + (size_t)r * a->stride == ptr) {
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

/* ---- the run of COLL_MEM_ALLOC --------------------------------------------------------- */

/* Every rank computes the same. */
static uint64_t next_id(struct window *w)
{
	uint64_t h = w->comm_id[0] ^ (w->comm_id[1] + ++w->allocations * 0x9e3779b97f4a7c15u);

	h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
	h = (h ^ h >> 27) * 0x94d049bb133111ebu;
	h ^= h >> 31;
	return h ? h : 1;
}

void memory_begin(struct window *w, struct window_run *run)
{
	run->path = &window_memory;
	run->pieces = 1; /* one generation, of a slot that stays empty */
	run->steps = 2;
	run->memory_id = next_id(w);
}

/* Takes a: lists it, or frees it. */
static tutti_status map_and_own(struct window *w, struct window_run *run, struct allocation *a,
				int fd)
{
	void *base;
	tutti_status status = shared_map(fd, a->bytes, &base);

	if (status != TUTTI_OK) {
		allocation_free(a);
		return status;
	}
	a->base = base;
	a->control = (struct control *)(void *)(a->base + a->stride * (size_t)a->size);
	run->memory = a->base + (size_t)w->rank * a->stride;
	pthread_mutex_lock(&lock);
	reap();
	status = insert(a);
	if (status == TUTTI_OK)
		own(a, w->rank);
	else
		allocation_free(a);
	pthread_mutex_unlock(&lock);
	return status;
}

static tutti_status check_room(const struct window_run *run, const struct allocation *a)
{
	struct sysinfo info;

	if (sysinfo(&info) == 0 && a->bytes / info.mem_unit > info.totalram)
		return fail(TUTTI_ERR_MEMORY,
			    "%zu bytes for each of %d ranks are more than this machine has.",
			    run->args.count, a->size);
	return TUTTI_OK;
}

static tutti_status pass_on(struct window *w, const struct window_run *run, int fd)
{
	for (int rank = 1; w->sockets && rank < w->size; rank++)
		TRY(net_send_fds(w->sockets[rank], &run->memory_id, sizeof run->memory_id, &fd, 1,
				 clock_now_ns() + PASS_TIMEOUT_NS));
	return TUTTI_OK;
}

/* The leader's part. */
static tutti_status make(struct window *w, struct window_run *run)
{
	struct allocation *a = allocation_new(w, run->memory_id, run->args.count);
	tutti_status status;
	int fd;

	if (!a)
		return fail(TUTTI_ERR_MEMORY, "No memory to note an allocation.");
	status = check_room(run, a);
	if (status == TUTTI_OK)
		status = shared_create("tutti-memory", a->bytes, &fd);
	if (status != TUTTI_OK) {
		allocation_free(a);
		return status;
	}
	status = map_and_own(w, run, a, fd);
	if (status == TUTTI_OK)
		status = pass_on(w, run, fd);
	close(fd);
	return status;
}

/* What the leader sent is here, since it said so; an earlier one's that nobody took may lie before
 * it. */
static tutti_status receive(struct window *w, struct window_run *run, int *fd)
{
	for (;;) {
		uint64_t id;
		TRY(net_recv_fds(w->sockets[0], &id, sizeof id, fd, 1,
				 clock_now_ns() + PASS_TIMEOUT_NS));
		if (id == run->memory_id)
			return TUTTI_OK;
		close(*fd);
	}
}

/* A rank of the leader's process, or the second of another one, finds it mapped. */
static bool adopt(struct window *w, struct window_run *run)
{
	struct allocation *a;

	pthread_mutex_lock(&lock);
	for (a = allocations; a && a->id != run->memory_id; a = a->next)
		;
	if (a) {
		own(a, w->rank);
		run->memory = a->base + (size_t)w->rank * a->stride;
	}
	pthread_mutex_unlock(&lock);
	return a != NULL;
}

/* The others' part. */
static tutti_status take(struct window *w, struct window_run *run)
{
	struct allocation *a;
	tutti_status status;
	int fd = -1;

	if (w->areas[0].memory_status != TUTTI_OK)
		return w->areas[0].memory_status;
	if (w->sockets)
		TRY(receive(w, run, &fd));
	if (adopt(w, run)) {
		status = TUTTI_OK;
	} else {
		a = allocation_new(w, run->memory_id, run->args.count);
		status = a ? map_and_own(w, run, a, fd)
			   : fail(TUTTI_ERR_MEMORY, "No memory to note an allocation.");
	}
	if (fd >= 0)
		close(fd);
	return status;
}

/* Some rank could not map it, so no rank will use it. */
static void discard(uint64_t id)
{
	pthread_mutex_lock(&lock);
	for (struct allocation **at = &allocations; *at; at = &(*at)->next) {
		struct allocation *a = *at;
		if (a->id == id) {
			*at = a->next;
			allocation_free(a);
			break;
		}
	}
	table_write();
	pthread_mutex_unlock(&lock);
}

/* All ranks come to the same verdict: all have it, or none. */
static tutti_status verdict(struct window *w, struct window_run *run)
{
	for (int rank = 0; rank < w->size; rank++) {
		if (w->areas[rank].memory_status == TUTTI_OK)
			continue;
		discard(run->memory_id);
		run->memory = NULL;
		return fail(TUTTI_ERR_MEMORY,
			    "tutti_mem_alloc of %zu bytes on each of %d ranks: rank %d has failed "
			    "(%s).",
			    run->args.count, w->size, rank,
			    tutti_status_string(w->areas[rank].memory_status));
	}
	return TUTTI_OK;
}

static struct need memory_need(const struct window *w, const struct window_run *run)
{
	struct need need = {WORD_TAKEN, w->generation + 1, -1};

	if (run->step == 0) {
		need.word = WORD_STAGED;
		need.only = 0;
		if (w->rank == 0)
			need.value = 0;
	}
	return need;
}

static tutti_status memory_step(struct window *w, struct window_run *run)
{
	if (run->step == 0) {
		w->area->memory_status = w->rank == 0 ? make(w, run) : take(w, run);
		word_post(w, WORD_STAGED, w->generation + 1);
		word_post(w, WORD_TAKEN, w->generation + 1);
	} else {
		run->outcome = verdict(w, run);
	}
	return TUTTI_OK;
}

const struct window_path window_memory = {"allocation", memory_need, memory_step};

void *window_run_memory(const struct window_run *run)
{
	return run->memory;
}
