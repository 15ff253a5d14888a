/* Short calls: every rank writes what others need into their memory, each 8 bytes with two copies
 * of the epoch. One trip, and no barrier between ranks. Packet i of a slot is handled by thread i
 * on both sides. */
#ifndef CUDA_KERNELS_PACKETS_KERNEL_H
#define CUDA_KERNELS_PACKETS_KERNEL_H

#include "cuda/kernels/channel_core.h"
#include "cuda/kernels/reduce_core.h"

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

/* What channel `index` carries of a block, from packet t on, but at most `most` bytes. */
DEVICE struct share packets_share(const struct packets_args *a, unsigned index, int t, uint64_t most)
{
	uint64_t at = index * (uint64_t)(PACKET_SLOT * PACKET_BYTES) + (unsigned)t * PACKET_BYTES;
	uint64_t rest = at < a->bytes ? a->bytes - at : 0;
	struct share share = {at, rest < most ? rest : most};

	return share;
}

DEVICE void packets_send(const struct packets_args *a, const struct channel_call *call,
			 struct share mine, int t)
{
	uint32_t rank = a->channel.rank, size = a->channel.size;

	for (uint32_t i = 1; i < size && mine.bytes > 0; i++) {
		uint32_t to = rank + i < size ? rank + i : rank + i - size;
		if (!packets_go(a, rank, to))
			continue;
		uint64_t data = load_data((const char *)a->send + to * a->send_stride + mine.first,
					  mine.bytes);
		struct packet packet = {
			{word_of(call, (uint32_t)data), word_of(call, (uint32_t)(data >> 32))}};
		store_packet(packets_of(call, to, rank) + (unsigned)t * sizeof packet, packet);
	}
}

/* 0 if the call fails. */
DEVICE int packet_await(const struct channel_call *call, uint32_t from, int t, uint64_t *data)
{
	const char *p = packets_of(call, call->args->rank, from) + (unsigned)t * sizeof(struct packet);
	unsigned turns = 0;

	for (;;) {
		struct packet packet = load_packet(p);
		if (packet.half[0] >> 32 == call->epoch && packet.half[1] >> 32 == call->epoch) {
			*data = (uint32_t)packet.half[0] | packet.half[1] << 32;
			return 1;
		}
		if (wait_fails(call, &turns))
			return 0;
	}
}

DEVICE int packets_receive(const struct packets_args *a, const struct channel_call *call,
			   struct share mine, int t)
{
	uint32_t rank = a->channel.rank;

	for (uint32_t from = 0; from < a->channel.size && mine.bytes > 0; from++) {
		char *to = (char *)a->recv + from * a->recv_stride + mine.first;
		uint64_t data;
		if (!packets_go(a, from, rank))
			continue;
		if (a->reduces)
			to = unpacked_of(call, from) + t * PACKET_BYTES;
		if (from == rank)
			data = load_data((const char *)a->send + rank * a->send_stride + mine.first,
					 mine.bytes);
		else if (!packet_await(call, from, t, &data))
			return 0;
		store_data(to, data, a->reduces ? PACKET_BYTES : mine.bytes);
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
		int has_failed;
	} s;
	struct channel_call call = channel_begin(&a->channel, block->index);
	uint32_t rank = a->channel.rank, size = a->channel.size;

	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (t == 0) {
			channel_started(&call);
			s.has_failed = 0;
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
	/* A rank that makes another call may send no packets; so its greeting is looked at first. */
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step())
		if ((unsigned)t < size && !channel_await(&call, (unsigned)t))
			s.has_failed = 1;
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step())
		if (!packets_receive(a, &call, packets_share(a, block->index, t, PACKET_BYTES), t))
			s.has_failed = 1;
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
