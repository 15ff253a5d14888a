/* Calls of the window's tests: buffers laid out and filled, the call made, every byte looked at.
 * See window_team.h. */
#include "window_team.h"

#include "core/clock.h"
#include "core/status.h"
#include "core/memory/dtype.h"
#include "core/memory/ops.h"

#include <sched.h>
#include <string.h>

#define GUARD 64

bool call_is_v(enum collective collective)
{
	return collective >= COLL_ALL_GATHERV && collective <= COLL_ALL_TO_ALLV;
}

/* Very unequal: none, all, few, any; and now and then none at all. */
size_t call_block(const struct call *call, int from, int to)
{
	uint64_t h;

	if (!call_is_v(call->collective))
		return call->count;
	if (call->collective != COLL_ALL_TO_ALLV)
		from = 0;
	h = team_random(call->seed, (uint64_t)from + 500, (uint64_t)to);
	if (team_random(call->seed, 8, 8) % 16 == 0)
		return 0;
	switch (h % 4) {
	case 0:
		return 0;
	case 1:
		return call->count;
	case 2:
		return h / 4 % 5 < call->count ? h / 4 % 5 : call->count;
	default:
		return h / 4 % (call->count + 1);
	}
}

/* Lays the blocks of a v-variant out in an order and with gaps of this rank's own. */
static void lay_out(const struct call *call, int rank, int which, struct side *side)
{
	uint64_t h = team_random(call->seed, (uint64_t)rank + 700, (uint64_t)which);
	bool is_v = call_is_v(call->collective) && side->blocks > 1;
	int n = side->blocks, step = is_v && h % 2 ? n - 1 : 1;
	int block = is_v ? (int)(h / 2 % (uint64_t)n) : 0;

	side->end = 0;
	for (int i = 0; i < n; i++, block = (block + step) % n) {
		if (is_v)
			side->end += team_random(h, (uint64_t)i, 1) % 4 * (h / 64 % 3);
		side->first[block] = side->end;
		side->end += side->count[block];
	}
}

/* rank's side of the call, with the counts of its blocks. */
static struct side side_of(const struct call *call, int rank, int size, int which)
{
	enum collective pattern = collective_pattern(call->collective);
	bool is_root = rank == call->root, sends = which == SEND_SIDE;
	struct side side = {.blocks = 1};

	if (pattern == COLL_BARRIER)
		side.blocks = 0;
	else if (pattern == COLL_ALL_TO_ALL ||
		 pattern == (sends ? COLL_REDUCE_SCATTER : COLL_ALL_GATHER))
		side.blocks = size;
	else if (pattern == (sends ? COLL_SCATTER : COLL_GATHER))
		side.blocks = is_root ? size : 0;
	else if (pattern == COLL_REDUCE && !sends && !is_root)
		side.blocks = 0;
	for (int i = 0; i < side.blocks; i++) {
		int peer = side.blocks > 1 ? i : rank;
		side.count[i] = sends ? call_block(call, rank, peer) : call_block(call, peer, rank);
		if (call->collective != COLL_ALL_TO_ALLV)
			side.count[i] = call_block(call, 0, peer);
	}
	lay_out(call, rank, which, &side);
	return side;
}

static size_t longest(const struct call *call, int size, int which)
{
	size_t most = 0;

	for (int rank = 0; rank < size; rank++) {
		struct side side = side_of(call, rank, size, which);
		most = side.end > most ? side.end : most;
	}
	return most * dtype_bytes(call->dtype);
}

size_t call_send_bytes(const struct call *call, int size)
{
	return longest(call, size, SEND_SIDE);
}

size_t call_recv_bytes(const struct call *call, int size)
{
	return longest(call, size, RECV_SIDE);
}

static void add_i32(void *inout, const void *in, size_t count, tutti_dtype dtype, void *arg)
{
	int32_t *x = inout;
	const int32_t *y = in;

	team_check(dtype == TUTTI_I32 && arg == NULL, "wrong arguments");
	for (size_t i = 0; i < count; i++)
		x[i] += y[i];
}

tutti_op call_op(const struct call *call, int rank)
{
	tutti_op op = call->op;
	uint8_t scalar[8];

	if (op == TEAM_SCALED) {
		call_put(scalar, call->dtype, call_scalar(call, rank));
		team_check(op_add_scaled(&op, scalar, call->dtype) == TUTTI_OK, "%s", last_error());
	} else if (op == TEAM_USER) {
		team_check(op_add_user(&op, "team", (struct op_user){add_i32, NULL}) == TUTTI_OK,
			   "%s", last_error());
	}
	return op;
}

struct call_args call_args_for(const struct call *call, const void *send, void *recv)
{
	uint64_t print = team_random((uint64_t)call->collective << 32 | (uint64_t)call->dtype,
				     (uint64_t)call->op << 32 | (uint64_t)call->root, call->count);

	return (struct call_args){.collective = call->collective,
				  .dtype = call->dtype,
				  .op = call->op,
				  .root = call->root,
				  .count = call->count,
				  .send = send,
				  .recv = recv,
				  .sequence = call->seed,
				  .fingerprint = (uint32_t)print | 1};
}

static void make_room(struct made *m, int which, const struct side *side, uint8_t *arena,
		      size_t shift)
{
	m->room_bytes[which] = side->end * dtype_bytes(m->call.dtype) + 2 * GUARD + shift;
	m->rooms[which] = arena ? arena : malloc(m->room_bytes[which]);
	m->before[which] = malloc(m->room_bytes[which]);
	memset(m->before[which], 0xa5, m->room_bytes[which]);
	m->buffers[which] = m->rooms[which] + GUARD + shift;
}

/* In place there is one room, and the shorter buffer is a part of the longer one. */
static void make_rooms(struct made *m)
{
	size_t each = dtype_bytes(m->call.dtype);
	enum collective pattern = collective_pattern(m->call.collective);
	bool in_place = m->manner.is_in_place && m->send.blocks && m->recv.blocks &&
			pattern != COLL_ALL_TO_ALL;
	bool recv_is_longer = m->recv.blocks > m->send.blocks;

	for (int which = 0; which < 2; which++)
		m->rooms[which] = m->before[which] = m->buffers[which] = NULL;
	if (m->send.blocks && !(in_place && recv_is_longer))
		make_room(m, SEND_SIDE, &m->send, m->manner.send_arena, m->manner.send_shift);
	if (m->recv.blocks && !(in_place && !recv_is_longer))
		make_room(m, RECV_SIDE, &m->recv, m->manner.recv_arena, m->manner.recv_shift);
	if (in_place && recv_is_longer)
		m->buffers[SEND_SIDE] = m->buffers[RECV_SIDE] + m->recv.first[m->rank] * each;
	else if (in_place)
		m->buffers[RECV_SIDE] = m->buffers[SEND_SIDE] +
					(m->send.blocks > 1 ? m->send.first[m->rank] : 0) * each;
	if (m->send.blocks && !(pattern == COLL_BROADCAST && m->rank != m->call.root))
		made_fill(m, SEND_SIDE);
	for (int which = 0; which < 2; which++) {
		if (m->rooms[which])
			memcpy(m->rooms[which], m->before[which], m->room_bytes[which]);
	}
}

/* The arrays of a v-variant, as calls.h describes them. */
static void set_counts(struct made *m, struct call_args *args)
{
	bool is_pairwise = m->call.collective == COLL_ALL_TO_ALLV;

	args->count = 0;
	for (int which = 0; which < 2; which++) {
		const struct side *side = which == SEND_SIDE ? &m->send : &m->recv;
		const struct side *other = which == SEND_SIDE ? &m->recv : &m->send;
		for (int i = 0; i < m->size; i++) {
			m->counts[which][i] =
				is_pairwise ? side->count[i] : call_block(&m->call, 0, i);
			m->offsets[which][i] = side->blocks == m->size    ? side->first[i]
					       : other->blocks == m->size ? other->first[i]
									  : 0;
			if (which == SEND_SIDE && !is_pairwise)
				args->count += m->counts[which][i];
		}
		args->counts[which] = m->counts[which];
		args->offsets[which] = m->offsets[which];
	}
	args->fingerprint ^= (uint32_t)team_random(m->call.seed, 3, 3) << 1;
}

void made_begin(struct made *m, struct window *window, int rank, const struct call *call,
		const struct manner *manner)
{
	struct call_args args;

	m->call = *call;
	m->manner = *manner;
	m->window = window;
	m->rank = rank;
	m->send = side_of(call, rank, m->size, SEND_SIDE);
	m->recv = side_of(call, rank, m->size, RECV_SIDE);
	make_rooms(m);
	args = call_args_for(call, m->send.end ? m->buffers[SEND_SIDE] : NULL,
			     m->recv.end ? m->buffers[RECV_SIDE] : NULL);
	args.op = m->op = call_reduces(call->collective) ? call_op(call, rank) : TUTTI_SUM;
	if (call_is_v(call->collective))
		set_counts(m, &args);
	window_begin(window, &m->run, &args);
}

static void compare(const struct made *m, int which, const uint8_t *want)
{
	const struct call *call = &m->call;

	for (size_t i = 0; i < m->room_bytes[which]; i++) {
		long at = (long)i - (m->buffers[which] - m->rooms[which]);
		team_check(m->rooms[which][i] == want[i],
			   "rank %d of %d: %s(%s, %s, count %zu, root %d, seed %llu): byte %ld of "
			   "%s is "
			   "%d, not %d",
			   m->rank, m->size, collective_name(call->collective),
			   dtype_name(call->dtype), op_name(m->op), call->count, call->root,
			   (unsigned long long)call->seed, at, which == SEND_SIDE ? "send" : "recv",
			   m->rooms[which][i], want[i]);
	}
}

/* Every byte of the rooms is as before, but the result. */
void made_check(struct made *m)
{
	if (m->recv.blocks)
		made_fill(m, RECV_SIDE);
	for (int which = 0; which < 2; which++) {
		uint8_t *arena = which == SEND_SIDE ? m->manner.send_arena : m->manner.recv_arena;
		if (!m->rooms[which])
			continue;
		if (memcmp(m->rooms[which], m->before[which], m->room_bytes[which]))
			compare(m, which, m->before[which]);
		free(m->before[which]);
		if (!arena)
			free(m->rooms[which]);
	}
	op_remove(m->op);
}

static tutti_status advance_until_done(struct window *window, struct window_run *run)
{
	uint64_t deadline = clock_now_ns() + TEAM_TIMEOUT_NS;
	tutti_status status;
	bool moved;

	while ((status = window_advance(window, run, &moved)) == TUTTI_IN_PROGRESS) {
		team_check(clock_now_ns() < deadline, "an asynchronous run hangs");
		if (!moved)
			sched_yield();
	}
	return status;
}

void call_make(struct window *window, int rank, int size, const struct call *call,
	       const struct manner *manner)
{
	struct made made = {.size = size};
	tutti_status status;

	made_begin(&made, window, rank, call, manner);
	status = manner->is_async
			 ? advance_until_done(window, &made.run)
			 : window_drive(window, &made.run, TEAM_TIMEOUT_NS, NULL, NULL, NULL);
	team_check(status == TUTTI_OK, "rank %d: %s", rank, last_error());
	made_check(&made);
}
