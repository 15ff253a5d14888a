/* Messages become the arguments of one kernel (cuda/kernels/messages_kernel.h). Plain computing. */
#ifndef CUDA_MESSAGES_H
#define CUDA_MESSAGES_H

#include "cuda/kernels/channel.h"

#include <stdbool.h>
#include <stddef.h>

struct cuda_message {
	bool sends;
	int peer;
	void *ptr; /* of a send: not written */
	uint64_t bytes;
	uint64_t fingerprint; /* of what both sides must agree on */
};

/* n of them, 1 to MESSAGES_MOST, in the order in which this rank issues them. Fills in all of args
 * but args->channel. Returns with how many blocks to launch it, 1 to `most`. */
unsigned cuda_messages_fill(struct messages_args *args, const struct cuda_message *messages,
                            unsigned n, unsigned most);

#endif
