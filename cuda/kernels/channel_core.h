/* Steps of every call of a channel: to greet, wait, fail and end. See channel.h. */
#ifndef CUDA_KERNELS_CHANNEL_CORE_H
#define CUDA_KERNELS_CHANNEL_CORE_H

#include "cuda/kernels/channel.h"
#include "cuda/kernels/kernel_machine.h"

#define EPOCHS_A_CLEARING (1u << 30)
#define TURNS_A_LOOK      64 /* of a wait, between two looks at the abort word of the host */

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
	uint64_t slots = (uint64_t)PACKET_CHANNELS * 2 * size * PACKET_SLOT;
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

/* By all threads, before the first barrier. */
DEVICE struct channel_call channel_begin(const struct channel_args *args, uint32_t index)
{
	struct channel_call call = {args, index, 0};

	call.epoch = epoch_after((uint32_t)load_relaxed(&channel_of(&call, args->rank)->epoch));
	return call;
}

/* After a turn of a wait: whether the wait is over, since the call has failed. */
DEVICE int wait_fails(const struct channel_call *call, unsigned *turns)
{
	if (++*turns % TURNS_A_LOOK == 0 && load_relaxed(&call->args->host->abort) != 0)
		return 1;
	spin_pause();
	return 0;
}

/* A kernel that comes after a failure finds all greetings there, perhaps, and must not touch buffers
 * that the ranks have given back meanwhile. By one thread, beside the wait for greetings. */
DEVICE int channel_is_aborted(const struct channel_call *call)
{
	return load_relaxed(&call->args->host->abort) != 0;
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
	store_release(&host->abort, 1);
}

/* Waits for the greeting of peer; returns NULL if the call fails. */
DEVICE const struct channel_greeting *channel_await(const struct channel_call *call, uint32_t peer)
{
	const struct channel_greeting *greeting =
		&channel_of(call, call->args->rank)->greetings[call->epoch & 1][peer];
	unsigned turns = 0;
	uint64_t word;

	while ((word = load_acquire(&greeting->word)) >> 32 != call->epoch)
		if (wait_fails(call, &turns))
			return NULL;
	if ((uint32_t)word == call->args->fingerprint)
		return greeting;
	channel_fail(call, CHANNEL_OTHER_CALL, peer, (uint32_t)word, 0, 0);
	return NULL;
}

/* Tells every rank, this one, too, that this one has done a step: 1, 2, ... After a barrier. */
DEVICE void channel_tell(const struct channel_call *call, uint32_t peer, uint32_t step)
{
	store_release(&channel_of(call, peer)->steps[call->args->rank], word_of(call, step));
}

/* Whether peer has done the step, sooner or later; 0 if the call fails. */
DEVICE int channel_await_step(const struct channel_call *call, uint32_t peer, uint32_t step)
{
	const uint64_t *steps = &channel_of(call, call->args->rank)->steps[peer];
	unsigned turns = 0;
	uint64_t word;

	for (;;) {
		word = load_acquire(steps);
		if (word >> 32 == call->epoch && (uint32_t)word >= step)
			return 1;
		if (wait_fails(call, &turns))
			return 0;
	}
}

/* Old packets and steps must not look like those of an epoch that comes again. */
DEVICE void channel_clear(const struct channel_call *call, unsigned t, unsigned threads)
{
	struct packet none = {{0, 0}};
	struct channel *own = channel_of(call, call->args->rank);

	if (call->epoch % EPOCHS_A_CLEARING < 2 || call->epoch % EPOCHS_A_CLEARING > 3)
		return;
	for (unsigned r = t; r < CHANNEL_RANKS; r += threads)
		store_relaxed(&own->steps[r], 0);
	if (call->index < PACKET_CHANNELS)
		for (unsigned i = t; i < call->args->size * PACKET_SLOT; i += threads)
			store_packet(packets_of(call, call->args->rank, 0) + i * sizeof none, none);
}

/* By thread 0: before the call's first wait, and after its last barrier. */
DEVICE void channel_started(const struct channel_call *call)
{
	store_relaxed(&call->args->host->started[call->index], call->epoch);
}

DEVICE void channel_finished(const struct channel_call *call)
{
	store_relaxed(&channel_of(call, call->args->rank)->epoch, call->epoch);
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
