/* Short calls: every rank writes the data that others need into their memory, each 8 bytes with two
 * copies of the epoch. One trip, and no barrier between ranks. Packet i of a slot is handled by
 * thread i on both sides. */
#ifndef CUDA_KERNELS_PACKETS_KERNEL_H
#define CUDA_KERNELS_PACKETS_KERNEL_H

#include "cuda/kernels/packets_core.h"
#include "cuda/kernels/reduce_core.h"

#define PACKET_THREADS THREADS_OF_packets
static_assert((int)PACKET_THREADS == PACKET_SLOT, "thread i handles packet i");

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
