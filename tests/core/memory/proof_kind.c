/* The arena, mapped twice, and queues that delay and reorder. */
#include "proof_kind.h"

#include "core/status.h"
#include "core/memory/dma_buf.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"
#include "core/memory/reduce.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARENA_BYTES ((size_t)1 << 30) /* sparse: only what is written takes memory */
#define PAGE        ((size_t)4096)
#define PAGES       (ARENA_BYTES / PAGE)
#define DELAY_MOST  6 /* progress calls */

static struct {
	int fd;
	char *user;             /* what others hold: protected                           */
	char *own;              /* the same pages, readable and writable                 */
	uint32_t length[PAGES]; /* of the allocation that starts here, in pages; else 0  */
	uint32_t id[PAGES];     /* of that allocation                                    */
	uint32_t ids;
	size_t next; /* where the search for free pages starts                */
	size_t allocated;
	pthread_mutex_t lock;
} arena = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static atomic_uint_fast64_t next_seed;

tutti_status proof_kind_use(uint64_t seed)
{
	atomic_store(&next_seed, seed);
	if (arena.fd >= 0)
		return TUTTI_OK;
	arena.fd = memfd_create("proof", MFD_CLOEXEC);
	if (arena.fd < 0 || ftruncate(arena.fd, (off_t)ARENA_BYTES) != 0)
		return fail_errno("memfd_create for protected memory");
	arena.user = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_SHARED, arena.fd, 0);
	arena.own = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, arena.fd, 0);
	if (arena.user == MAP_FAILED || arena.own == MAP_FAILED)
		return fail_errno("mmap of protected memory");
	return memory_register(&memory_proof);
}

static bool proof_owns(const void *ptr)
{
	return (uintptr_t)ptr - (uintptr_t)arena.user < ARENA_BYTES;
}

/* The address through which the kind itself reaches ptr. Host pointers stay as they are. */
static void *reach(const void *ptr)
{
	if (!proof_owns(ptr))
		return (void *)(uintptr_t)ptr;
	return arena.own + ((const char *)ptr - arena.user);
}

/* First page of a gap of n pages in [from, to), or to. Allocations lie in order of addresses. */
static size_t find_gap(size_t from, size_t to, size_t n)
{
	size_t gap = from;
	for (size_t page = from; page < to && page - gap < n;) {
		size_t length = arena.length[page];
		page += length ? length : 1;
		if (length)
			gap = page;
	}
	return gap + n <= to ? gap : to;
}

void *proof_alloc(size_t bytes)
{
	size_t n = bytes / PAGE + 1; /* at least one byte of guard behind it */
	void *ptr = NULL;

	pthread_mutex_lock(&arena.lock);
	size_t page = find_gap(arena.next, PAGES, n);
	if (page == PAGES)
		page = find_gap(0, PAGES, n);
	if (page != PAGES) {
		arena.length[page] = (uint32_t)n;
		arena.id[page] = ++arena.ids;
		arena.next = page + n;
		arena.allocated += n * PAGE;
		ptr = arena.user + page * PAGE;
	}
	pthread_mutex_unlock(&arena.lock);
	return ptr;
}

void proof_free(void *ptr)
{
	if (ptr == NULL)
		return;
	assert(proof_owns(ptr));
	pthread_mutex_lock(&arena.lock);
	size_t page = (size_t)((char *)ptr - arena.user) / PAGE, n = arena.length[page];
	assert(n > 0); /* freed twice, or never allocated */
	arena.length[page] = 0;
	arena.allocated -= n * PAGE;
	int hole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
	int failed = fallocate(arena.fd, hole, (off_t)(page * PAGE), (off_t)(n * PAGE));
	assert(!failed);
	pthread_mutex_unlock(&arena.lock);
}

void proof_write(void *ptr, const void *data, size_t bytes)
{
	assert(proof_owns(ptr));
	if (bytes)
		memcpy(reach(ptr), data, bytes);
}

void proof_read(void *data, const void *ptr, size_t bytes)
{
	assert(proof_owns(ptr));
	if (bytes)
		memcpy(data, reach(ptr), bytes);
}

size_t proof_allocated(void)
{
	pthread_mutex_lock(&arena.lock);
	size_t allocated = arena.allocated;
	pthread_mutex_unlock(&arena.lock);
	return allocated;
}

/* What is posted and not yet done, in the order of posting; io.moved counts the delay down. */
struct queue {
	struct memory_queue base;
	struct tutti_io *head;
	uint64_t random;
};

static uint64_t next_random(struct queue *q)
{
	q->random ^= q->random << 13;
	q->random ^= q->random >> 7;
	q->random ^= q->random << 17;
	return q->random;
}

static tutti_status proof_open(struct memory_queue **queue)
{
	struct queue *q = calloc(1, sizeof *q);

	if (q == NULL)
		return fail(TUTTI_ERR_MEMORY, "There is no memory for a queue.");
	q->base.kind = &memory_proof;
	q->random = (atomic_fetch_add(&next_seed, 1) + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
	*queue = &q->base;
	return TUTTI_OK;
}

static void proof_post(struct memory_queue *queue, struct memory_io *io, struct tutti_done *done)
{
	struct queue *q = (struct queue *)queue;
	struct tutti_io **end = &q->head;

	(void)done;
	while (*end)
		end = &(*end)->next;
	*end = &io->io;
	io->io.next = NULL;
	io->io.moved = next_random(q) % (DELAY_MOST + 1);
}

static size_t bytes_of(const struct memory_io *io)
{
	return io->op == MEMORY_COPY ? io->count : io->count * dtype_bytes(io->dtype);
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
	return (const char *)a < (const char *)b + b_bytes &&
	       (const char *)b < (const char *)a + a_bytes;
}

static bool moves_data(const struct memory_io *io)
{
	return io->op != MEMORY_ALLOC && io->op != MEMORY_FREE;
}

static bool reads_or_writes(const struct memory_io *io, const void *p, size_t bytes)
{
	if (overlap(io->dst, bytes_of(io), p, bytes))
		return true;
	for (int i = 0; io->op != MEMORY_FINISH && i < io->n_src; i++)
		if (overlap(io->src[i], bytes_of(io), p, bytes))
			return true;
	return false;
}

/* Whether the two may not change places: one writes what the other reads or writes. */
static bool conflict(const struct memory_io *a, const struct memory_io *b)
{
	if (a->op == MEMORY_ALLOC || b->op == MEMORY_ALLOC)
		return false;
	if (!moves_data(a) || !moves_data(b))
		return true;
	return reads_or_writes(a, b->dst, bytes_of(b)) || reads_or_writes(b, a->dst, bytes_of(a));
}

static struct memory_io *memory_io_of(struct tutti_io *io)
{
	return (struct memory_io *)io;
}

static bool may_run(const struct queue *q, struct tutti_io *io)
{
	if (io->moved > 0)
		return false;
	for (struct tutti_io *before = q->head; before != io; before = before->next)
		if (conflict(memory_io_of(before), memory_io_of(io)))
			return false;
	return true;
}

static tutti_status do_reduce(const struct memory_io *io)
{
	const void **src = malloc((size_t)io->n_src * sizeof *src);
	void *dst = reach(io->dst);

	if (src == NULL)
		return fail(TUTTI_ERR_MEMORY, "There is no memory for %d pointers.", io->n_src);
	for (int i = 0; i < io->n_src; i++)
		src[i] = reach(io->src[i]);
	reduce(&dst, 1, src, io->n_src, io->count, io->dtype, io->reduce_op, io->divisor);
	free(src);
	return TUTTI_OK;
}

static tutti_status do_io(struct memory_io *io)
{
	switch (io->op) {
	case MEMORY_ALLOC:
		io->io.buf = proof_alloc(io->io.bytes);
		if (io->io.buf == NULL)
			return fail(TUTTI_ERR_MEMORY, "The arena has no %zu bytes.", io->io.bytes);
		return TUTTI_OK;
	case MEMORY_FREE:
		proof_free(io->io.buf);
		return TUTTI_OK;
	case MEMORY_COPY:
		if (io->count)
			memmove(reach(io->dst), reach(io->src[0]), io->count);
		return TUTTI_OK;
	case MEMORY_REDUCE:
		return do_reduce(io);
	case MEMORY_SCALE:
		scale(reach(io->dst), reach(io->src[0]), op_scalar(io->reduce_op), io->count,
		      io->dtype);
		return TUTTI_OK;
	case MEMORY_FINISH:
		reduce_finish(reach(io->dst), io->count, io->dtype, io->reduce_op, io->divisor);
		return TUTTI_OK;
	case MEMORY_AFTER:
		break; /* it has no streams */
	}
	return fail(TUTTI_ERR_INTERNAL, "Protected memory has no operation %d.", (int)io->op);
}

/* A random one of those that may run now, taken from the list; NULL: none. */
static struct tutti_io *take_any(struct queue *q)
{
	struct tutti_io **chosen = NULL, *io;
	uint64_t candidates = 0;

	for (struct tutti_io **at = &q->head; *at; at = &(*at)->next)
		if (may_run(q, *at) && next_random(q) % ++candidates == 0)
			chosen = at;
	if (chosen == NULL)
		return NULL;
	io = *chosen;
	*chosen = io->next;
	return io;
}

/* A delay that counts down is something that happened: this is the kind's clock. */
static int proof_progress(struct memory_queue *queue, struct tutti_done *done)
{
	struct queue *q = (struct queue *)queue;
	bool waiting = q->head != NULL;
	struct tutti_io *io;

	for (io = q->head; io; io = io->next)
		if (io->moved > 0)
			io->moved--;
	while ((io = take_any(q)))
		tutti_done_push(done, io, do_io(memory_io_of(io)));
	return waiting;
}

static void proof_cancel(struct memory_queue *queue)
{
	((struct queue *)queue)->head = NULL;
}

static void proof_close(struct memory_queue *queue)
{
	free(queue);
}

static tutti_status proof_dma_buf(struct memory_dma_buf *out, void *ptr, size_t bytes)
{
	(void)bytes;
	out->fd = fcntl(arena.fd, F_DUPFD_CLOEXEC, 0);
	out->offset = (uint64_t)((char *)ptr - arena.user);
	return out->fd >= 0 ? TUTTI_OK : fail_errno("a descriptor of protected memory");
}

static tutti_status proof_dma_buf_check(int device)
{
	(void)device;
	return TUTTI_OK;
}

/* Ids are those of pages, and of how often they were handed out. */
static bool proof_extent(struct memory_extent *out, const void *ptr)
{
	if (!proof_owns(ptr))
		return false;
	pthread_mutex_lock(&arena.lock);
	size_t at = (size_t)((const char *)ptr - arena.user) / PAGE, page = at;
	while (page > 0 && !arena.length[page])
		page--;
	bool is_found = at - page < arena.length[page];
	*out = (struct memory_extent){arena.user + page * PAGE, arena.length[page] * PAGE,
				      arena.id[page]};
	pthread_mutex_unlock(&arena.lock);
	return is_found;
}

static tutti_status proof_landed(const void *ptr)
{
	assert(proof_owns(ptr));
	return TUTTI_OK;
}

static void *proof_device_alloc(struct memory_queue *queue, size_t bytes, const void *near)
{
	(void)queue;
	assert(proof_owns(near));
	return proof_alloc(bytes);
}

static void proof_device_free(struct memory_queue *queue, void *ptr)
{
	(void)queue;
	proof_free(ptr);
}

const struct memory_kind memory_proof = {
	.name = "proof",
	.id = PROOF_KIND,
	.owns = proof_owns,
	.open = proof_open,
	.post = proof_post,
	.progress = proof_progress,
	.cancel = proof_cancel,
	.close = proof_close,
	.dma_buf = proof_dma_buf,
	.dma_buf_check = proof_dma_buf_check,
	.extent = proof_extent,
	.landed = proof_landed,
	.device_alloc = proof_device_alloc,
	.device_free = proof_device_free,
};
