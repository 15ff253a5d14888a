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
	uint64_t data = 0;

	for (uint32_t i = 1; i < size && mine.bytes > 0; i++) {
		uint32_t to = rank + i < size ? rank + i : rank + i - size;
		if (!packets_go(a, rank, to))
			continue;
		if (i == 1 || a->send_stride != 0 || a->receiver >= 0)
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

/* What a thread gets of ranks first to first + GROUP - 1, this one's own data among them; of which
 * ranks is a bit each in `has`. 0 if the call fails. */
struct packets_got {
	uint64_t data[GROUP];
	unsigned has;
};

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

/* The sums that most calls are, of packets that a thread holds. */
DEVICE int packets_are_summed(const struct packets_args *a)
{
	int divides_exactly = a->op == TUTTI_AVG && (a->divisor & (a->divisor - 1)) == 0;

	return a->reduces && (a->op == TUTTI_SUM || divides_exactly) &&
	       (a->dtype == TUTTI_F32 || a->dtype == TUTTI_BF16 || a->dtype == TUTTI_F16);
}

DEVICE uint64_t packets_sum(const struct packets_args *a, const struct packets_got *got)
{
	float factor = a->op == TUTTI_AVG ? 1.0f / (float)a->divisor : 1.0f;
	int n = (int)a->channel.size;

	switch (a->dtype) {
	case TUTTI_BF16:
		return sum_of_words(got->data, n, factor, TUTTI_BF16);
	case TUTTI_F16:
		return sum_of_words(got->data, n, factor, TUTTI_F16);
	default:
		return sum_of_words(got->data, n, factor, TUTTI_F32);
	}
}

/* Of few ranks a thread holds all packets until it is known that the call is well. */
DEVICE int packets_of_few(const struct packets_args *a, const struct channel_call *call,
			  uint64_t is_aborted, int has_failed)
{
	struct packets_got got[PER_THREAD(PACKET_THREADS)];

	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step())
		if (!packets_receive(a, call, packets_share(a, call->index, t, PACKET_BYTES), 0, t,
				     &got[OF_THREAD(t)]))
			has_failed = 1;
	if (block_any(has_failed || is_aborted))
		return 0;
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		struct share mine = packets_share(a, call->index, t, PACKET_BYTES);
		const struct packets_got *own = &got[OF_THREAD(t)];
		if (!packets_are_summed(a))
			packets_keep(a, call, mine, 0, t, own);
		else if (own->has)
			store_data((char *)a->recv + mine.first, packets_sum(a, own), mine.bytes);
	}
	return 1;
}

DEVICE int packets_of_many(const struct packets_args *a, const struct channel_call *call,
			   uint64_t is_aborted, int has_failed)
{
	if (block_any(has_failed || is_aborted))
		return 0;
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step())
		if (!packets_take(a, call, packets_share(a, call->index, t, PACKET_BYTES), t))
			has_failed = 1;
	return !block_any(has_failed);
}

DEVICE void packets_body(const struct packets_args *a, struct kernel_block *block)
{
	BLOCK_SHARED const void *src[CHANNEL_RANKS];
	BLOCK_SHARED void *dst[1];
	struct channel_call call = channel_begin(&a->channel, block->index);
	uint32_t rank = a->channel.rank, size = a->channel.size;
	uint64_t is_aborted = 0;
	int has_failed = 0, is_well;

	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (t == PACKET_THREADS - 1)
			is_aborted = channel_is_aborted(&call);
		if (t == 0) {
			channel_started(&call);
			dst[0] = (char *)a->recv + packets_share(a, block->index, 0, 0).first;
		}
		if ((unsigned)t < size) {
			src[t] = unpacked_of(&call, (unsigned)t);
			channel_greet(&call, (unsigned)t);
		}
		packets_send(a, &call, packets_share(a, block->index, t, PACKET_BYTES), t);
	}
	/* A rank that makes another call may send no packets: then a look at its greeting aborts. */
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step())
		if ((unsigned)t < size && !channel_await(&call, (unsigned)t))
			has_failed = 1;
	is_well = size <= GROUP ? packets_of_few(a, &call, is_aborted, has_failed)
				: packets_of_many(a, &call, is_aborted, has_failed);
	if (is_well && a->reduces && packets_go(a, 0, rank) &&
	    !(size <= GROUP && packets_are_summed(a))) {
		block_barrier();
		for (int t = thread_first(); t < PACKET_THREADS; t += thread_step())
			packets_reduce(a, block->index, src, dst, t);
	}
	block_barrier();
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (is_well)
			channel_clear(&call, (unsigned)t, PACKET_THREADS);
		if (t == 0)
			channel_finished(&call);
	}
}
KERNEL(packets)

#endif
