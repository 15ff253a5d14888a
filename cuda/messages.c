#include "cuda/messages.h"

#include <assert.h>
#include <string.h>

/* A block has so much to do at the least: 512 threads, 16 bytes each, several times. */
#define BLOCK_BYTES (32u << 10)

static uint32_t cuda_messages_lanes_of(uint64_t bytes)
{
	uint64_t chunks = (bytes + MESSAGE_SLOT_BYTES - 1) / MESSAGE_SLOT_BYTES;

	return chunks == 0 ? 1 : chunks < MESSAGE_LANES ? (uint32_t)chunks : MESSAGE_LANES;
}

/* Those to the peer, or from it, behind the items that are there. */
static void cuda_messages_add_queue(struct messages_args *args, const struct cuda_message *messages,
				    unsigned n, const struct cuda_message *like)
{
	struct message_queue *queue = &args->queues[args->n_queues];
	uint16_t end = args->n_queues ? queue[-1].end : 0;

	*queue = (struct message_queue){(uint8_t)like->peer, like->sends, end, end};
	for (unsigned i = 0; i < n; i++) {
		const struct cuda_message *m = &messages[i];
		if (m->peer != like->peer || m->sends != like->sends)
			continue;
		args->items[queue->end++] = (struct message_item){m->ptr, m->bytes, m->fingerprint};
	}
	args->n_queues++;
}

static bool cuda_messages_has_queue(const struct messages_args *args, const struct cuda_message *m)
{
	for (unsigned q = 0; q < args->n_queues; q++)
		if (args->queues[q].peer == m->peer && args->queues[q].sends == m->sends)
			return true;
	return false;
}

unsigned cuda_messages_fill(struct messages_args *args, const struct cuda_message *messages,
			    unsigned n, unsigned most)
{
	uint64_t bytes = 0, blocks;

	assert(n >= 1 && n <= MESSAGES_MOST && most >= 1);
	args->n_queues = args->n_lanes = 0;
	for (unsigned i = 0; i < n; i++) {
		uint32_t lanes = cuda_messages_lanes_of(messages[i].bytes);
		bytes += messages[i].bytes;
		args->n_lanes = lanes > args->n_lanes ? lanes : args->n_lanes;
		if (!cuda_messages_has_queue(args, &messages[i]))
			cuda_messages_add_queue(args, messages, n, &messages[i]);
	}
	blocks = bytes / BLOCK_BYTES + 1;
	blocks = blocks < most ? blocks : most;
	return blocks < (uint64_t)args->n_queues * args->n_lanes ? (unsigned)blocks
								 : args->n_queues * args->n_lanes;
}
