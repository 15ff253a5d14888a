/* Calls by turns: of ranks whose kernels cannot run at the same time, since processes share a GPU.
 * One kernel stages what a rank sends, where the leaders do not map it; one of the leader moves
 * what its locals get; one takes what the leader has put into a rank's staging. No kernel waits for
 * another one; channel.h has the order.
 *
 * The leader's kernel does all the work of its GPU: a process without a kernel in a call costs no
 * time slice. */
#ifndef CUDA_KERNELS_TURN_KERNEL_H
#define CUDA_KERNELS_TURN_KERNEL_H

#include "cuda/kernels/lines_kernel.h"

static_assert(TURN_THREADS == THREADS_OF_turn && TURN_THREADS == LINE_THREADS, "one block size");

DEVICE struct channel_segment *turn_segment(const struct lines_call *l)
{
	return segment_of(l->call.args, l->rank);
}

/* There are more blocks than channels have records. */
DEVICE int turn_is_aborted(const struct lines_call *l)
{
	struct channel_call call = {l->call.args, l->call.index % CHANNELS_MOST, 0};

	return channel_is_aborted(&call) != 0;
}

DEVICE int turn_serves(const struct lines_call *l, uint32_t rank)
{
	return (l->turn->locals >> rank & 1u) != 0;
}

/* ---- the postings: one block reads them in the memory of the host, where many blocks that read
 * the same word are served one after the other, and the others wait until they lie on the
 * GPU ---- */

DEVICE const uint64_t *turn_posted(const struct lines_call *l, uint32_t rank)
{
	return (const uint64_t *)&l->turn->pages[rank]->postings[l->turn->slot];
}

DEVICE const struct turn_posting *turn_posting_of(const struct lines_call *l, uint32_t rank)
{
	return &turn_segment(l)->postings[rank];
}

DEVICE uint64_t turn_gathered(const struct lines_call *l, int has_failed)
{
	return ((uint64_t)l->turn->turn + 1) << 1 | (uint64_t)has_failed;
}

/* The buffers of a rank that has failed may be gone. */
DEVICE void turn_look_at_rank(const struct lines_call *l, uint32_t rank)
{
	if (load_relaxed(&l->turn->pages[rank]->has_failed) != 0)
		l->s->has_failed = 1;
}

/* All that this block wants of the host at once, each by threads of its own: a load takes as long
 * as the bus. */
DEVICE void turn_read_host(const struct lines_call *l)
{
	uint32_t words = TURN_POSTING_WORDS(l->size), half = LINE_THREADS / 2;

	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (t == LINE_THREADS - 1 && turn_is_aborted(l))
			l->s->has_failed = 1;
		if ((uint32_t)t >= half && (uint32_t)t - half < l->size)
			turn_look_at_rank(l, (uint32_t)t - half);
		for (uint32_t i = (uint32_t)t; i < l->size * words; i += LINE_THREADS) {
			uint64_t word = load_8(turn_posted(l, i / words) + i % words, 8);
			store_8((uint64_t *)&turn_segment(l)->postings[i / words] + i % words, word,
				8);
		}
	}
	block_barrier();
}

/* This rank's stream goes on through the turns that are still in it: their kernels do nothing. */
DEVICE void turn_release(const struct lines_call *l)
{
	struct turn_page *own = l->turn->pages[l->rank];

	for (uint32_t r = 0; r < l->size; r++) {
		store_release_32(&own->posted[r].released, 1);
		store_release_32(&own->done[r].released, 1);
	}
}

/* Whether a peer has made the same call. */
DEVICE int turn_is_alike(const struct lines_call *l, uint32_t peer)
{
	uint32_t theirs = (uint32_t)load_8(&turn_posting_of(l, peer)->fingerprint, 8);

	if (theirs == l->a->channel.fingerprint)
		return 1;
	channel_fail(&l->call, CHANNEL_OTHER_CALL, peer, theirs, 0, 0);
	turn_release(l);
	l->s->has_failed = 1;
	return 0;
}

/* A place becomes an address; 0: in the staging. */
DEVICE void turn_find(const struct lines_call *l, uint32_t rank, uint64_t *place)
{
	char *address = (char *)0;

	reach_place(l, rank, load_8(place, 8), &address);
	store_8(place, (uint64_t)(uintptr_t)address, 8);
}

DEVICE void turn_understand(const struct lines_call *l, uint32_t rank)
{
	struct turn_posting *p = &turn_segment(l)->postings[rank];

	if (!turn_is_alike(l, rank))
		return;
	turn_find(l, rank, &p->send);
	turn_find(l, rank, &p->recv);
}

/* The leader looks who has failed only after this. Partner: cuda_turns_use_buffers, which the host
 * of a rank that fails calls after cuda_turns_release. */
DEVICE void turn_say_moves(const struct lines_call *l)
{
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0) {
			store_release_32(&l->turn->pages[l->rank]->moves, 1);
			fence_system();
		}
	block_barrier();
}

DEVICE void turn_gather(const struct lines_call *l)
{
	turn_say_moves(l);
	turn_read_host(l);
	/* After an abort the stream may be here before a peer has posted. */
	int has_failed = l->s->has_failed;
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (!has_failed && thread_and_rank(l, t))
			turn_understand(l, (uint32_t)t);
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0)
			store_release(&turn_segment(l)->gathered,
				      turn_gathered(l, l->s->has_failed));
	block_barrier();
}

/* By one thread: for the first block, which waits for none. */
DEVICE void turn_await_gathered(const struct lines_call *l)
{
	struct channel_call call = {l->call.args, l->call.index % CHANNELS_MOST, 0};
	unsigned turns = 0;
	uint64_t word;

	while ((word = load_acquire(&turn_segment(l)->gathered)) >> 1 != turn_gathered(l, 0) >> 1)
		if (wait_fails(&call, &turns)) {
			l->s->has_failed = 1;
			return;
		}
	l->s->has_failed = (int)(word & 1);
}

DEVICE void turn_reach(const struct lines_call *l, uint32_t rank)
{
	const struct turn_posting *p = turn_posting_of(l, rank);

	l->s->send[rank] = (char *)(uintptr_t)load_8(&p->send, 8);
	l->s->recv[rank] = (char *)(uintptr_t)load_8(&p->recv, 8);
}

/* ---- buffers and staging ---- */

/* The staging of a local for bytes of rank `from`, or for the sum. */
DEVICE char *turn_result(const struct lines_call *l, uint32_t local, uint32_t from)
{
	uint32_t before = (l->a->send_is_same ? 1 : l->size) +
			  (l->a->move == CHANNEL_PULL ? from : 0);

	return staged_half(l, local, 0) + before * piece_bytes(l);
}

/* Where rank `from` has its bytes for rank `to`, `first` being that of turn and block. */
DEVICE char *turn_source(const struct lines_call *l, uint32_t from, uint32_t to, uint64_t first)
{
	if (!l->s->send[from])
		return piece_of(l, from, 0, to);
	return l->s->send[from] + load_8(&turn_posting_of(l, from)->peers[to].send_offset, 8) +
	       first;
}

DEVICE char *turn_target(const struct lines_call *l, uint32_t local, uint32_t from, uint64_t first)
{
	if (!l->s->recv[local])
		return turn_result(l, local, from);
	return l->s->recv[local] + first +
	       (l->a->move == CHANNEL_PULL
			? load_8(&turn_posting_of(l, local)->peers[from].recv_offset, 8)
			: 0);
}

/* Piece number n of those that ranks send to locals: by `threads` threads, of which this is one. */
DEVICE void turn_copy(const struct lines_call *l, uint32_t n, uint64_t thread, uint64_t threads)
{
	uint32_t local = n / l->size, from = (local + n) % l->size;
	struct share share;

	if (!turn_serves(l, local))
		return;
	share = chunk_share(l, load_8(&turn_posting_of(l, local)->peers[from].recv_bytes, 8),
			    l->turn->chunk);
	if (share.bytes)
		copy_bytes(turn_target(l, local, from, share.first),
			   turn_source(l, from, local, share.first), share.bytes, thread, threads);
}

DEVICE void turn_pull(const struct lines_call *l)
{
	uint32_t width = l->turn->copiers, groups = LINE_THREADS / width;

	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		for (uint32_t n = (uint32_t)t / width; n < l->size * l->size; n += groups)
			turn_copy(l, n, (uint32_t)t % width, width);
}

/* The sum of what all send to `to`, for all locals that are in targets. */
DEVICE void turn_reduce(const struct lines_call *l, uint32_t to, uint32_t targets)
{
	struct share share = chunk_share(l, l->a->send_bytes[to], l->turn->chunk);
	int n_dst = 0;

	for (uint32_t r = 0; r < l->size; r++)
		n_dst += (int)(targets >> r & 1u);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		uint32_t r = (uint32_t)t, before = 0;
		if (!thread_and_rank(l, t))
			continue;
		l->s->src[r] = turn_source(l, r, to, share.first);
		for (uint32_t k = 0; k < r; k++)
			before += targets >> k & 1u;
		if (targets >> r & 1u)
			l->s->dst[before] = turn_target(l, r, 0, share.first);
	}
	if (n_dst && share.bytes)
		lines_reduce(l, n_dst, share.bytes, (const char *)0, (char *)0);
	block_barrier();
}

/* Blocks of reduce_scatter, or the whole for all who get it. */
DEVICE void turn_move_chunk(const struct lines_call *l)
{
	const struct lines_args *a = l->a;

	if (a->move == CHANNEL_PULL)
		turn_pull(l);
	else if (a->move == CHANNEL_REDUCE_SLICES)
		turn_reduce(l, l->rank,
			    a->root < 0 ? l->turn->locals : l->turn->locals & 1u << a->root);
	else
		for (uint32_t r = 0; r < l->size; r++)
			if (turn_serves(l, r))
				turn_reduce(l, r, 1u << r);
}

/* ---- the phases ---- */

/* The last block to have moved has all others' stores behind it, and tells, unless a rank has
 * failed: that one's buffers may have changed before they were read. Then nobody is told, this
 * rank's own stream neither, until the hosts end all waits. */
DEVICE int turn_is_last(const struct lines_call *l)
{
	struct channel_segment *segment = turn_segment(l);
	uint64_t moved = 1 | (uint64_t)l->s->has_failed << 32;

	if (l->channels == 1)
		return 1;
	moved += add_flag(&segment->moved, moved);
	l->s->has_failed = moved >> 32 != 0;
	if ((uint32_t)moved < l->channels)
		return 0;
	store_relaxed(&segment->came, 0);
	store_relaxed(&segment->moved, 0);
	return 1;
}

DEVICE void turn_leave(const struct lines_call *l, int *is_last)
{
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0)
			*is_last = turn_is_last(l);
	block_barrier();
	if (!*is_last)
		return;
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0)
			store_release_32(&l->turn->pages[l->rank]->moves, 0);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (thread_and_rank(l, t))
			turn_look_at_rank(l, (uint32_t)t);
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (!l->s->has_failed && thread_and_rank(l, t))
			store_release_32(&l->turn->pages[t]->done[l->rank].turn,
					 turn_mark(l->turn->turn));
}

DEVICE void turn_move(const struct lines_call *l, int *is_first)
{
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0) {
			l->s->has_failed = 0;
			*is_first =
				l->channels == 1 || add_flag(&turn_segment(l)->came, 1) == 0;
		}
	block_barrier();
	if (*is_first)
		turn_gather(l);
	else
		for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
			if (t == 0)
				turn_await_gathered(l);
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (!l->s->has_failed && thread_and_rank(l, t))
			turn_reach(l, (uint32_t)t);
	block_barrier();
	if (!l->s->has_failed)
		turn_move_chunk(l);
	turn_leave(l, is_first);
}

DEVICE void turn_take(const struct lines_call *l)
{
	const struct lines_args *a = l->a;
	struct share share;

	if (a->move == CHANNEL_REDUCE_SLICES && !gets_slices(a, l->rank))
		return;
	for (uint32_t from = 0; from < (a->move == CHANNEL_PULL ? l->size : 1); from++) {
		share = chunk_share(l,
				    a->move == CHANNEL_PULL ? a->recv_bytes[from]
							    : a->send_bytes[l->rank],
				    l->turn->chunk);
		lines_copy((char *)a->recv + share.first +
				   (a->move == CHANNEL_PULL ? a->recv_offset[from] : 0),
			   turn_result(l, l->rank, from), share.bytes);
	}
}

DEVICE void turn_body(const struct turn_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct arrivals s;
	BLOCK_SHARED int is_one;
	struct lines_call l = {&a->lines,
			       &s,
			       {&a->lines.channel, block->index, 0},
			       block->count,
			       a->lines.channel.rank,
			       a->lines.channel.size,
			       a};

	if (a->phase == TURN_MOVE) {
		turn_move(&l, &is_one);
		return;
	}
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0)
			s.has_failed = turn_is_aborted(&l);
	block_barrier();
	if (s.has_failed)
		return;
	if (a->phase == TURN_STAGE)
		stage(&l, a->chunk);
	else
		turn_take(&l);
}
KERNEL(turn)

#endif
