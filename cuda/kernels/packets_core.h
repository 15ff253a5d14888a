/* Packets of one channel: a thread's are sent, awaited, and kept. */
#ifndef CUDA_KERNELS_PACKETS_CORE_H
#define CUDA_KERNELS_PACKETS_CORE_H

#include "cuda/kernels/channel_core.h"
#include "cuda/kernels/scale_core.h"

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
	uint64_t at = index * (uint64_t)PACKET_SHARE + (unsigned)t * PACKET_BYTES;
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

/* The data for all ranks, or for the first that is sent to. */
DEVICE uint64_t packets_load(const struct packets_args *a, struct share mine)
{
	uint32_t rank = a->channel.rank, next = rank + 1 < a->channel.size ? rank + 1 : 0;
	uint32_t to = a->receiver < 0 ? next : (uint32_t)a->receiver;

	return mine.bytes > 0 && packets_go(a, rank, to) ? packet_data(a, mine, to) : 0;
}

/* data: of packets_load. */
DEVICE void packets_send(const struct packets_args *a, const struct channel_call *call,
			 struct share mine, uint64_t data, int t)
{
	uint32_t rank = a->channel.rank, size = a->channel.size;

	for (uint32_t i = 1; i < size && mine.bytes > 0; i++) {
		uint32_t to = rank + i < size ? rank + i : rank + i - size;
		if (!packets_go(a, rank, to))
			continue;
		if (i > 1 && a->receiver < 0 && a->send_stride != 0)
			data = packet_data(a, mine, to);
		store_packet(packets_of(call, to, rank) + (unsigned)t * sizeof(struct packet),
			     packet_of(call, data));
	}
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

/* A thread's data of the ranks of a group, this one's own among them; `has` has a bit for each. */
struct packets_got {
	uint64_t data[GROUP];
	unsigned has;
};

/* The group begins with rank `first`. 0 if the call fails. */
DEVICE int packets_receive(const struct packets_args *a, const struct channel_call *call,
			   struct share mine, uint32_t first, int t, struct packets_got *got)
{
	uint32_t rank = a->channel.rank, size = a->channel.size;
	struct packet packets[GROUP];
	unsigned own = 0;

	got->has = 0;
	UNROLL
	for (uint32_t s = 0; s < GROUP; s++) {
		uint32_t from = first + s;
		packets[s].half[0] = packets[s].half[1] = 0;
		if (mine.bytes > 0 && from < size && packets_go(a, from, rank))
			got->has |= 1u << s;
		if (from == rank)
			own = got->has & 1u << s;
	}
	uint64_t data = own ? packet_data(a, mine, rank) : 0;
	if (!packets_await(call, first, got->has & ~own, t, packets))
		return 0;
	UNROLL
	for (uint32_t s = 0; s < GROUP; s++)
		got->data[s] = own >> s & 1 ? data : data_of(packets[s]);
	return 1;
}

/* To the result, or to where they are reduced. */
DEVICE void packets_keep(const struct packets_args *a, const struct channel_call *call,
			 struct share mine, uint32_t first, int t, const struct packets_got *got)
{
	UNROLL
	for (uint32_t s = 0; s < GROUP; s++) {
		uint32_t from = first + s;
		if (!(got->has >> s & 1))
			continue;
		if (a->reduces)
			store_data(unpacked_of(call, from) + t * PACKET_BYTES, got->data[s],
				   PACKET_BYTES);
		else
			store_data((char *)a->recv + from * a->recv_stride + mine.first,
				   got->data[s], mine.bytes);
	}
}

/* Those of all ranks, a group at a time. 0 if the call fails. */
DEVICE int packets_take(const struct packets_args *a, const struct channel_call *call,
			struct share mine, int t)
{
	NO_UNROLL
	for (uint32_t first = 0; first < a->channel.size; first += GROUP) {
		struct packets_got got;
		if (!packets_receive(a, call, mine, first, t, &got))
			return 0;
		packets_keep(a, call, mine, first, t, &got);
	}
	return 1;
}

#endif
