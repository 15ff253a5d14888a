/* Collectives that hand blocks over one by one: tutti_all_gather_each, tutti_reduce_scatter_each.
 */
#include "core/callback.h"
#include "core/memory/dtype.h"
#include "core/memory/memory.h"
#include "core/memory/ops.h"
#include "train/base/base.h"

#include <tutti/parallel.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- buffers ---- */

/* The buffers of a call. A thread keeps those of its last call, up to BLOCK_KEPT_BYTES, until it
 * ends: fresh pages cost as much as a copy. A call inside of fn finds none, and has its own. */

enum {
	BLOCK_BUFFERS = 2, /* for the blocks that are on their way, or seen by fn */
	BLOCK_ALIGN = 64,
};

#define BLOCK_KEPT_BYTES ((size_t)64 << 20) /* of a thread */

struct block_buffers {
	void *data[BLOCK_BUFFERS]; /* aligned to BLOCK_ALIGN; contents are what was there */
	void *spare;               /* as long; it takes memory when it is written         */
	struct block_memory *memory;
};

#define HUGE_PAGE ((size_t)2 << 20)

/* All buffers of a call. */
struct block_memory {
	uint8_t *base;
	size_t bytes;
};

static pthread_once_t kept_once = PTHREAD_ONCE_INIT;
static pthread_key_t kept; /* struct block_memory, of this thread */
static bool can_keep;

static void block_memory_free(void *of)
{
	struct block_memory *memory = of;

	munmap(memory->base, memory->bytes);
	free(memory);
}

static void block_memory_make_key(void)
{
	can_keep = pthread_key_create(&kept, block_memory_free) == 0;
}

static struct block_memory *block_memory_new(size_t bytes)
{
	struct block_memory *memory = malloc(sizeof *memory);
	void *base = memory ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				   -1, 0)
			    : MAP_FAILED;

	if (base == MAP_FAILED) {
		free(memory);
		return NULL;
	}
	if (bytes >= HUGE_PAGE)
		(void)madvise(base, bytes, MADV_HUGEPAGE); /* a hint; small pages do as well */
	*memory = (struct block_memory){base, bytes};
	return memory;
}

/* The thread keeps nothing afterwards. */
static struct block_memory *block_memory_take(size_t bytes)
{
	pthread_once(&kept_once, block_memory_make_key);
	struct block_memory *memory = can_keep ? pthread_getspecific(kept) : NULL;

	if (memory)
		pthread_setspecific(kept, NULL);
	if (memory && memory->bytes >= bytes)
		return memory;
	if (memory)
		block_memory_free(memory);
	return block_memory_new(bytes);
}

/* Each of so many bytes. MEMORY. */
static tutti_status block_buffers_take(struct block_buffers *buffers, size_t bytes)
{
	size_t stride = bytes ? bytes : 1;

	if (stride <= SIZE_MAX / 4)
		stride = (stride + BLOCK_ALIGN - 1) / BLOCK_ALIGN * BLOCK_ALIGN;
	buffers->memory =
		stride <= SIZE_MAX / 4 ? block_memory_take((BLOCK_BUFFERS + 1) * stride) : NULL;
	if (!buffers->memory)
		return fail_no_memory("three blocks of %zu bytes", bytes);
	for (int i = 0; i < BLOCK_BUFFERS; i++)
		buffers->data[i] = buffers->memory->base + (size_t)i * stride;
	buffers->spare = buffers->memory->base + BLOCK_BUFFERS * stride;
	return TUTTI_OK;
}

static void block_buffers_give_back(struct block_buffers *buffers)
{
	struct block_memory *memory = buffers->memory;

	if (memory->bytes > BLOCK_KEPT_BYTES || !can_keep || pthread_getspecific(kept) ||
	    pthread_setspecific(kept, memory) != 0)
		block_memory_free(memory);
}

/* ---- common parts ---- */

/* Of both functions: arguments, the caller's function, the collectives that they are made of, and
 * the first failure. */

struct block_call {
	const char *name;
	size_t count;
	tutti_dtype dtype;
	tutti_block_fn fn;
	void *arg;
	tutti_comm *comm;
	/* Filled by block_call_begin. */
	int rank, size;
	size_t bytes;              /* of a block                                             */
	tutti_call part;           /* of each collective: timeout and label are the caller's */
	bool has_begun;            /* one of them was started                                */
	struct kept_error failure; /* the first: of fn, or of a collective       */
};

static tutti_status block_call_check_call(const struct block_call *c, const tutti_call *call)
{
	if (!call)
		return TUTTI_OK;
	if (call->work || call->done || call->source)
		return fail_invalid("%s: call.%s is set, but the call is over when it returns: fn "
				    "runs on this thread",
				    c->name,
				    call->work   ? "work"
				    : call->done ? "done"
						 : "source");
	if (call->timeout_ms < 0)
		return fail_invalid("%s: call.timeout_ms is %d: it must not be negative", c->name,
				    call->timeout_ms);
	if (call->stream)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: call.stream is set, but blocks are handed over in host "
			    "memory only: wait for the stream first",
			    c->name);
	return TUTTI_OK;
}

static tutti_status block_call_check_arguments(struct block_call *c, const void *buffer)
{
	if (!c->comm || !c->fn)
		return fail_invalid("%s: %s is NULL", c->name, c->comm ? "fn" : "comm");
	if (dtype_bytes(c->dtype) == 0)
		return fail_invalid("%s: there is no dtype %d", c->name, (int)c->dtype);
	if (__builtin_mul_overflow(c->count, dtype_bytes(c->dtype), &c->bytes))
		return fail_invalid("%s: no memory can hold %zu elements of %s", c->name, c->count,
				    dtype_name(c->dtype));
	if (c->count > 0 && !buffer)
		return fail_invalid("%s: the buffer of %zu elements is NULL", c->name, c->count);
	if (memory_of(buffer) != &memory_host)
		return fail(TUTTI_ERR_UNSUPPORTED,
			    "%s: the buffer is in %s memory, but blocks are handed over in "
			    "host memory only: use tutti_all_gather or tutti_reduce_scatter",
			    c->name, memory_of(buffer)->name);
	return TUTTI_OK;
}

/* buffer is the caller's. INVALID, UNSUPPORTED: nothing was sent. */
static tutti_status block_call_begin(struct block_call *c, const void *buffer,
				     const tutti_call *call)
{
	TRY(tutti_group_refuse(c->name));
	TRY(block_call_check_arguments(c, buffer));
	TRY(block_call_check_call(c, call));
	c->rank = tutti_rank(c->comm);
	c->size = tutti_size(c->comm);
	c->part = (tutti_call){.timeout_ms = call ? call->timeout_ms : 0,
			       .label = call && call->label ? call->label : c->name};
	return TUTTI_OK;
}

/* Without memory (status) comm is aborted, so that the other ranks do not wait. */
static bool block_call_has_memory(struct block_call *c, tutti_status status)
{
	kept_error_note(&c->failure, status);
	if (status != TUTTI_OK)
		(void)tutti_comm_abort(c->comm);
	return status == TUTTI_OK;
}

/* fn may have said why, as its thread's last error. */
static void block_call_note_fn(struct block_call *c, int rank, tutti_status status)
{
	struct kept_error said = kept_error_of(status);

	kept_error_note(&c->failure,
			fail(status, "%s: fn has failed at the block of rank %d: %.350s", c->name,
			     rank, said.message[0] ? said.message : tutti_status_string(status)));
}

/* Lets fn see, or fill, the block of a rank. After a failure it is called no more: false. */
static bool block_call_fn(struct block_call *c, int rank, void *data)
{
	if (c->failure.status != TUTTI_OK)
		return false;
	tutti_set_error(TUTTI_OK, "");
	tutti_status status;
	callback_call("fn", c->name, c->rank, status = c->fn(c->arg, rank, data, c->count));
	if (status != TUTTI_OK)
		block_call_note_fn(c, rank, status);
	return status == TUTTI_OK;
}

/* Of a collective about the block of a rank, -1 for all: whether it went well. A failure is noted;
 * where it is this rank's alone, comm is aborted, so that the others do not wait for it. */
static bool block_call_is_well(struct block_call *c, int rank, tutti_status status)
{
	if (status == TUTTI_OK) {
		c->has_begun = true;
		return true;
	}
	struct kept_error said = kept_error_of(status);
	char of[40] = "";
	if (rank >= 0)
		snprintf(of, sizeof of, ", block of rank %d", rank);
	kept_error_note(&c->failure, fail(status, "%s%s: %.400s", c->name, of, said.message));
	if (c->has_begun && tutti_comm_status(c->comm) == TUTTI_OK)
		(void)tutti_comm_abort(c->comm);
	return false;
}

/* The same of the end of its work. NULL is none, and well. */
static bool block_call_wait(struct block_call *c, int rank, tutti_work **work)
{
	return !*work || block_call_is_well(c, rank, tutti_work_wait(work, 0));
}

/* ---- tutti_reduce_scatter_each ---- */

/* A reduction to each rank in turn, rank 0 first. While fn computes this rank's contribution to one
 * block, those to the two before are on their way. docs/parallel.md has the picture. */

struct scatter {
	struct block_call call;
	void *recv;
	tutti_op op;
	struct block_buffers buffers;
	tutti_work *works[BLOCK_BUFFERS];
};

/* Refused before fn is called: the first reduce comes after it. */
static tutti_status block_call_reduce_scatter_each_check_op(const struct scatter *s)
{
	const struct block_call *c = &s->call;

	if (!op_is_known(s->op))
		return fail_invalid("%s: there is no operation %d, or it was destroyed", c->name,
				    (int)s->op);
	if (!op_fits(s->op, c->dtype))
		return fail_invalid("%s: operation %s does not work on %s", c->name, op_name(s->op),
				    dtype_name(c->dtype));
	return TUTTI_OK;
}

/* A rank whose fn has failed sends zeros: the others hear of it at the end. */
static bool block_call_reduce_block(struct scatter *s, int rank)
{
	struct block_call *c = &s->call;
	void *data = s->buffers.data[rank % BLOCK_BUFFERS];

	if (!block_call_fn(c, rank, data))
		memset(data, 0, c->bytes);
	c->part.work = &s->works[rank % BLOCK_BUFFERS];
	return block_call_is_well(c, rank,
				  tutti_reduce(data, rank == c->rank ? s->recv : NULL, c->count,
					       c->dtype, s->op, rank, c->comm, &c->part));
}

/* Blocks are reduced in the order of ranks everywhere. */
static bool block_call_reduce_all(struct scatter *s)
{
	struct block_call *c = &s->call;
	bool is_well = true;

	for (int rank = 0; is_well && rank < c->size; rank++)
		is_well =
			block_call_wait(c, rank - BLOCK_BUFFERS, &s->works[rank % BLOCK_BUFFERS]) &&
			block_call_reduce_block(s, rank);
	for (int rank = c->size; rank < c->size + BLOCK_BUFFERS; rank++)
		is_well &=
			block_call_wait(c, rank - BLOCK_BUFFERS, &s->works[rank % BLOCK_BUFFERS]);
	return is_well;
}

/* Where all collectives went well, all ranks are told whose fn has failed. */
static void block_call_reduce_scatter_each_agree(struct block_call *c)
{
	struct kept_error own = c->failure;

	c->failure = kept_error_of(error_agree(c->comm, kept_error_return(&own)));
}

tutti_status tutti_reduce_scatter_each(void *recv, size_t count, tutti_dtype dtype, tutti_op op,
				       tutti_block_fn fn, void *arg, tutti_comm *comm,
				       const tutti_call *call)
{
	struct scatter s = {.call = {.name = "tutti_reduce_scatter_each",
				     .count = count,
				     .dtype = dtype,
				     .fn = fn,
				     .arg = arg,
				     .comm = comm},
			    .recv = recv,
			    .op = op};

	TRY(block_call_begin(&s.call, recv, call));
	TRY(block_call_reduce_scatter_each_check_op(&s));
	if (block_call_has_memory(&s.call, block_buffers_take(&s.buffers, s.call.bytes))) {
		if (block_call_reduce_all(&s))
			block_call_reduce_scatter_each_agree(&s.call);
		block_buffers_give_back(&s.buffers);
	}
	return kept_error_return(&s.call.failure);
}

/* ---- reach ---- */

/* Whether all ranks reach all blocks where they are, in memory of tutti_mem_alloc: then nothing is
 * copied. */

/* Of a rank's block, told to all. */
struct block_offer {
	tutti_mem_place place; /* {0}: not all reach it */
	uint64_t count, dtype;
};

enum block_way {
	BLOCKS_REACHED,   /* all blocks, from all ranks               */
	BLOCKS_BY_WINDOW, /* ranks share memory; blocks do not lie there */
	BLOCKS_BY_MESSAGES,
	BLOCKS_NOT, /* asking has failed, as c says */
};

/* Blocks that differ are left to the broadcasts, which notice and say it. */
static bool block_call_is_reached(const struct block_call *c, const struct block_offer *offers)
{
	for (int rank = 0; rank < c->size; rank++)
		if (offers[rank].place.allocation == 0 || offers[rank].count != c->count ||
		    offers[rank].dtype != (uint64_t)c->dtype)
			return false;
	return true;
}

/* All ranks get the same answer, by an all_gather where they share memory. offers: room for one of
 * each rank. When it returns a reached block is complete. */
static enum block_way block_reach(struct block_call *c, const void *own, struct block_offer *offers)
{
	struct block_offer *offer = &offers[c->rank];

	*offer = (struct block_offer){.count = c->count, .dtype = (uint64_t)c->dtype};
	if (tutti_mem_place_of(&offer->place, own, c->bytes, c->comm) != TUTTI_OK)
		return BLOCKS_BY_MESSAGES;
	c->part.work = NULL;
	if (!block_call_is_well(
		    c, -1,
		    tutti_all_gather(offer, offers, sizeof *offer, TUTTI_U8, c->comm, &c->part)))
		return BLOCKS_NOT;
	return block_call_is_reached(c, offers) ? BLOCKS_REACHED : BLOCKS_BY_WINDOW;
}

/* ---- tutti_all_gather_each ---- */

/* A broadcast from each rank in turn, rank 0 first. While fn computes on one block the next ones
 * move, at most one for each of the two buffers. Where all ranks reach all blocks fn sees them
 * where they are. docs/parallel.md has the picture. */

struct gather {
	struct block_call call;
	void *own;      /* the caller's send, which nobody writes       */
	void *own_recv; /* where the own broadcast may put it again     */
	struct block_buffers buffers;
	size_t counts[2][2]; /* of two ranks, for each block */
	int next;            /* the rank whose broadcast starts next */
	int started;         /* of other ranks                       */
	tutti_work *own_work, *works[BLOCK_BUFFERS];
};

/* The i-th of the other ranks. */
static int block_call_other_rank(const struct block_call *c, int i)
{
	return i < c->rank ? i : i + 1;
}

/* The block of rank g->next goes from send, if it is the own one, to recv. Between two ranks an
 * all_gather of this block alone copies it once, where a broadcast through the window does so
 * twice. */
static tutti_status block_call_all_gather_each_start(struct gather *g, const void *send, void *recv,
						     tutti_work **work)
{
	struct block_call *c = &g->call;
	int root = g->next;

	c->part.work = work;
	if (c->size != 2)
		return tutti_broadcast(send, recv, c->count, c->dtype, root, c->comm, &c->part);
	g->counts[root][root] = c->count;
	return tutti_all_gatherv(send, recv, g->counts[root], NULL, c->dtype, c->comm, &c->part);
}

static tutti_status block_call_all_gather_each_start_next(struct gather *g)
{
	int place = g->started % BLOCK_BUFFERS;

	if (g->next == g->call.rank)
		return block_call_all_gather_each_start(g, g->own, g->own_recv, &g->own_work);
	g->started++;
	return block_call_all_gather_each_start(g, NULL, g->buffers.data[place], &g->works[place]);
}

/* Broadcasts begin in the order of ranks everywhere. Of other ranks' no more than limit begin. */
static bool block_call_start_until(struct gather *g, int limit)
{
	struct block_call *c = &g->call;

	for (; g->next < c->size; g->next++) {
		if (g->next != c->rank && g->started == limit)
			break;
		if (!block_call_is_well(c, g->next, block_call_all_gather_each_start_next(g)))
			return false;
	}
	return true;
}

/* Goes on when fn has failed, since the other ranks need this one's block and its calls. */
static void block_call_broadcast_all(struct gather *g)
{
	struct block_call *c = &g->call;
	bool is_well = block_call_start_until(g, BLOCK_BUFFERS);

	if (is_well)
		block_call_fn(c, c->rank, g->own);
	for (int i = 0; is_well && i < c->size - 1; i++) {
		int rank = block_call_other_rank(c, i), place = i % BLOCK_BUFFERS;

		is_well = block_call_wait(c, rank, &g->works[place]);
		if (is_well)
			block_call_fn(c, rank, g->buffers.data[place]);
		is_well = is_well && block_call_start_until(g, i + 1 + BLOCK_BUFFERS);
	}
	for (int place = 0; place < BLOCK_BUFFERS; place++)
		block_call_wait(c, -1, &g->works[place]);
	block_call_wait(c, c->rank, &g->own_work);
}

/* No rank returns before all have seen its block. */
static void block_call_show_all(struct gather *g, const struct block_offer *offers)
{
	struct block_call *c = &g->call;

	block_call_fn(c, c->rank, g->own);
	for (int i = 0; i < c->size - 1; i++) {
		int rank = block_call_other_rank(c, i);
		block_call_fn(c, rank, tutti_mem_at(&offers[rank].place, c->bytes, c->comm));
	}
	block_call_is_well(c, -1, tutti_barrier(c->comm, &c->part));
}

/* Algorithms of messages may send the root what it has. */
static void block_call_hand_over_all(struct gather *g)
{
	struct block_offer *offers = g->buffers.data[0];
	enum block_way way = block_reach(&g->call, g->own, offers);
	bool is_by_window = way == BLOCKS_BY_WINDOW && !getenv("TUTTI_ALGO");

	g->own_recv = is_by_window ? g->own : g->buffers.spare;
	if (way == BLOCKS_REACHED)
		block_call_show_all(g, offers);
	else if (way != BLOCKS_NOT)
		block_call_broadcast_all(g);
}

tutti_status tutti_all_gather_each(const void *send, size_t count, tutti_dtype dtype,
				   tutti_block_fn fn, void *arg, tutti_comm *comm,
				   const tutti_call *call)
{
	struct gather g = {.call = {.name = "tutti_all_gather_each",
				    .count = count,
				    .dtype = dtype,
				    .fn = fn,
				    .arg = arg,
				    .comm = comm},
			   .own = (void *)(uintptr_t)send};
	struct block_call *c = &g.call;

	TRY(block_call_begin(c, send, call));
	size_t offers = (size_t)c->size * sizeof(struct block_offer);
	if (block_call_has_memory(
		    c, block_buffers_take(&g.buffers, c->bytes > offers ? c->bytes : offers))) {
		block_call_hand_over_all(&g);
		block_buffers_give_back(&g.buffers);
	}
	return kept_error_return(&c->failure);
}
