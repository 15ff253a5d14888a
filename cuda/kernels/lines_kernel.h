/* Long calls. Ranks arrive (each greets all and waits for all), move bytes, and leave (each tells
 * all that it is done and waits for all). Where all ranks map the buffers the bytes move from one
 * to the other; else they go through the staging of each segment, chunk by chunk: staged, told and
 * awaited, moved, and for slices stored to where they are wanted, told and awaited once more.
 *
 * Of staging there are two halves, for chunks of even and odd number. A rank stages chunk k + 2
 * when all have told that chunk k + 1 is staged, which each tells after it has moved chunk k. */
#ifndef CUDA_KERNELS_LINES_KERNEL_H
#define CUDA_KERNELS_LINES_KERNEL_H

#include "cuda/kernels/channel_core.h"
#include "cuda/kernels/copy_core.h"
#include "cuda/kernels/multicast_core.h"
#include "cuda/kernels/scale_core.h"

#define LINE_THREADS THREADS_OF_lines
#define STEP_LEAVE   UINT32_MAX

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

/* Asks for all at once. The word publishes what the peer's stream has written before. */
DEVICE int lines_hear(const struct lines_call *l, uint32_t from, uint64_t *fields)
{
	const struct channel_greeting *g = greeting_of(&l->call, l->rank, from);
	struct packet packets[GREETING_FIELDS];
	unsigned turns = 0;
	int are_there;

	do {
		UNROLL
		for (int f = 0; f < GREETING_FIELDS; f++)
			packets[f] = load_packet(&g->fields[f]);
		uint64_t word = load_acquire(&g->word);
		are_there = word >> 32 == l->call.epoch;
		if (are_there && !channel_is_the_same(&l->call, from, word))
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

/* Every rank tells all, and waits for all. Returns 0 if the call fails. */
DEVICE int lines_meet(const struct lines_call *l, uint32_t step)
{
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (thread_and_rank(l, t))
			channel_tell(&l->call, (uint32_t)t, step);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step())
		if (thread_and_rank(l, t) && !channel_await_step(&l->call, (uint32_t)t, step))
			l->s->has_failed = 1;
	block_barrier();
	return !l->s->has_failed;
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

/* ---- without staging ---- */

DEVICE int all_are_mapped(const struct lines_call *l)
{
	int are_mapped = 1;

	for (uint32_t r = 0; r < l->size; r++) {
		are_mapped &= l->s->send_is_mapped[r];
		if (l->a->move == CHANNEL_REDUCE_SLICES && gets_slices(l->a, r))
			are_mapped &= l->s->recv_is_mapped[r];
	}
	return are_mapped;
}

DEVICE void pull_mapped(const struct lines_call *l)
{
	for (uint32_t i = 0; i < l->size; i++) {
		uint32_t from = l->rank + i < l->size ? l->rank + i : l->rank + i - l->size;
		struct share share = channel_share(l, l->a->recv_bytes[from]);
		lines_copy((char *)l->a->recv + l->a->recv_offset[from] + share.first,
			   l->s->send[from] + share.first, share.bytes);
	}
}

/* Returns how many destinations there are. */
DEVICE int slice_destinations(const struct lines_args *a, uint32_t size)
{
	return a->root < 0 ? (int)size : 1;
}

DEVICE void reduce_mapped(const struct lines_call *l)
{
	const struct lines_args *a = l->a;
	struct share all = {0, a->send_bytes[l->rank]}, share;
	int n_dst = 1;

	if (a->move == CHANNEL_REDUCE_SLICES) {
		all = share_of(all, l->size, l->rank);
		n_dst = slice_destinations(a, l->size);
	}
	share = share_of(all, l->channels, l->call.index);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (!thread_and_rank(l, t))
			continue;
		l->s->src[t] = l->s->send[t] + share.first;
		if (t < n_dst)
			l->s->dst[t] = (a->move == CHANNEL_REDUCE_MINE ? (char *)a->recv
					: a->root < 0                  ? l->s->recv[t]
								       : l->s->recv[a->root]) +
				       share.first;
	}
	/* Each rank chooses for its own slice, so it does not matter whether all choose the same. */
	int by_switch = a->move == CHANNEL_REDUCE_SLICES && a->root < 0 &&
			is_common(l, l->s->send_multicast) && is_common(l, l->s->recv_multicast);
	lines_reduce(l, n_dst, share.bytes,
		     by_switch ? (const char *)(uintptr_t)l->s->send_multicast[0] + share.first
			       : (const char *)0,
		     by_switch ? (char *)(uintptr_t)l->s->recv_multicast[0] + share.first
			       : (char *)0);
}

/* ---- through staging ---- */

/* A half has room for pieces for each rank, or for one for all, and for results. */
DEVICE uint64_t piece_bytes(const struct lines_call *l)
{
	uint64_t half = l->a->channel.staging_bytes / 2;

	if (l->turn)
		return turn_piece_bytes(l->a);
	return (l->a->send_is_same ? half / 2 : half / l->size) / CHANNEL_ALIGN * CHANNEL_ALIGN;
}

/* Of this channel. A channel's staging has two halves; by turns one part does. */
DEVICE char *staged_half(const struct lines_call *l, uint32_t rank, uint32_t chunk)
{
	uint64_t bytes = l->a->channel.staging_bytes;

	if (l->turn)
		return (char *)l->turn->staging[rank] + l->call.index * bytes;
	return staging_of(&l->call, rank) + (chunk & 1) * (bytes / 2);
}

DEVICE char *piece_of(const struct lines_call *l, uint32_t rank, uint32_t chunk, uint32_t to)
{
	return staged_half(l, rank, chunk) + (l->a->send_is_same ? 0 : to * piece_bytes(l));
}

/* Only where all get the same. */
DEVICE char *result_of(const struct lines_call *l, uint32_t rank, uint32_t chunk)
{
	return piece_of(l, rank, chunk, 0) + piece_bytes(l);
}

/* The chunk's part of this channel's share of a buffer. */
DEVICE struct share chunk_share(const struct lines_call *l, uint64_t bytes, uint32_t chunk)
{
	struct share share = channel_share(l, bytes);
	uint64_t at = chunk * piece_bytes(l), rest;

	at = at < share.bytes ? at : share.bytes;
	rest = share.bytes - at;
	share.first += at;
	share.bytes = rest < piece_bytes(l) ? rest : piece_bytes(l);
	return share;
}

DEVICE void lines_scale(const struct lines_args *a, void *to, const void *from, uint64_t bytes)
{
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		struct reduce_job job = {&to, &from, 1, 1,
					 bytes / (uint64_t)element_bytes(a->dtype),
					 a->dtype, TUTTI_PROD, 0, (unsigned)t, LINE_THREADS};
		scale_in_kernel(&job, a->scalar);
	}
}

DEVICE void stage(const struct lines_call *l, uint32_t chunk)
{
	const struct lines_args *a = l->a;
	uint32_t n = a->send_is_same ? 1 : l->size;

	for (uint32_t to = 0; to < n; to++) {
		/* A root that gathers is the only one that gets something. */
		uint32_t who = a->send_is_same && a->root >= 0 ? (uint32_t)a->root : to;
		struct share share = chunk_share(l, a->send_bytes[who], chunk);
		char *piece = piece_of(l, l->rank, chunk, to);
		const char *from = (const char *)a->send + a->send_offset[who] + share.first;
		if (a->is_scaled)
			lines_scale(a, piece, from, share.bytes);
		else
			lines_copy(piece, from, share.bytes);
	}
}

DEVICE void pull_staged(const struct lines_call *l, uint32_t chunk)
{
	for (uint32_t i = 0; i < l->size; i++) {
		uint32_t from = l->rank + i < l->size ? l->rank + i : l->rank + i - l->size;
		struct share share = chunk_share(l, l->a->recv_bytes[from], chunk);
		lines_copy((char *)l->a->recv + l->a->recv_offset[from] + share.first,
			   piece_of(l, from, chunk, l->rank), share.bytes);
	}
}

DEVICE void reduce_staged(const struct lines_call *l, uint32_t chunk)
{
	const struct lines_args *a = l->a;
	struct share share = chunk_share(l, a->send_bytes[l->rank], chunk);
	struct share slice = {0, share.bytes};
	int n_dst = 1;

	if (a->move == CHANNEL_REDUCE_SLICES) {
		slice = share_of(slice, l->size, l->rank);
		n_dst = slice_destinations(a, l->size);
	}
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (!thread_and_rank(l, t))
			continue;
		l->s->src[t] = piece_of(l, (uint32_t)t, chunk, l->rank) + slice.first;
		uint32_t to = a->root < 0 ? (uint32_t)t : (uint32_t)a->root;
		if (t < n_dst)
			l->s->dst[t] = a->move == CHANNEL_REDUCE_MINE
					       ? (char *)a->recv + share.first
					       : result_of(l, to, chunk) + slice.first;
	}
	lines_reduce(l, n_dst, slice.bytes, (const char *)0, (char *)0);
}

DEVICE void take_results(const struct lines_call *l, uint32_t chunk)
{
	struct share share = chunk_share(l, l->a->send_bytes[l->rank], chunk);

	if (gets_slices(l->a, l->rank))
		lines_copy((char *)l->a->recv + share.first, result_of(l, l->rank, chunk),
			   share.bytes);
}

/* All ranks go through as many chunks as the one that sends the most needs. */
DEVICE int lines_staged(const struct lines_call *l)
{
	uint64_t most = 0, chunks;
	uint32_t step = 0;

	for (uint32_t r = 0; r < l->size; r++)
		most = l->s->most[r] > most ? l->s->most[r] : most;
	struct share all = {0, most};
	chunks = (share_of(all, l->channels, 0).bytes + piece_bytes(l) - 1) / piece_bytes(l);
	for (uint32_t chunk = 0; chunk < chunks; chunk++) {
		stage(l, chunk);
		if (!lines_meet(l, ++step))
			return 0;
		if (l->a->move == CHANNEL_PULL)
			pull_staged(l, chunk);
		else
			reduce_staged(l, chunk);
		if (l->a->move != CHANNEL_REDUCE_SLICES)
			continue;
		if (!lines_meet(l, ++step))
			return 0;
		take_results(l, chunk);
	}
	return 1;
}

DEVICE int lines_mapped(const struct lines_call *l)
{
	if (l->a->move == CHANNEL_PULL)
		pull_mapped(l);
	else
		reduce_mapped(l);
	return 1;
}

DEVICE void lines_body(const struct lines_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct arrivals s;
	struct lines_call l = {a,
			       &s,
			       channel_begin(&a->channel, block->index),
			       block->count,
			       a->channel.rank,
			       a->channel.size,
			       NULL};
	uint64_t is_aborted = 0;

	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (t == LINE_THREADS - 1)
			is_aborted = channel_is_aborted(&l.call);
		if (t == 0) {
			channel_started(&l.call);
			s.has_failed = 0;
		}
		if (thread_and_rank(&l, t))
			lines_greet(&l, (uint32_t)t);
	}
	block_barrier();
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (t == LINE_THREADS - 1 && is_aborted)
			s.has_failed = 1;
		if (thread_and_rank(&l, t))
			lines_arrive(&l, (uint32_t)t);
	}
	block_barrier();
	int is_well = !s.has_failed && (all_are_mapped(&l) ? lines_mapped(&l) : lines_staged(&l)) &&
		      lines_meet(&l, STEP_LEAVE);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (is_well)
			channel_clear(&l.call, (unsigned)t, LINE_THREADS);
		if (t == 0)
			channel_finished(&l.call);
	}
}
KERNEL(lines)

#endif
