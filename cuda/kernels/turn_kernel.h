/* Calls by turns: of ranks whose kernels cannot run at the same time, since processes share a GPU.
 * No kernel waits: one stages and tells, one moves what all have staged; channel.h has the order.
 *
 * Each rank reduces itself all that it wants, from what all ranks have staged. To reduce slices, as
 * lines do, is less traffic at memory, and one more turn: that costs more. */
#ifndef CUDA_KERNELS_TURN_KERNEL_H
#define CUDA_KERNELS_TURN_KERNEL_H

#include "cuda/kernels/lines_kernel.h"

/* In the rank's own segment; the peers read it. */
DEVICE struct channel_greeting *turn_greeting(const struct lines_call *l, uint32_t from, uint32_t to)
{
	return &segment_of(l->call.args, from)->channels[0].greetings[l->turn->turn & 1][to];
}

DEVICE uint64_t turn_word(const struct lines_call *l)
{
	return (uint64_t)l->turn->turn << 32 | l->a->channel.fingerprint;
}

DEVICE void turn_greet(const struct lines_call *l, uint32_t to)
{
	struct channel_greeting *g = turn_greeting(l, l->rank, to);

	store_8(&g->fields[GREETING_BYTES], l->a->send_bytes[to], 8);
	store_8(&g->word, turn_word(l), 8);
}

/* The last block to come here has all others' stores behind it. Blocks of a call that has failed do
 * not come, and so nobody is told. */
DEVICE int turn_is_last(const struct lines_call *l)
{
	uint64_t *staged = &segment_of(l->call.args, l->rank)->staged;

	if (add_flag(staged, 1) + 1 < l->channels)
		return 0;
	store_relaxed(staged, 0);
	return 1;
}

DEVICE void turn_tell(const struct lines_call *l, uint32_t to)
{
	store_release_16(&l->turn->pages[to]->flags[l->rank].turn, turn_bit(l->turn->turn));
}

DEVICE void turn_stage(const struct lines_call *l, int *is_last)
{
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0) {
			if (l->turn->chunk == 0)
				channel_started(&l->call);
			*is_last = 0;
			l->s->has_failed = channel_is_aborted(&l->call) != 0;
		}
	block_barrier();
	if (l->s->has_failed)
		return;
	stage(l, l->turn->chunk);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (thread_and_rank(l, t) && l->call.index == 0)
			turn_greet(l, (uint32_t)t);
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0)
			*is_last = turn_is_last(l);
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (*is_last && thread_and_rank(l, t) && (uint32_t)t != l->rank)
			turn_tell(l, (uint32_t)t);
}

/* Whether a peer has made the same call. */
DEVICE void turn_compare(const struct lines_call *l, uint32_t from)
{
	const struct channel_greeting *g = turn_greeting(l, from, l->rank);
	uint64_t word = load_8(&g->word, 8), bytes = load_8(&g->fields[GREETING_BYTES], 8);

	if (word != turn_word(l))
		channel_fail(&l->call, CHANNEL_OTHER_CALL, from, (uint32_t)word, 0, 0);
	else if (l->a->move == CHANNEL_PULL && bytes != l->a->recv_bytes[from])
		channel_fail(&l->call, CHANNEL_OTHER_BYTES, from, l->a->channel.fingerprint, bytes,
			     l->a->recv_bytes[from]);
	else
		return;
	l->s->has_failed = 1;
}

DEVICE void turn_reduce(const struct lines_call *l)
{
	const struct lines_args *a = l->a;
	struct share share = chunk_share(l, a->send_bytes[l->rank], l->turn->chunk);

	if (a->move == CHANNEL_REDUCE_SLICES && !gets_slices(a, l->rank))
		return;
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (!thread_and_rank(l, t))
			continue;
		l->s->src[t] = piece_of(l, (uint32_t)t, l->turn->chunk, l->rank);
		l->s->dst[t] = (char *)a->recv + share.first;
	}
	lines_reduce(l, 1, share.bytes, (const char *)0, (char *)0);
}

/* This rank's stream goes on through the turns that are still in it: their kernels do nothing. */
DEVICE void turn_release(const struct lines_call *l, uint32_t peer)
{
	store_release_16(&l->turn->pages[l->rank]->flags[peer].released, 1);
}

DEVICE void turn_move(const struct lines_call *l)
{
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (t == 0)
			l->s->has_failed = channel_is_aborted(&l->call) != 0;
	block_barrier();
	/* After an abort the stream may be here before a peer has staged. */
	int is_aborted = l->s->has_failed;
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (!is_aborted && thread_and_rank(l, t))
			turn_compare(l, (uint32_t)t);
	block_barrier();
	if (!l->s->has_failed && l->a->move == CHANNEL_PULL)
		pull_staged(l, l->turn->chunk);
	else if (!l->s->has_failed)
		turn_reduce(l);
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (l->s->has_failed && thread_and_rank(l, t))
			turn_release(l, (uint32_t)t);
		if (t == 0 && l->turn->chunk + 1 == l->turn->chunks)
			channel_finished(&l->call);
	}
}

DEVICE void turn_body(const struct turn_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct arrivals s;
	BLOCK_SHARED int is_last;
	struct lines_call l = {&a->lines,
			       &s,
			       {&a->lines.channel, block->index, a->call},
			       block->count,
			       a->lines.channel.rank,
			       a->lines.channel.size,
			       a};

	if (a->phase == TURN_STAGE)
		turn_stage(&l, &is_last);
	else
		turn_move(&l);
}
KERNEL(turn)

#endif
