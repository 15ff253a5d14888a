/* Short calls: every rank writes the data that others need into their memory, each 8 bytes with two
 * copies of the epoch. One trip, and no barrier between ranks. Packet i of a slot is handled by
 * thread i on both sides. */
#ifndef CUDA_KERNELS_PACKETS_KERNEL_H
#define CUDA_KERNELS_PACKETS_KERNEL_H

#include "cuda/kernels/channel_core.h"
#include "cuda/kernels/reduce_core.h"
#include "cuda/kernels/scale_core.h"

#define PACKET_THREADS THREADS_OF_packets
static_assert((int)PACKET_THREADS == PACKET_SLOT, "thread i handles packet i");

/* Up to 8 bytes at any address. */
DEVICE uint64_t load_data(const char *p, uint64_t bytes)
{
	uint64_t data = 0;

	if (bytes == 8 && (uintptr_t)p % 8 == 0)
		return load_8(p, 8);
	NO_UNROLL
	for (unsigned b = 0; b < bytes; b++)
		data |= load_8(p + b, 1) << (8 * b);
	return data;
}

DEVICE void store_data(char *p, uint64_t data, uint64_t bytes)
{
	if (bytes == 8 && (uintptr_t)p % 8 == 0) {
		store_8(p, data, 8);
		return;
	}
	NO_UNROLL
	for (unsigned b = 0; b < bytes; b++)
		store_8(p + b, data >> (8 * b) & 0xff, 1);
}

DEVICE int packets_go(const struct packets_args *a, uint32_t from, uint32_t to)
{
	return (a->sender < 0 || (uint32_t)a->sender == from) &&
	       (a->receiver < 0 || (uint32_t)a->receiver == to);
}

/* The part of a block that channel `index` carries, from packet t on, but at most `most` bytes. */
DEVICE struct share packets_share(const struct packets_args *a, unsigned index, int t,
				  uint64_t most)
{
	uint64_t at = index * (uint64_t)(PACKET_SLOT * PACKET_BYTES) + (unsigned)t * PACKET_BYTES;
	uint64_t rest = at < a->bytes ? a->bytes - at : 0;
	struct share share = {at, rest < most ? rest : most};

	return share;
}

/* The data of a packet to `to`: its share of what this rank sends there. */
DEVICE uint64_t packet_data(const struct packets_args *a, struct share mine, uint32_t to)
{
	uint64_t data =
		load_data((const char *)a->send + to * a->send_stride + mine.first, mine.bytes);

	return a->is_scaled ? scale_word(data, a->scalar, a->dtype) : data;
}

DEVICE void packets_send(const struct packets_args *a, const struct channel_call *call,
			 struct share mine, int t)
{
	uint32_t rank = a->channel.rank, size = a->channel.size;

	for (uint32_t i = 1; i < size && mine.bytes > 0; i++) {
		uint32_t to = rank + i < size ? rank + i : rank + i - size;
		if (!packets_go(a, rank, to))
			continue;
		uint64_t data = packet_data(a, mine, to);
		struct packet packet = {
			{word_of(call, (uint32_t)data), word_of(call, (uint32_t)(data >> 32))}};
		store_packet(packets_of(call, to, rank) + (unsigned)t * sizeof packet, packet);
	}
}

DEVICE int packet_is_there(const struct channel_call *call, struct packet packet)
{
	return packet.half[0] >> 32 == call->epoch && packet.half[1] >> 32 == call->epoch;
}

DEVICE uint64_t data_of(struct packet packet)
{
	return (uint32_t)packet.half[0] | packet.half[1] << 32;
}

/* Packet t of each rank first + s whose bit s is in `wanted`: they are asked for at once, since a
 * look takes as long as the call. 0 if the call fails. */
DEVICE int packets_await(const struct channel_call *call, uint32_t first, unsigned wanted, int t,
			 struct packet *packets)
{
	const char *p = packets_of(call, call->args->rank, first) + (unsigned)t * sizeof *packets;
	unsigned turns = 0;

	for (;;) {
		UNROLL
		for (unsigned s = 0; s < GROUP; s++)
			if (wanted >> s & 1)
				packets[s] = load_packet(p + s * PACKET_SLOT * sizeof *packets);
		UNROLL
		for (unsigned s = 0; s < GROUP; s++)
			if (packet_is_there(call, packets[s]))
				wanted &= ~(1u << s);
		if (wanted == 0)
			return 1;
		if (wait_fails(call, &turns))
			return 0;
	}
}

/* Data of a packet, or of this rank's own buffer, go to the result, or to where they are
 * reduced. */
DEVICE void packet_keep(const struct packets_args *a, const struct channel_call *call,
			struct share mine, uint32_t from, int t, uint64_t data)
{
	char *to = (char *)a->recv + from * a->recv_stride + mine.first;

	if (a->reduces)
		store_data(unpacked_of(call, from) + t * PACKET_BYTES, data, PACKET_BYTES);
	else
		store_data(to, data, mine.bytes);
}

/* 0 if the call fails. */
DEVICE int packets_receive(const struct packets_args *a, const struct channel_call *call,
			   struct share mine, int t)
{
	uint32_t rank = a->channel.rank;

	if (mine.bytes == 0)
		return 1;
	if (packets_go(a, rank, rank))
		packet_keep(a, call, mine, rank, t, packet_data(a, mine, rank));
	NO_UNROLL
	for (uint32_t first = 0; first < a->channel.size; first += GROUP) {
		struct packet packets[GROUP];
		unsigned wanted = 0;
		UNROLL
		for (uint32_t s = 0; s < GROUP; s++) {
			uint32_t from = first + s;
			packets[s].half[0] = packets[s].half[1] = 0;
			if (from < a->channel.size && from != rank && packets_go(a, from, rank))
				wanted |= 1u << s;
		}
		if (!packets_await(call, first, wanted, t, packets))
			return 0;
		UNROLL
		for (uint32_t s = 0; s < GROUP; s++)
			if (wanted >> s & 1)
				packet_keep(a, call, mine, first + s, t, data_of(packets[s]));
	}
	return 1;
}

DEVICE void packets_reduce(const struct packets_args *a, unsigned index, const void *const *src,
			   void *const *dst, int t)
{
	struct share share = packets_share(a, index, 0, PACKET_SLOT * PACKET_BYTES);
	uint64_t bytes = (uint64_t)element_bytes(a->dtype);
	struct reduce_job job = {dst,
				 src,
				 1,
				 (int)a->channel.size,
				 share.bytes / bytes,
				 a->dtype,
				 a->op,
				 a->divisor,
				 (unsigned)t,
				 PACKET_THREADS};

	reduce_in_kernel(&job, 1);
}

DEVICE void packets_body(const struct packets_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct {
		const void *src[CHANNEL_RANKS];
		void *dst[1];
		int is_refused, has_failed; /* set before the second barrier, and behind it */
	} s;
	struct channel_call call = channel_begin(&a->channel, block->index);
	uint32_t rank = a->channel.rank, size = a->channel.size;

	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (t == 0) {
			channel_started(&call);
			s.is_refused = s.has_failed = 0;
			s.dst[0] = (char *)a->recv + packets_share(a, block->index, 0, 0).first;
		}
		if ((unsigned)t < size) {
			s.src[t] = unpacked_of(&call, (unsigned)t);
			/* Relaxed: it publishes no data; packets have flags of their own. */
			store_relaxed(&channel_of(&call, (unsigned)t)
					       ->greetings[call.epoch & 1][rank].word,
				      word_of(&call, a->channel.fingerprint));
		}
		packets_send(a, &call, packets_share(a, block->index, t, PACKET_BYTES), t);
	}
	block_barrier();
	/* A rank that makes another call may send no packets: its greeting is looked at first. */
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (t == PACKET_THREADS - 1 && channel_is_aborted(&call))
			s.is_refused = 1;
		if ((unsigned)t < size && !channel_await(&call, (unsigned)t))
			s.is_refused = 1;
	}
	block_barrier();
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		struct share mine = packets_share(a, block->index, t, PACKET_BYTES);
		if (s.is_refused || !packets_receive(a, &call, mine, t))
			s.has_failed = 1;
	}
	block_barrier();
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (!s.has_failed && a->reduces && packets_go(a, 0, rank))
			packets_reduce(a, block->index, s.src, s.dst, t);
		if (!s.has_failed)
			channel_clear(&call, (unsigned)t, PACKET_THREADS);
		if (t == 0)
			channel_finished(&call);
	}
}
KERNEL(packets)

#endif
