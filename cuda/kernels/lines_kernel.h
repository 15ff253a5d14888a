/* Long calls. Ranks arrive (each greets all and waits for all), move bytes, and leave (each tells
 * all that it is done and waits for all). Where all ranks map the buffers the bytes move from one
 * to the other; else they go through the staging of each segment, chunk by chunk: staged, told and
 * awaited, moved, and for slices stored to where they are wanted, told and awaited once more.
 *
 * Of staging there are two halves, for chunks of even and odd number. A rank stages chunk k + 2
 * when all have told that chunk k + 1 is staged, which each tells after it has moved chunk k. */
#ifndef CUDA_KERNELS_LINES_KERNEL_H
#define CUDA_KERNELS_LINES_KERNEL_H

#include "cuda/kernels/lines_core.h"

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
	/* Each rank chooses for its own slice, so all need not choose the same. */
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
	int has_moved = !s.has_failed && (all_are_mapped(&l) ? lines_mapped(&l) : lines_staged(&l));
	int is_well = has_moved && lines_meet(&l, STEP_LEAVE);
	if (!is_well)
		lines_abandon(&l, has_moved ? STEP_LEAVE : STEP_ABANDON);
	for (int t = thread_first(); t < LINE_THREADS; t += thread_step()) {
		if (is_well)
			channel_clear(&l.call, (unsigned)t, LINE_THREADS);
		if (t == 0)
			channel_finished(&l.call);
	}
}
KERNEL(lines)

#endif
