/* Steps that kernels of long calls share, by lines and by turns: to greet, arrive and meet, and to
 * reduce and copy by a block. */
#ifndef CUDA_KERNELS_LINES_CORE_H
#define CUDA_KERNELS_LINES_CORE_H

#include "cuda/kernels/channel_core.h"
#include "cuda/kernels/copy_core.h"
#include "cuda/kernels/multicast_core.h"
#include "cuda/kernels/scale_core.h"

#define LINE_THREADS THREADS_OF_lines

/* The block's knowledge of all ranks once they have arrived. */
struct arrivals {
	char *send[CHANNEL_RANKS], *recv[CHANNEL_RANKS]; /* if they are mapped */
	int send_is_mapped[CHANNEL_RANKS], recv_is_mapped[CHANNEL_RANKS];
	/* Where all ranks' parts lie, with this offset, by multicast; 0: nowhere. */
	uint64_t send_multicast[CHANNEL_RANKS], recv_multicast[CHANNEL_RANKS];
	uint64_t most[CHANNEL_RANKS];
	const void *src[CHANNEL_RANKS]; /* of a reduction */
	void *dst[CHANNEL_RANKS];
	int has_failed;
};

/* All that the phases share, the same for all threads. */
struct lines_call {
	const struct lines_args *a;
	struct arrivals *s;
	struct channel_call call;
	uint32_t channels, rank, size;
	const struct turn_args *turn; /* by turns; NULL: this kernel does all chunks */
};

DEVICE int thread_and_rank(const struct lines_call *l, int t)
{
	return (uint32_t)t < l->size;
}

DEVICE uint64_t place_plus(uint64_t place, uint64_t offset)
{
	return place == CHANNEL_NOWHERE ? place : place + offset;
}

/* The address here of a place of another rank's. Returns whether there is one. */
DEVICE int reach_place(const struct lines_call *l, uint32_t rank, uint64_t place, char **address)
{
	const uint64_t *regions = l->a->channel.regions + rank * CHANNEL_REGIONS;

	if (place == CHANNEL_NOWHERE)
		return 0;
	uint64_t base = place >> 56 ? load_8(&regions[place >> 56], 8) : 0;
	*address = (char *)(uintptr_t)(base + (place << 8 >> 8));
	return 1;
}

/* Two ranks' places have the same, and not 0, where both are in one region, equally far. */
DEVICE uint64_t multicast_of(const struct lines_call *l, uint32_t rank, uint64_t place)
{
	const uint64_t *regions = l->a->channel.regions + rank * CHANNEL_REGIONS;
	uint64_t base;

	if (!HAS_MULTICAST || !l->a->may_multicast || place == CHANNEL_NOWHERE)
		return 0;
	base = load_8(&regions[CHANNEL_MULTICAST + (place >> 56)], 8);
	return base ? base + (place << 8 >> 8) : 0;
}

DEVICE uint64_t most_of(const struct lines_args *a)
{
	uint64_t most = 0;

	for (uint32_t r = 0; r < a->channel.size; r++)
		most = a->send_bytes[r] > most ? a->send_bytes[r] : most;
	return most;
}

DEVICE void lines_greet(const struct lines_call *l, uint32_t to)
{
	const struct lines_args *a = l->a;
	struct channel_greeting *g = greeting_of(&l->call, to, l->rank);
	const uint64_t fields[GREETING_FIELDS] = {
		[GREETING_SEND] = place_plus(a->send_place, a->send_offset[to]),
		[GREETING_RECV] = a->recv_place,
		[GREETING_BYTES] = a->send_bytes[to],
		[GREETING_MOST] = most_of(a),
	};

	UNROLL
	for (int f = 0; f < GREETING_FIELDS; f++)
		store_packet(&g->fields[f], packet_of(&l->call, fields[f]));
	channel_publish(&l->call, &g->word, word_of(&l->call, a->channel.fingerprint));
}

DEVICE const uint64_t *lines_steps_of(const struct lines_call *l, uint32_t peer)
{
	return &channel_of(&l->call, l->rank)->steps[peer];
}

/* The step of this call that a peer has told by this word; 0: none. Only after a failure a peer is
 * in a later call: it may have given this one up. */
DEVICE uint32_t lines_step_in(const struct lines_call *l, uint64_t word)
{
	int32_t behind = (int32_t)(l->call.epoch - (uint32_t)(word >> 32));

	if (behind == 0)
		return (uint32_t)word;
	return behind > 0 || word == 0 ? 0 : STEP_ABANDON; /* 0: it was cleared */
}

/* Asks for all at once. The word publishes what the peer's stream has written before. Once a peer
 * has given the call up its buffers are not to be read. */
DEVICE int lines_hear(const struct lines_call *l, uint32_t from, uint64_t *fields)
{
	const struct channel_greeting *g = greeting_of(&l->call, l->rank, from);
	struct packet packets[GREETING_FIELDS];
	unsigned turns = 0;
	int are_there;

	do {
		uint64_t steps = load_relaxed(lines_steps_of(l, from));
		UNROLL
		for (int f = 0; f < GREETING_FIELDS; f++)
			packets[f] = load_packet(&g->fields[f]);
		uint64_t word = load_acquire(&g->word);
		are_there = word >> 32 == l->call.epoch;
		if (are_there && !channel_is_the_same(&l->call, from, word))
			return 0;
		if (lines_step_in(l, steps) == STEP_ABANDON)
			return 0;
		UNROLL
		for (int f = 0; f < GREETING_FIELDS; f++)
			are_there &= packet_is_there(&l->call, packets[f]);
		if (!are_there && wait_fails(&l->call, &turns))
			return 0;
	} while (!are_there);
	UNROLL
	for (int f = 0; f < GREETING_FIELDS; f++)
		fields[f] = data_of(packets[f]);
	return 1;
}

DEVICE void lines_arrive(const struct lines_call *l, uint32_t from)
{
	uint64_t fields[GREETING_FIELDS];

	l->s->most[from] = 0;
	if (!lines_hear(l, from, fields)) {
		l->s->has_failed = 1;
		return;
	}
	l->s->send_is_mapped[from] =
		reach_place(l, from, fields[GREETING_SEND], &l->s->send[from]);
	l->s->recv_is_mapped[from] =
		reach_place(l, from, fields[GREETING_RECV], &l->s->recv[from]);
	l->s->send_multicast[from] = multicast_of(l, from, fields[GREETING_SEND]);
	l->s->recv_multicast[from] = multicast_of(l, from, fields[GREETING_RECV]);
	l->s->most[from] = fields[GREETING_MOST];
	if (l->a->move == CHANNEL_PULL && fields[GREETING_BYTES] != l->a->recv_bytes[from]) {
		channel_fail(&l->call, CHANNEL_OTHER_BYTES, from, l->a->channel.fingerprint,
			     fields[GREETING_BYTES], l->a->recv_bytes[from]);
		l->s->has_failed = 1;
	}
}

/* Waits until peer has done the step; returns 0 if the call fails. */
DEVICE int lines_await(const struct lines_call *l, uint32_t peer, uint32_t step)
{
	unsigned turns = 0;
	uint32_t told;

	while ((told = lines_step_in(l, load_acquire(lines_steps_of(l, peer)))) < step)
		if (wait_fails(&l->call, &turns))
			return 0;
	return told != STEP_ABANDON;
}

/* Every rank tells all, and waits for all. Returns 0 if the call fails. */
DEVICE int lines_meet(const struct lines_call *l, uint32_t step)
{
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (thread_and_rank(l, t))
			channel_tell(&l->call, (uint32_t)t, step);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (thread_and_rank(l, t) && !lines_await(l, (uint32_t)t, step))
			l->s->has_failed = 1;
	block_barrier();
	return !l->s->has_failed;
}

/* Whether peer has arrived, or may have, and has neither left nor given up. */
DEVICE int lines_is_read_by(const struct lines_call *l, uint32_t peer)
{
	uint64_t greeting = load_acquire(&greeting_of(&l->call, l->rank, peer)->word);

	return greeting == word_of(&l->call, l->a->channel.fingerprint) &&
	       lines_step_in(l, load_acquire(lines_steps_of(l, peer))) < STEP_LEAVE;
}

/* The greeting of a peer that has arrived may be on its way. */
DEVICE int lines_may_end(const struct lines_call *l, uint32_t peer, uint64_t told_ns)
{
	uint64_t waited_ns = time_ns() - told_ns;
	int is_over = waited_ns >= ABANDON_MOST_NS ||
		      (waited_ns >= ABANDON_LEAST_NS && !lines_is_read_by(l, peer));

	return is_over && channel_is_aborted(&l->call);
}

/* The call has failed on this rank. Its buffers are the caller's again when this kernel has ended,
 * so peers that arrived before they heard of that, and read the buffers, are waited for; those that
 * arrive later see STEP_ABANDON and do not read them. Ends when the host knows that the call has
 * failed. last: STEP_LEAVE if this rank has told that already. */
DEVICE void lines_abandon(const struct lines_call *l, uint32_t last)
{
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (thread_and_rank(l, t))
			channel_tell(&l->call, (uint32_t)t, last);
	uint64_t told_ns = time_ns();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		while (thread_and_rank(l, t) && !lines_may_end(l, (uint32_t)t, told_ns))
			spin_pause();
	block_barrier();
}

/* Slices go to all ranks, or to the root. */
DEVICE int gets_slices(const struct lines_args *a, uint32_t rank)
{
	return a->root < 0 || (uint32_t)a->root == rank;
}

/* Whether all ranks' are equal, and not 0. */
DEVICE int is_common(const struct lines_call *l, const uint64_t *of_ranks)
{
	int is_equal = of_ranks[0] != 0;

	for (uint32_t r = 1; r < l->size; r++)
		is_equal &= of_ranks[r] == of_ranks[0];
	return is_equal;
}

/* By all threads together: s->dst[0..n) = the reduction of s->src[0..size), bytes of each; with a
 * switch the sources and destinations of all ranks begin at `from` and `to`. */
DEVICE void lines_reduce(const struct lines_call *l, int n_dst, uint64_t bytes, const char *from,
			 char *to)
{
	const struct lines_args *a = l->a;

	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		struct reduce_job job = {l->s->dst,
					 l->s->src,
					 n_dst,
					 (int)l->size,
					 bytes / (uint64_t)element_bytes(a->dtype),
					 a->dtype,
					 a->op,
					 a->divisor,
					 (unsigned)t,
					 LINE_THREADS};
		if (HAS_MULTICAST && from)
			multicast_in_kernel(&job, from, to);
		else
			reduce_in_kernel(&job, 1);
	}
	block_barrier();
}

DEVICE void lines_copy(void *to, const void *from, uint64_t bytes)
{
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		copy_bytes(to, from, bytes, (unsigned)t, LINE_THREADS);
}

/* This channel's part of a buffer of so many bytes. */
DEVICE struct share channel_share(const struct lines_call *l, uint64_t bytes)
{
	struct share all = {0, bytes};

	return share_of(all, l->channels, l->call.index);
}

#endif
