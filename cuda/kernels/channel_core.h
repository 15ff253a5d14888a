/* Steps of every call of a channel: to greet, wait, fail and end. See channel.h. */
#ifndef CUDA_KERNELS_CHANNEL_CORE_H
#define CUDA_KERNELS_CHANNEL_CORE_H

#include "cuda/kernels/channel.h"
#include "cuda/kernels/kernel_machine.h"

#define EPOCHS_A_CLEARING (1u << 30)

/* One call of one channel, as its block sees it. */
struct channel_call {
	const struct channel_args *args;
	uint32_t index, epoch;
};

DEVICE struct channel_segment *segment_of(const struct channel_args *args, uint32_t rank)
{
	return (struct channel_segment *)args->segments[rank];
}

DEVICE struct channel *channel_of(const struct channel_call *call, uint32_t rank)
{
	return &segment_of(call->args, rank)->channels[call->index];
}

/* The packets that `from` sends to `to` in this call. */
DEVICE char *packets_of(const struct channel_call *call, uint32_t to, uint32_t from)
{
	uint64_t slot = (call->index * 2u + (call->epoch & 1)) * call->args->size + from;
	char *slots = (char *)(segment_of(call->args, to) + 1);

	return slots + slot * PACKET_SLOT * sizeof(struct packet);
}

/* The data of a rank's packets. */
DEVICE char *unpacked_of(const struct channel_call *call, uint32_t from)
{
	uint32_t size = call->args->size;
	uint64_t slots = (uint64_t)channel_packets(size) * 2 * size * PACKET_SLOT;
	uint64_t place = (uint64_t)call->index * size + from;

	return (char *)(segment_of(call->args, call->args->rank) + 1) +
	       slots * sizeof(struct packet) + place * PACKET_SLOT * PACKET_BYTES;
}

DEVICE char *staging_of(const struct channel_call *call, uint32_t rank)
{
	uint64_t before = channel_segment_bytes(call->args->size, call->index,
						call->args->staging_bytes);

	return (char *)segment_of(call->args, rank) + before;
}

/* 0 is no epoch, and the parity goes on. */
DEVICE uint32_t epoch_after(uint32_t epoch)
{
	return epoch == UINT32_MAX ? 2 : epoch + 1;
}

DEVICE uint64_t word_of(const struct channel_call *call, uint32_t low)
{
	return (uint64_t)call->epoch << 32 | low;
}

DEVICE struct packet packet_of(const struct channel_call *call, uint64_t data)
{
	struct packet packet = {
		{word_of(call, (uint32_t)data), word_of(call, (uint32_t)(data >> 32))}};

	return packet;
}

DEVICE int packet_is_there(const struct channel_call *call, struct packet packet)
{
	return packet.half[0] >> 32 == call->epoch && packet.half[1] >> 32 == call->epoch;
}

DEVICE uint64_t data_of(struct packet packet)
{
	return (uint32_t)packet.half[0] | packet.half[1] << 32;
}

/* By all threads, before the first barrier. */
DEVICE struct channel_call channel_begin(const struct channel_args *args, uint32_t index)
{
	struct channel_call call = {args, index, 0};

	call.epoch = epoch_after((uint32_t)load_relaxed(&channel_of(&call, args->rank)->epoch));
	return call;
}

/* Whether the call has failed. A kernel that comes after a failure finds all greetings there,
 * perhaps, and must not touch buffers that the ranks have given back meanwhile: one thread looks at
 * the beginning, since the look takes as long as to greet and wait, and uses it behind these. */
DEVICE uint64_t channel_is_aborted(const struct channel_call *call)
{
	return load_relaxed(&call->args->host->aborts[call->index].word);
}

/* After a turn of a wait: whether the wait is over, since the call has failed. */
DEVICE int wait_fails(const struct channel_call *call, unsigned *turns)
{
	if (++*turns % TURNS_A_LOOK == 0 && channel_is_aborted(call))
		return 1;
	spin_pause();
	return 0;
}

DEVICE void channel_abort_all(struct channel_host *host)
{
	NO_UNROLL
	for (int i = 0; i < CHANNELS_MOST; i++)
		store_release(&host->aborts[i].word, 1);
}

/* The first failure of this rank is recorded; all its kernels end. */
DEVICE void channel_fail(const struct channel_call *call, uint32_t what, uint32_t peer,
			 uint32_t fingerprint, uint64_t bytes, uint64_t expected)
{
	struct channel_host *host = call->args->host;

	if (exchange_flag(&segment_of(call->args, call->args->rank)->has_failed, 1) == 0) {
		store_relaxed(&host->peer, peer);
		store_relaxed(&host->fingerprint, fingerprint);
		store_relaxed(&host->bytes, bytes);
		store_relaxed(&host->expected, expected);
		store_release(&host->error, what);
	}
	channel_abort_all(host);
}

/* A store with release, to the ranks' memory. That of one GPU takes half the time. */
DEVICE void channel_publish(const struct channel_call *call, uint64_t *p, uint64_t value)
{
	if (call->args->is_one_gpu)
		store_release_near(p, value);
	else
		store_release(p, value);
}

/* The slot, in `to`'s segment, of what `from` greets with. */
DEVICE struct channel_greeting *greeting_of(const struct channel_call *call, uint32_t to,
					    uint32_t from)
{
	return &channel_of(call, to)->greetings[call->epoch & 1][from];
}

/* Relaxed: it publishes nothing; packets have flags of their own. */
DEVICE void channel_greet(const struct channel_call *call, uint32_t to)
{
	store_relaxed(&greeting_of(call, to, call->args->rank)->word,
		      word_of(call, call->args->fingerprint));
}

/* Whether a peer that greets with this word makes the same call; else the call fails. */
DEVICE int channel_is_the_same(const struct channel_call *call, uint32_t peer, uint64_t word)
{
	if ((uint32_t)word == call->args->fingerprint)
		return 1;
	channel_fail(call, CHANNEL_OTHER_CALL, peer, (uint32_t)word, 0, 0);
	return 0;
}

/* Waits for the greeting of peer; returns 0 if the call fails. */
DEVICE int channel_await(const struct channel_call *call, uint32_t peer)
{
	const uint64_t *greeting = &greeting_of(call, call->args->rank, peer)->word;
	unsigned turns = 0;
	uint64_t word;

	while ((word = load_relaxed(greeting)) >> 32 != call->epoch)
		if (wait_fails(call, &turns))
			return 0;
	return channel_is_the_same(call, peer, word);
}

/* Tells every rank, this one, too, that this one has done a step: 1, 2, ... After a barrier. */
DEVICE void channel_tell(const struct channel_call *call, uint32_t peer, uint32_t step)
{
	channel_publish(call, &channel_of(call, peer)->steps[call->args->rank],
			word_of(call, step));
}

/* Old packets and steps must not look like those of an epoch that comes again. */
DEVICE void channel_clear(const struct channel_call *call, unsigned t, unsigned threads)
{
	struct packet none = {{0, 0}};
	struct channel *own = channel_of(call, call->args->rank);

	if (call->epoch % EPOCHS_A_CLEARING < 2 || call->epoch % EPOCHS_A_CLEARING > 3)
		return;
	for (unsigned r = t; r < CHANNEL_RANKS; r += threads) {
		store_relaxed(&own->steps[r], 0);
		for (int f = 0; f < GREETING_FIELDS; f++)
			store_packet(&own->greetings[call->epoch & 1][r].fields[f], none);
	}
	if (call->index < channel_packets(call->args->size))
		for (unsigned i = t; i < call->args->size * PACKET_SLOT; i += threads)
			store_packet(packets_of(call, call->args->rank, 0) + i * sizeof none, none);
}

/* By thread 0: before the call's first wait, and after its last barrier. */
DEVICE void channel_started(const struct channel_call *call)
{
	store_relaxed(&call->args->host->started[call->index], call->epoch);
}

DEVICE void channel_next(const struct channel_call *call)
{
	store_relaxed(&channel_of(call, call->args->rank)->epoch, call->epoch);
}

DEVICE void channel_finished(const struct channel_call *call)
{
	channel_next(call);
	store_relaxed(&call->args->host->finished[call->index], call->epoch);
}

/* Part `index` of `parts`, of bytes that begin at a multiple of CHANNEL_ALIGN. */
struct share {
	uint64_t first, bytes;
};

DEVICE struct share share_of(struct share all, uint32_t parts, uint32_t index)
{
	uint64_t granules = (uint64_t)parts * CHANNEL_ALIGN;
	uint64_t each = (all.bytes + granules - 1) / granules * CHANNEL_ALIGN;
	uint64_t first = each * index < all.bytes ? each * index : all.bytes;
	uint64_t rest = all.bytes - first;
	struct share share = {all.first + first, rest < each ? rest : each};

	return share;
}

#endif
