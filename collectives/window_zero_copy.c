/* Buffers that all ranks of the window can reach (tutti_mem_alloc): no staging, two waits in all.
 *
 * When all lines are there, every rank's input is ready and every rank's output may be written.
 * Then all_reduce       each rank loads its slice from all P inputs and stores the result into all
 * P outputs: 2 n bytes of traffic per rank, the least there is reduce_scatter   each rank reduces
 * its block out of all inputs into its own output all_gather       each rank copies the others'
 * inputs broadcast        each rank copies the root's and nobody returns before all have said that
 * they are done with its buffers. */
#include "collectives/window_internal.h"

#include "memory/dtype.h"
#include "memory/reduce.h"

/* What one step moves, so that advance never takes long. */
#define STEP_BYTES (256u << 10)

/* Which ranks' inputs the others read: only the root's, or all. */
static bool is_read(const struct call_args *args, int rank)
{
	return args->collective != COLL_BROADCAST || args->root == rank;
}

void zero_copy_publish(struct window *w, const struct call_args *args, struct line_buffers *buffers)
{
	size_t bytes = args->count * dtype_bytes(args->dtype), all = bytes * (size_t)w->size;
	struct reach send, recv = {0, 0};

	if (!is_read(args, w->rank))
		return;
	send = memory_find(args->send, args->collective == COLL_REDUCE_SCATTER ? all : bytes);
	if (args->collective == COLL_ALL_REDUCE) {
		recv = args->recv == args->send ? send : memory_find(args->recv, bytes);
		if (!recv.id || !memory_base(w, recv.id))
			return;
	}
	if (!send.id || !memory_base(w, send.id))
		return;
	*buffers = (struct line_buffers){send.id, recv.id, send.offset, recv.offset, 0};
}

/* An allocation is usable when the processes that have it include all of this window's. Those that
 * have it all know that, and one that has not is not included: so every rank comes to the same
 * answer. */
static bool find_peer(struct window *w, const struct window_run *run, int rank)
{
	struct line_buffers buffers = line_buffers_of(w, run, rank);
	uint8_t *send = buffers.send_id ? memory_base(w, buffers.send_id) : NULL;
	uint8_t *recv = NULL;

	if (!send)
		return false;
	if (run->args.collective == COLL_ALL_REDUCE) {
		recv = memory_base(w, buffers.recv_id);
		if (!recv)
			return false;
		recv += buffers.recv_offset;
	}
	w->peer_send[rank] = send + buffers.send_offset;
	w->peer_recv[rank] = recv;
	return true;
}

/* What this rank moves, in elements: its share, or (but for all_reduce) as much of each block as
 * all. */
static struct range own_share(const struct window *w, struct window_run *run)
{
	if (run->args.collective == COLL_ALL_REDUCE)
		return share_of(w, run, run->args.count, w->rank);
	return (struct range){0, run->args.count};
}

bool zero_copy_begin(struct window *w, struct window_run *run)
{
	struct range own;

	for (int rank = 0; rank < w->size; rank++) {
		if (is_read(&run->args, rank) && !find_peer(w, run, rank))
			return false;
	}
	own = own_share(w, run);
	run->path = &window_zero_copy;
	run->pieces = 1; /* one generation, of a slot that stays empty */
	run->each = units_of(STEP_BYTES, run);
	run->steps = (uint32_t)((own.count * run->unit + STEP_BYTES - 1) / STEP_BYTES) + 2;
	return true;
}

static void copy(void *dst, const void *src, size_t bytes)
{
	if (dst != src)
		memcpy(dst, src, bytes);
}

static void reduce_part(struct window *w, struct window_run *run, size_t first, size_t count)
{
	size_t each = run->unit;
	bool is_scatter = run->args.collective == COLL_REDUCE_SCATTER;
	size_t from = first + (is_scatter ? (size_t)w->rank * run->args.count : 0);
	int outputs = is_scatter ? 1 : w->size;

	for (int rank = 0; rank < w->size; rank++) {
		w->src[rank] = w->peer_send[rank] + from * each;
		w->dst[rank] = w->peer_recv[rank] + first * each;
	}
	if (is_scatter)
		w->dst[0] = (uint8_t *)run->args.recv + first * each;
	reduce(w->dst, outputs, w->src, w->size, count, run->args.dtype, run->args.op, w->size);
}

static void gather_part(struct window *w, struct window_run *run, size_t first, size_t count)
{
	size_t each = run->unit;

	for (int i = 1; i <= w->size; i++) {
		int rank = (w->rank + i) % w->size;
		size_t to = (size_t)rank * run->args.count + first;
		const void *from = rank == w->rank ? run->args.send : w->peer_send[rank];
		copy((uint8_t *)run->args.recv + to * each, (const uint8_t *)from + first * each,
		     count * each);
	}
}

static void move_part(struct window *w, struct window_run *run, size_t first, size_t count)
{
	size_t each = run->unit;
	int root = run->args.root;

	switch (run->args.collective) {
	case COLL_ALL_GATHER:
		gather_part(w, run, first, count);
		break;
	case COLL_BROADCAST:
		copy((uint8_t *)run->args.recv + first * each,
		     (root == w->rank ? (const uint8_t *)run->args.send : w->peer_send[root]) +
			     first * each,
		     count * each);
		break;
	default:
		reduce_part(w, run, first, count);
	}
}

/* The last step waits until the others are done with this rank's buffers. */
static struct need zero_copy_need(const struct window *w, const struct window_run *run)
{
	struct need need = {WORD_TAKEN, 0, -1};
	if (run->step == run->steps - 1 && is_read(&run->args, w->rank))
		need.value = w->generation + 1;
	return need;
}

static tutti_status zero_copy_step(struct window *w, struct window_run *run)
{
	struct range own;
	size_t done = (size_t)run->step * run->each;

	if (run->step == run->steps - 1)
		return TUTTI_OK;
	if (run->step == run->steps - 2) {
		word_post(w, WORD_TAKEN, w->generation + 1);
		return TUTTI_OK;
	}
	own = own_share(w, run);
	own.count = own.count - done < run->each ? own.count - done : run->each;
	move_part(w, run, own.first + done, own.count);
	return TUTTI_OK;
}

const struct window_path window_zero_copy = {"zero copy", zero_copy_need, zero_copy_step};
