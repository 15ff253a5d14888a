/* The memory that kernels share whose ranks map each other's GPU memory: the segment of each rank,
 * in its GPU's memory, and the words that its host reads. Both sides include this.
 *
 * Block b of a rank's kernel talks to block b of the other ranks' kernels only: they are channel b.
 * A channel counts its calls: the epoch of a call is one more than that of the channel's last call,
 * which lies in the segment, so that a captured graph may be replayed. All ranks launch equally
 * many blocks for a call, and a rank's calls of one communicator follow each other in stream order;
 * so all ranks agree on the epochs of each channel.
 *
 * Every call of a channel begins with a greeting {epoch, fingerprint} from every rank to every
 * rank, and no rank ends a call without every greeting. So when rank A has ended call e + 1, rank B
 * has begun it, and so has ended call e. Hence two slots suffice for greetings and packets, which A
 * writes to B before it knows that B is there: those of e + 2 may overwrite those of e. With one
 * slot those of e + 1 would overwrite some that B may not have read. Steps need one slot: a rank
 * leaves a call of lines only when all ranks have done all steps, and tells its next one only when
 * all have begun the next call.
 *
 * Epochs wrap from 2^32 - 1 to 2, so that their parity goes on and none is 0. A slot may hold
 * packets that are 2^32 calls old; so each is cleared every 2^30 calls.
 *
 * When a call fails on a rank, the rank tells its peers STEP_ABANDON. Peers that have not seen all
 * greetings then give the call up, too. The rank's kernel ends when every peer that has greeted has
 * left or given up: from then on nobody reads the rank's buffers.
 *
 * Where processes share a GPU no kernel waits for another rank's: see struct turn_args. */
#ifndef CUDA_KERNELS_CHANNEL_H
#define CUDA_KERNELS_CHANNEL_H

#include "cuda/kernels/message_box.h"

#include <stddef.h>
#include <stdint.h>

#define CHANNEL_RANKS   32
#define CHANNELS_MOST   64
#define CHANNEL_REGIONS 64
#define CHANNEL_MULTICAST    (CHANNEL_RANKS * CHANNEL_REGIONS) /* where multicast addresses begin */
#define CHANNEL_REGION_WORDS (2 * CHANNEL_MULTICAST)
#define CHANNEL_ALIGN   128 /* where shares of channels and slices of ranks begin */

#define PACKET_EACH     2   /* channels of packets that a block serves, at the most    */
#define PACKET_SLOT     512 /* packets of a channel from one rank                      */
#define PACKET_BYTES    8   /* of data in a packet                                     */
#define PACKET_SHARE    (PACKET_SLOT * PACKET_BYTES) /* bytes of a channel, of a rank  */
#define PACKETS_TOTAL   (512u << 10) /* bytes of the blocks of all ranks, but at least ... */
#define PACKET_CHANNELS 8            /* ... so many channels' for each                     */

/* Steps of a call of lines besides those of its chunks. */
#define STEP_LEAVE   (UINT32_MAX - 1) /* this rank has done all                         */
#define STEP_ABANDON UINT32_MAX       /* it gives the call up, and does not leave it    */

/* After a failure a rank's kernel waits for those of peers that read its buffers: for a store to
 * reach another GPU at the least, and not longer than a peer that lives takes. */
#define ABANDON_LEAST_NS 50000u
#define ABANDON_MOST_NS  500000000u

/* Fields of a greeting, which calls of lines send in packets. */
enum greeting_field {
	GREETING_SEND,  /* the place of what the reader gets; see channel_place() */
	GREETING_RECV,  /* the place of the writer's result                       */
	GREETING_BYTES, /* what the reader gets                                   */
	GREETING_MOST,  /* the most that any rank gets of the writer              */
	GREETING_FIELDS
};

/* 8 bytes of data, 4 in each half, and the epoch above them: nothing else has to tell that they are
 * there. */
struct packet {
	uint64_t half[2];
};

/* From one rank to another, at the start of a call. For packets the word is all. */
struct channel_greeting {
	uint64_t word; /* epoch << 32 | fingerprint */
	uint64_t unused[7];
	struct packet fields[GREETING_FIELDS];
};

struct channel {
	uint64_t epoch; /* of the last call; only this rank's kernel touches it */
	uint64_t messages; /* how many kernels of messages had a block of this number; the same */
	uint64_t unused[6];
	uint64_t steps[CHANNEL_RANKS]; /* epoch << 32 | step, of each rank */
	struct channel_greeting greetings[2][CHANNEL_RANKS]; /* of each parity and rank */
};

/* By turns: what a rank sends to a peer, and gets of it. */
struct turn_peer {
	uint64_t send_offset, recv_offset, recv_bytes;
};

/* A call of a rank, for the leaders. */
struct turn_posting {
	uint64_t send, recv;  /* places; CHANNEL_NOWHERE: in its staging */
	uint64_t fingerprint;
	struct turn_peer peers[CHANNEL_RANKS];
};
#define TURN_POSTING_WORDS(size) (3 + 3 * (size)) /* that are used */

/* A segment: this; then for each channel of packets 2 slots of each rank, and what lies in packets
 * of each rank, unpacked; then a box for each rank; then the staging of each channel. All of it is
 * zero at the beginning. */
struct channel_segment {
	uint64_t has_failed; /* the error record is taken              */
	/* By turns, of a leader's kernel: blocks that have come, and that have moved;
	 * turn_gathered() of the latest turn whose postings lie below, with addresses as places. */
	uint64_t came, moved, gathered;
	uint64_t unused[12];
	struct channel channels[CHANNELS_MOST];
	struct turn_posting postings[CHANNEL_RANKS];
};

enum channel_failure { CHANNEL_OTHER_CALL = 1, CHANNEL_OTHER_BYTES, CHANNEL_OTHER_MESSAGE };

/* Not 0: the kernel ends. The host's word is far, and one that all blocks read is handed to them
 * one after the other, 0.65 us each: so each channel has its own, and all are set. */
struct channel_abort {
	uint64_t word;
	uint64_t unused[15];
};

/* In pinned memory of the host, one for each rank. */
struct channel_host {
	struct channel_abort aborts[CHANNELS_MOST]; /* set by the host or a kernel          */
	uint64_t error;             /* a channel_failure; stored last, after those below    */
	uint64_t peer, fingerprint; /* the rank that differs, and its fingerprint           */
	uint64_t bytes, expected;   /* that the peer sends, and that this rank expects      */
	uint64_t unused[2];
	uint64_t started[CHANNELS_MOST]; /* epochs: a kernel runs where the two differ       */
	uint64_t finished[CHANNELS_MOST];
	uint64_t messages_started[CHANNELS_MOST]; /* the same of kernels of messages         */
	uint64_t messages_finished[CHANNELS_MOST];
};

/* Where a buffer lies, for all ranks: in which region that all map, and how far from its start. In
 * region 0, which starts at 0, are addresses as those have them who read: ranks of one process, or
 * by turns the leader. */
#define CHANNEL_NOWHERE UINT64_MAX /* not all map it: it goes through staging */

/* Of every call of a channel. */
struct channel_args {
	void *segments[CHANNEL_RANKS]; /* as this rank maps them        */
	struct channel_host *host;     /* as the device maps it         */
	const uint64_t *regions;       /* in device memory: where region i of rank r starts, as this
	                                * rank maps it, at [r * CHANNEL_REGIONS + i]; and
	                                * CHANNEL_RANKS * CHANNEL_REGIONS further on, the multicast
	                                * address of all ranks' parts of that region, or 0 */
	uint64_t staging_bytes;        /* of a channel: a multiple of 4 * CHANNEL_ALIGN * size */
	uint32_t size, rank, fingerprint;
	uint32_t is_one_gpu; /* the segments and buffers of all ranks are in one's memory */
};

/* A block of `bytes` from each sender to each receiver. Of the channels, one for each PACKET_SHARE
 * of them and at least one, a block of the grid serves that of its number, and perhaps the one
 * that is the grid's size further on. */
struct packets_args {
	struct channel_args channel;
	const void *send;
	void *recv;
	uint64_t bytes, send_stride, recv_stride; /* strides: from a rank's block to the next's */
	uint64_t scalar;                          /* this rank's, if is_scaled: see lines_args  */
	int32_t sender, receiver;                 /* a rank; -1: all                            */
	int32_t reduces;                          /* all blocks become one                      */
	int32_t dtype, op, divisor, is_scaled;
};

enum channel_move {
	CHANNEL_PULL,          /* recv_bytes[s] from each rank s to recv + recv_offset[s]         */
	CHANNEL_REDUCE_MINE,   /* recv = what all ranks send to this one, reduced                 */
	CHANNEL_REDUCE_SLICES, /* rank r reduces slice r of all ranks' send, for root or for all  */
};

struct lines_args {
	struct channel_args channel;
	const void *send;
	void *recv;
	uint64_t send_place, recv_place;                                /* or CHANNEL_NOWHERE */
	uint64_t send_offset[CHANNEL_RANKS], send_bytes[CHANNEL_RANKS]; /* for each rank      */
	uint64_t recv_offset[CHANNEL_RANKS], recv_bytes[CHANNEL_RANKS]; /* from each rank     */
	int32_t move;
	int32_t root;         /* who gets the slices; -1: all                     */
	int32_t send_is_same; /* all ranks get the same bytes: they are staged once */
	/* Of a scaled sum what this rank sends is multiplied by its scalar, the bits of one element
	 * in the low bytes, on its way into packets or staging: send_place is CHANNEL_NOWHERE. */
	int32_t is_scaled;
	uint64_t scalar;
	int32_t dtype, op, divisor;
	int32_t may_multicast; /* the sum may be the switch's, in whose order it is */
};

/* All messages of a call, of which each moves on when it can, whatever the others wait for. A queue
 * has those to one peer or from it, in order. Ranks need not have equally many blocks. */
#define MESSAGES_MOST 128 /* so that the arguments are less than 4 KiB */

struct message_queue {
	uint8_t peer, sends;
	uint16_t first, end; /* items */
};

struct message_item {
	void *ptr; /* of a send: not written */
	uint64_t bytes;
	uint64_t fingerprint; /* the same on both sides */
};

struct messages_args {
	struct channel_args channel;
	struct message_queue queues[2 * CHANNEL_RANKS];
	struct message_item items[MESSAGES_MOST];
	uint32_t n_queues, n_lanes; /* lanes: that the longest message uses */
};

/* By turns: on each GPU the lowest rank is the leader, of all ranks there, its locals. A call is a
 * sequence of turns, which the host counts over all calls of a communicator; all ranks count alike.
 * In each turn a rank's stream posts the turn to the leaders, and waits until each has told that it
 * is done. A leader's stream waits until all ranks have posted; then its kernel moves what its
 * locals get, out of all ranks' send, and tells them. The buffers of a rank that not all who need
 * them map go through that rank's staging, by kernels of its own: one before it posts, and one
 * behind the wait.
 *
 * So between a rank and a leader there is a handshake each turn: the rank posts turn t + 1 only
 * after the leader has told turn t, and the leader tells t + 1 only after the rank has posted it.
 *   - A stream that waits for turn t finds t or t - 1 in a flag: two bits, one of which says t,
 *     tell them apart for ever.
 *   - What a rank has staged is read only between its posting and the last leader's telling; its
 *     kernel overwrites it behind that. Its leader writes results into its staging only behind the
 *     posting, which comes behind the kernel that took the results of the turn before. So staging
 *     needs no halves.
 *   - The same holds of send and recv themselves, where they are mapped: the rank's stream goes on
 *     to what may overwrite them when no leader uses them any more.
 *   - A posting's words are the host's, which writes them before it enqueues the call, into the
 *     slot of the call's number. A rank has no more than TURN_CALLS calls in its streams at once,
 *     so that the call which had the slot before has ended, and the leaders have read it. */
enum turn_phase { TURN_STAGE, TURN_MOVE, TURN_TAKE };

#define TURN_CALLS       128 /* of a rank, in its streams at once                            */
#define TURN_BLOCKS_MOST 128
#define TURN_THREADS     512 /* of a block */
/* Bytes of staging with which each block has room for a piece to and from each rank. */
#define TURN_STAGING_LEAST ((uint64_t)TURN_BLOCKS_MOST * 2 * CHANNEL_RANKS * CHANNEL_ALIGN)

#define TURN_RELEASED ((uint64_t)1 << 32) /* turn_flag.released, as a bit of the word */

/* A word of 64 bits on which the rank's stream waits, by CU_STREAM_WAIT_VALUE_AND. Another rank
 * stores the one half, and the other half is the rank's own, so that nobody takes back that it is
 * released. */
struct turn_flag {
	uint32_t turn;     /* turn_mark() of the latest       */
	uint32_t released; /* 1: the rank waits for none more */
	uint64_t unused[7];
};

/* By turns: an allocation of a rank, for its leader, which opens the handle. */
#define TURN_OFFERS 32
#define TURN_OFFER_WORDS 8 /* of a CUipcMemHandle */

struct turn_offer {
	uint64_t number;    /* another one with each change; odd: it is being changed */
	uint64_t is_there;
	uint64_t handle[TURN_OFFER_WORDS];
};

/* In host memory that all ranks of the node map, one for each rank: its CPU must be able to end its
 * stream's waits, whatever the GPU's queues hold. */
struct turn_page {
	uint64_t token;         /* drawn: which page it is             */
	uint64_t staging;       /* where it lies in its process        */
	uint8_t handle[64];     /* by which other processes map it     */
	uint64_t is_over;       /* this rank takes no more turns       */
	uint64_t has_failed;    /* its buffers may be used otherwise   */
	uint32_t finished;      /* turn_mark() of the last turn of the latest call that has ended */
	uint32_t moves;         /* 1: as leader its kernel uses the buffers of the ranks */
	uint32_t unused[6];
	struct turn_flag posted[CHANNEL_RANKS]; /* by each rank: a leader waits here */
	struct turn_flag done[CHANNEL_RANKS];   /* by each leader                    */
	struct turn_posting postings[TURN_CALLS];
	uint64_t offers_made;   /* changes of offers */
	struct turn_offer offers[TURN_OFFERS];
	/* Of a leader: the offers of each rank that it has opened, where its GPU maps them; its CPU
	 * and the rank's use that. */
	uint64_t taken[CHANNEL_RANKS][TURN_OFFERS]; /* turn_offer.number */
	uint64_t opened[CHANNEL_RANKS][TURN_OFFERS];
};

struct turn_args {
	struct lines_args lines;                /* staging_bytes: of a block                 */
	struct turn_page *pages[CHANNEL_RANKS]; /* as the device maps them                   */
	void *staging[CHANNEL_RANKS];
	uint32_t phase, turn, slot; /* slot: of the postings */
	uint32_t chunk;
	uint32_t locals;            /* a bit for each rank that this leader serves */
	uint32_t copiers;           /* threads that copy a piece together; turn_copiers() */
};

#ifdef __CUDACC__
#define CHANNEL_INLINE static __host__ __device__ inline
#else
#define CHANNEL_INLINE static inline
#endif

CHANNEL_INLINE uint64_t channel_place(uint32_t region, uint64_t offset)
{
	return (uint64_t)region << 56 | offset;
}

/* The value of a flag when a turn has come: the turn, for the host that looks, and a bit of its
 * parity. */
CHANNEL_INLINE uint32_t turn_mark(uint32_t turn)
{
	return turn << 2 | 1u << (turn & 1);
}

/* The bits of a flag of which one must be there before a stream goes on. */
CHANNEL_INLINE uint64_t turn_awaited(uint32_t turn)
{
	return TURN_RELEASED | 1u << (turn & 1);
}

/* Staging of a block is so many pieces: what goes to each rank, or once to all, and behind that
 * what comes from each, or their sum. */
CHANNEL_INLINE uint32_t turn_pieces(uint32_t size, int send_is_same, int is_sum)
{
	return (send_is_same ? 1 : size) + (is_sum ? 1 : size);
}

/* The most that a rank sends to another in a turn, by one block. */
CHANNEL_INLINE uint64_t turn_piece_bytes(const struct lines_args *a)
{
	uint32_t pieces = turn_pieces(a->channel.size, a->send_is_same, a->move != CHANNEL_PULL);

	return a->channel.staging_bytes / pieces / CHANNEL_ALIGN * CHANNEL_ALIGN;
}

/* Of short pieces each warp copies its own, since a copy takes as long as the memory answers. */
CHANNEL_INLINE uint32_t turn_copiers(uint64_t piece_bytes)
{
	return piece_bytes <= 8192 ? 32 : TURN_THREADS;
}

/* The channels that carry packets. */
CHANNEL_INLINE uint32_t channel_packets(uint32_t size)
{
	uint32_t n = PACKETS_TOTAL / PACKET_SHARE / size;

	return n < PACKET_CHANNELS ? PACKET_CHANNELS : n > CHANNELS_MOST ? CHANNELS_MOST : n;
}

/* Where the boxes begin, from the start of a segment. */
CHANNEL_INLINE uint64_t channel_boxes_offset(uint32_t size)
{
	uint64_t packets = 16ull * 2 * PACKET_SLOT, unpacked = (uint64_t)PACKET_BYTES * PACKET_SLOT;

	return sizeof(struct channel_segment) + channel_packets(size) * size * (packets + unpacked);
}

CHANNEL_INLINE uint64_t channel_segment_bytes(uint32_t size, uint32_t channels,
                                               uint64_t staging_bytes)
{
	return channel_boxes_offset(size) + size * sizeof(struct message_box) +
	       channels * staging_bytes;
}

#endif
