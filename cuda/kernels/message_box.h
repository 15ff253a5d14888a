/* Boxes: a segment has one for the messages between its rank and each rank, itself too. A message
 * is cut into chunks, chunk k goes through lane k modulo MESSAGE_LANES, and a lane has a few slots
 * in the receiver's memory. Chunks of a lane are numbered from 1, over all messages and calls; the
 * numbers have 64 bits and do not wrap.
 *
 * A sender writes chunk c into its slot when the receiver has taken chunk c - MESSAGE_SLOTS. It
 * looks that up in the receiver's memory, once in a few chunks: nothing is ever written into the
 * memory of a sender, so that one may be gone when its last chunk is taken. */
#ifndef CUDA_KERNELS_MESSAGE_BOX_H
#define CUDA_KERNELS_MESSAGE_BOX_H

#include <stdint.h>

#define MESSAGE_LANES      8
#define MESSAGE_SLOTS      4     /* of a lane  */
#define MESSAGE_SLOT_BYTES 16384 /* of a chunk */

/* Of a chunk, from its sender: the number says that the chunk is there, and is stored last. */
struct message_head {
	uint64_t number, fingerprint;
	uint64_t bytes; /* of the whole message */
	uint64_t unused;
};

struct message_box {
	/* How many chunks this rank has sent to the peer, and how many of these that had taken when
	 * this rank last looked. Only this rank's kernels touch them. */
	uint64_t sent[MESSAGE_LANES], seen[MESSAGE_LANES];
	uint64_t taken[MESSAGE_LANES]; /* of the peer's chunks, by this rank; the peer reads it */
	uint64_t unused[8];
	/* The peer writes these. */
	struct message_head heads[MESSAGE_LANES][MESSAGE_SLOTS];
	char slots[MESSAGE_LANES][MESSAGE_SLOTS][MESSAGE_SLOT_BYTES];
};

#endif
