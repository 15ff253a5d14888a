/* Sends and receives. A stream is what goes to one peer, or comes from it, through one lane; its
 * chunks are in order, and streams do not wait for each other. So a block serves any streams: in
 * each round thread t looks what stream t can do, all threads together copy it, and thread t tells
 * it. A rank that sends to others, which wait for others, always goes on receiving. */
#ifndef CUDA_KERNELS_MESSAGES_KERNEL_H
#define CUDA_KERNELS_MESSAGES_KERNEL_H

#include "cuda/kernels/channel_core.h"
#include "cuda/kernels/copy_core.h"

#define MESSAGE_THREADS THREADS_OF_messages
#define LANE_STEP       ((uint64_t)MESSAGE_LANES * MESSAGE_SLOT_BYTES)
static_assert((int)MESSAGE_THREADS >= 2 * CHANNEL_RANKS * MESSAGE_LANES, "a thread a stream");
static_assert(sizeof(struct messages_args) <= 4096, "arguments of all drivers");

struct message_stream {
	uint64_t count; /* of chunks of its lane, until now                             */
	uint64_t seen;  /* of a send: chunks that the peer had taken, as far as we know */
	uint64_t at;    /* where the next chunk begins in its message                   */
	uint32_t item, end;
	uint32_t ready; /* chunks that are moved in this round                          */
	uint32_t lane;
	struct message_queue queue;
};

/* All that the phases share, the same for all threads. */
struct messages_call {
	const struct messages_args *a;
	struct channel_call call;
	struct message_stream *streams; /* of this block, ... */
	uint32_t n;                     /* ... so many        */
};

/* In the segment of `rank`: for what `peer` sends there. */
DEVICE struct message_box *box_of(const struct messages_call *m, uint32_t rank, uint32_t peer)
{
	char *segment = (char *)segment_of(&m->a->channel, rank);

	return (struct message_box *)(segment + channel_boxes_offset(m->a->channel.size)) + peer;
}

/* This rank's, with its own counts. */
DEVICE struct message_box *own_box(const struct messages_call *m, const struct message_stream *s)
{
	return box_of(m, m->a->channel.rank, s->queue.peer);
}

/* Where the chunks of the stream lie: with the receiver. */
DEVICE struct message_box *slots_box(const struct messages_call *m, const struct message_stream *s)
{
	return s->queue.sends ? box_of(m, s->queue.peer, m->a->channel.rank) : own_box(m, s);
}

/* A message without bytes has one chunk, too. */
DEVICE int has_chunk(const struct message_item *item, uint64_t at)
{
	return at == 0 || at < item->bytes;
}

/* To the next message that has a chunk in this lane, from s->item on. */
DEVICE void next_message(const struct messages_call *m, struct message_stream *s)
{
	s->at = (uint64_t)s->lane * MESSAGE_SLOT_BYTES;
	while (s->item < s->end && !has_chunk(&m->a->items[s->item], s->at))
		s->item++;
}

DEVICE void stream_begin(const struct messages_call *m, uint32_t number, struct message_stream *s)
{
	const struct message_queue *queue = &m->a->queues[number % m->a->n_queues];
	struct message_box *box;

	s->queue = *queue;
	s->lane = number / m->a->n_queues;
	s->item = queue->first;
	s->end = queue->end;
	s->ready = 0;
	box = own_box(m, s);
	s->count = load_relaxed(queue->sends ? &box->sent[s->lane] : &box->taken[s->lane]);
	s->seen = load_relaxed(&box->seen[s->lane]);
	next_message(m, s);
}

/* Chunks of the message that are still to go through this lane, but no more than slots. */
DEVICE uint32_t chunks_left(const struct message_item *item, uint64_t at)
{
	uint64_t left = item->bytes == 0 ? 1 : (item->bytes - at + LANE_STEP - 1) / LANE_STEP;

	return left < MESSAGE_SLOTS ? (uint32_t)left : MESSAGE_SLOTS;
}

DEVICE uint32_t can_send(const struct messages_call *m, struct message_stream *s, uint32_t most)
{
	uint64_t room;

	if (s->count - s->seen == MESSAGE_SLOTS) {
		s->seen = load_acquire(&slots_box(m, s)->taken[s->lane]);
		store_relaxed(&own_box(m, s)->seen[s->lane], s->seen);
	}
	room = MESSAGE_SLOTS - (s->count - s->seen);
	return room < most ? (uint32_t)room : most;
}

DEVICE uint32_t can_receive(const struct messages_call *m, const struct message_stream *s,
			    const struct message_item *item, uint32_t most, int *has_failed)
{
	const struct message_head *heads = own_box(m, s)->heads[s->lane];
	uint32_t n = 0;

	for (; n < most; n++) {
		const struct message_head *head = &heads[(s->count + n) % MESSAGE_SLOTS];
		if (load_acquire(&head->number) != s->count + n + 1)
			return n;
		uint64_t fingerprint = load_8(&head->fingerprint, 8);
		uint64_t bytes = load_8(&head->bytes, 8);
		if (fingerprint == item->fingerprint && bytes == item->bytes)
			continue;
		channel_fail(&m->call, CHANNEL_OTHER_MESSAGE, s->queue.peer, (uint32_t)fingerprint,
			     bytes, item->bytes);
		*has_failed = 1;
		return 0;
	}
	return n;
}

/* By all threads. */
DEVICE void move_chunks(const struct messages_call *m, const struct message_stream *s, unsigned t)
{
	const struct message_item *item = &m->a->items[s->item];
	struct message_box *box = slots_box(m, s);

	NO_UNROLL
	for (uint32_t k = 0; k < s->ready; k++) {
		char *slot = box->slots[s->lane][(s->count + k) % MESSAGE_SLOTS];
		uint64_t at = s->at + k * LANE_STEP, rest = item->bytes - at;
		char *mine = (char *)item->ptr + at;
		copy_bytes(s->queue.sends ? slot : mine, s->queue.sends ? mine : slot,
			   rest < MESSAGE_SLOT_BYTES ? rest : MESSAGE_SLOT_BYTES, t,
			   MESSAGE_THREADS);
	}
}

/* The chunks that were moved are there for the receiver, or their slots free for the sender. */
DEVICE void tell_chunks(const struct messages_call *m, struct message_stream *s)
{
	const struct message_item *item = &m->a->items[s->item];
	struct message_box *box = slots_box(m, s);

	for (uint32_t k = 0; k < s->ready && s->queue.sends; k++) {
		struct message_head *head =
			&box->heads[s->lane][(s->count + k) % MESSAGE_SLOTS];
		store_8(&head->fingerprint, item->fingerprint, 8);
		store_8(&head->bytes, item->bytes, 8);
		store_release(&head->number, s->count + k + 1);
	}
	s->count += s->ready;
	if (s->queue.sends)
		store_relaxed(&own_box(m, s)->sent[s->lane], s->count);
	else
		store_release(&box->taken[s->lane], s->count);
	s->at += s->ready * LANE_STEP;
	s->ready = 0;
	if (s->at < item->bytes)
		return;
	s->item++;
	next_message(m, s);
}

/* Thread t's part of a round. Returns whether its stream has something left to do. */
DEVICE int stream_look(const struct messages_call *m, struct message_stream *s, int *has_failed)
{
	if (s->ready > 0)
		tell_chunks(m, s);
	if (s->item == s->end)
		return 0;
	const struct message_item *item = &m->a->items[s->item];
	uint32_t most = chunks_left(item, s->at);
	s->ready = s->queue.sends ? can_send(m, s, most)
				  : can_receive(m, s, item, most, has_failed);
	return 1;
}

/* Until all streams of the block are over, or the call fails. */
DEVICE void serve_streams(const struct messages_call *m, int *goes_on, int *has_failed)
{
	for (unsigned round = 0;; round++) {
		for (int t = thread_first(); t < MESSAGE_THREADS; t += thread_step()) {
			/* A kernel that comes after a failure touches no buffer. */
			if (t == MESSAGE_THREADS - 1 && round % TURNS_A_LOOK == 0 &&
			    channel_is_aborted(&m->call))
				*has_failed = 1;
			if ((unsigned)t < m->n && stream_look(m, &m->streams[t], has_failed))
				goes_on[round & 1] = 1;
		}
		block_barrier();
		if (*has_failed || !goes_on[round & 1])
			return;
		for (int t = thread_first(); t < MESSAGE_THREADS; t += thread_step()) {
			if (t == 0) {
				goes_on[(round + 1) & 1] = 0;
				spin_pause();
			}
			for (uint32_t i = 0; i < m->n; i++)
				move_chunks(m, &m->streams[i], (unsigned)t);
		}
		block_barrier();
	}
}

DEVICE void messages_body(const struct messages_args *a, struct kernel_block *block)
{
	BLOCK_SHARED struct message_stream streams[MESSAGE_THREADS];
	BLOCK_SHARED int goes_on[2], has_failed;
	uint32_t all = a->n_queues * a->n_lanes;
	struct messages_call m = {a, {&a->channel, block->index, 0}, streams, 0};
	struct channel *channel = channel_of(&m.call, a->channel.rank);
	uint64_t number = load_relaxed(&channel->messages) + 1;

	if (block->index < all)
		m.n = (all - block->index + block->count - 1) / block->count;
	for (int t = thread_first(); t < MESSAGE_THREADS; t += thread_step()) {
		if (t == 0) {
			store_relaxed(&a->channel.host->messages_started[block->index], number);
			goes_on[0] = goes_on[1] = has_failed = 0;
		}
		if ((unsigned)t < m.n)
			stream_begin(&m, block->index + (unsigned)t * block->count, &streams[t]);
	}
	block_barrier();
	serve_streams(&m, goes_on, &has_failed);
	for (int t = thread_first(); t < MESSAGE_THREADS; t += thread_step())
		if (t == 0) {
			store_relaxed(&channel->messages, number);
			store_relaxed(&a->channel.host->messages_finished[block->index], number);
		}
}
KERNEL(messages)

#endif
