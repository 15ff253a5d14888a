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

/* The channels that a block serves in one call. */
struct packets_call {
	const struct packets_args *a;
	uint32_t index, count, epoch, second_epoch;
	int n;
	uint64_t is_aborted; /* known to the last thread */
};

DEVICE struct channel_call packets_channel(const struct packets_call *c, int k)
{
	struct channel_call call = {&c->a->channel, c->index + (uint32_t)k * c->count,
				    k ? c->second_epoch : c->epoch};

	return call;
}

DEVICE struct packets_call packets_begin(const struct packets_args *a,
					 const struct kernel_block *block)
{
	struct packets_call c = {a, block->index, block->count, 0, 0, 1, 0};

	c.epoch = channel_begin(&a->channel, c.index).epoch;
	if ((uint64_t)(c.index + c.count) * PACKET_SHARE < a->bytes) {
		c.second_epoch = channel_begin(&a->channel, c.index + c.count).epoch;
		c.n = PACKET_EACH;
	}
	return c;
}

DEVICE struct share packets_mine(const struct packets_call *c, int k, int t)
{
	return packets_share(c->a, packets_channel(c, k).index, t, PACKET_BYTES);
}

DEVICE void packets_go_out(struct packets_call *c)
{
	struct channel_call first = packets_channel(c, 0);

	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (t == PACKET_THREADS - 1)
			c->is_aborted = channel_is_aborted(&first);
		if (t == 0)
			channel_started(&first);
		uint64_t data[PACKET_EACH];
		UNROLL
		for (int k = 0; k < PACKET_EACH; k++)
			data[k] = k < c->n ? packets_load(c->a, packets_mine(c, k, t)) : 0;
		UNROLL
		for (int k = 0; k < PACKET_EACH; k++) {
			struct channel_call call = packets_channel(c, k);
			if (k >= c->n)
				continue;
			if ((unsigned)t < c->a->channel.size)
				channel_greet(&call, (unsigned)t);
			packets_send(c->a, &call, packets_mine(c, k, t), data[k], t);
		}
	}
}

/* A rank that makes another call may send no packets: then a look at its greeting aborts. By the
 * last threads, which have no packets of the shortest calls to wait for. */
DEVICE int packets_are_greeted(const struct packets_call *c)
{
	int is_well = 1;

	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		unsigned peer = (unsigned)(PACKET_THREADS - 1 - t);
		for (int k = 0; k < c->n && peer < c->a->channel.size; k++) {
			struct channel_call call = packets_channel(c, k);
			if (!channel_await(&call, peer))
				is_well = 0;
		}
	}
	return is_well;
}

/* Of few ranks a thread holds all packets until it is known that the call is well. */
DEVICE int packets_of_few(const struct packets_call *c, int is_well)
{
	struct packets_got got[PER_THREAD(PACKET_THREADS)][PACKET_EACH];
	const struct packets_args *a = c->a;

	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		UNROLL
		for (int k = 0; k < PACKET_EACH; k++) {
			struct channel_call call = packets_channel(c, k);
			struct share mine = packets_mine(c, k, t);
			if (k < c->n &&
			    !packets_receive(a, &call, mine, 0, t, &got[OF_THREAD(t)][k]))
				is_well = 0;
		}
	}
	if (block_any(!is_well || c->is_aborted))
		return 0;
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		UNROLL
		for (int k = 0; k < PACKET_EACH; k++) {
			struct channel_call call = packets_channel(c, k);
			const struct packets_got *own = &got[OF_THREAD(t)][k];
			struct share mine = packets_mine(c, k, t);
			if (k >= c->n)
				continue;
			if (!packets_are_summed(a))
				packets_keep(a, &call, mine, 0, t, own);
			else if (own->has)
				store_data((char *)a->recv + mine.first, packets_sum(a, own),
					   mine.bytes);
		}
	}
	return 1;
}

DEVICE int packets_of_many(const struct packets_call *c, int is_well)
{
	const struct packets_args *a = c->a;

	if (block_any(!is_well || c->is_aborted))
		return 0;
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step())
		NO_UNROLL
		for (int k = 0; k < c->n; k++) {
			struct channel_call call = packets_channel(c, k);
			struct share mine = packets_mine(c, k, t);
			if (!packets_take(a, &call, mine, t))
				is_well = 0;
		}
	return !block_any(!is_well);
}

/* By all threads, of what lies unpacked. */
DEVICE void packets_reduce(const struct packets_args *a, const struct channel_call *call)
{
	BLOCK_SHARED const void *src[CHANNEL_RANKS];
	BLOCK_SHARED void *dst[1];
	struct share share = packets_share(a, call->index, 0, PACKET_SHARE);

	block_barrier();
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		if (t == 0)
			dst[0] = (char *)a->recv + share.first;
		if ((unsigned)t < a->channel.size)
			src[t] = unpacked_of(call, (unsigned)t);
	}
	block_barrier();
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		struct reduce_job job = {dst,
					 src,
					 1,
					 (int)a->channel.size,
					 share.bytes / (uint64_t)element_bytes(a->dtype),
					 a->dtype,
					 a->op,
					 a->divisor,
					 (unsigned)t,
					 PACKET_THREADS};
		reduce_in_kernel(&job, 1);
	}
}

DEVICE void packets_body(const struct packets_args *a, struct kernel_block *block)
{
	struct packets_call c = packets_begin(a, block);
	int are_few = a->channel.size <= GROUP, is_well;

	packets_go_out(&c);
	is_well = packets_are_greeted(&c);
	is_well = are_few ? packets_of_few(&c, is_well) : packets_of_many(&c, is_well);
	if (is_well && a->reduces && packets_go(a, 0, a->channel.rank) &&
	    !(are_few && packets_are_summed(a))) {
		NO_UNROLL
		for (int k = 0; k < c.n; k++) {
			struct channel_call call = packets_channel(&c, k);
			packets_reduce(a, &call);
		}
	}
	block_barrier();
	for (int t = thread_first(); t < PACKET_THREADS; t += thread_step()) {
		NO_UNROLL
		for (int k = c.n - 1; k >= 0; k--) {
			struct channel_call call = packets_channel(&c, k);
			if (is_well)
				channel_clear(&call, (unsigned)t, PACKET_THREADS);
			if (t == 0)
				k ? channel_next(&call) : channel_finished(&call);
		}
	}
}
KERNEL(packets)

#endif
