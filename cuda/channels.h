/* Ranks that map each other's GPU memory: each has a segment on its GPU, which the kernels of all
 * of them read and write (cuda/kernels/channel.h), and a record in pinned memory, by which its host
 * sees how far they are and stops them. Where processes share a GPU kernels cannot wait for each
 * other: there calls go by turns, in which the streams wait. A rank's calls follow each other in
 * the order in which they are launched, whatever their streams. One thread at a time, but for
 * cuda_channels_abort. */
#ifndef CUDA_CHANNELS_H
#define CUDA_CHANNELS_H

#include "cuda/device.h"
#include "cuda/kernels/channel.h"

struct cuda_channels;

/* A rank's message to the others; the same bytes on all machines. */
struct cuda_part {
	uint8_t process[16]; /* a random number of its process         */
	uint8_t gpu[16];     /* its GPU's UUID                         */
	uint8_t door[16];    /* where it takes descriptors             */
	uint8_t handle[64];  /* by which other processes map its segment */
	uint64_t segment;    /* where it lies in its process           */
	uint64_t page, page_token; /* of its flags, for calls by turns; 0: it has none */
	uint32_t page_fd, page_slot, pid; /* by which other processes open it          */
	uint32_t has_multicast;
	uint32_t blocks;     /* that its GPU holds at once             */
	uint32_t most_waiting, free_waiting; /* cuda_residency_most and _free of its device */
	uint32_t is_there;   /* 0: this rank has no GPU                */
};

/* This rank's device: an ordinal of the caller's, or -1: the one that is current in this thread.
 * Returns it, or -1 if there is none. */
int cuda_channels_device(int wanted);

/* Makes this rank's segment, on that device, for at most so many ranks; staging_bytes of it are for
 * buffers that not all ranks map. DEVICE, MEMORY. */
tutti_status cuda_channels_create(struct cuda_channels **channels, struct cuda_part *part,
                                  int ordinal, int most, size_t staging_bytes);
/* Whether processes that share a GPU open each other's buffers by IPC handles; not at first. */
void cuda_channels_open_buffers(struct cuda_channels *channels, bool opens_buffers);
/* This rank is `rank` of `size` then, whose parts these are, and `named` in messages. UNSUPPORTED,
 * with the reason: too many ranks, one without a GPU, or GPUs that do not reach each other. */
tutti_status cuda_channels_connect(struct cuda_channels *channels, const struct cuda_part *parts,
                                   int rank, int size, int named);
/* NULL is fine. After a failure what is still to run finds its memory in place: it is kept. */
void cuda_channels_destroy(struct cuda_channels *channels);

/* Memory in each rank's segment by which its host sends messages: CUDA_STAGES pieces of *bytes.
 * That of rank, as this one maps it. */
#define CUDA_STAGES 4
void *cuda_channels_stages(const struct cuda_channels *channels, int rank, size_t *bytes);
/* Of this rank's device. */
int cuda_channels_ordinal(const struct cuda_channels *channels);
/* Whether its calls are by turns: all of CUDA_KERNEL_turn, none captured. The same on all ranks. */
bool cuda_channels_take_turns(const struct cuda_channels *channels);
/* Why regions have no multicast, without a full stop; NULL: they have. */
const char *cuda_channels_no_multicast(const struct cuda_channels *channels);
/* Bytes that a call of a rank may stage, or more than any. */
size_t cuda_channels_most(const struct cuda_channels *channels);
/* How many channels a call may use. Unless calls take turns it is the same on all ranks once
 * cuda_channels_limit has been called with the smallest of their numbers. */
unsigned cuda_channels_count(const struct cuda_channels *channels);
void cuda_channels_limit(struct cuda_channels *channels, unsigned count);
/* INVALID: a buffer is memory of another device. */
tutti_status cuda_channels_check_buffer(const struct cuda_channels *channels, const void *ptr);
/* Where ptr, of a buffer that passed that check, lies for all ranks, or CHANNEL_NOWHERE. */
tutti_status cuda_channels_place(const struct cuda_channels *channels, const void *ptr,
                                 uint64_t *place);

/* Whether kernels may run in a stream: INVALID when it is not of this device, or its capture is
 * invalid. */
tutti_status cuda_channels_check_stream(const struct cuda_channels *channels, void *stream);
/* Starts a call with so many blocks; fills in args.channel but for the fingerprint. in_stream: it
 * goes into stream, and else behind stream's earlier work into a stream of its own. *used: the
 * stream in which it is. *is_captured: it will run when a graph is launched. */
struct cuda_channels_launch {
	enum cuda_kernel kernel; /* packets, lines, messages or turn */
	unsigned blocks;
	void *args;  /* of it: a struct channel_args is its first member */
	size_t most; /* of turns: bytes that any rank sends to any, as all ranks know */
	const void *near; /* a buffer of the call         */
	void *stream; /* or the channels' own, see cuda_channels_stream */
	bool in_stream;
};
void *cuda_channels_stream(const struct cuda_channels *channels);
tutti_status cuda_channels_launch(struct cuda_channels *channels,
                                  const struct cuda_channels_launch *launch, void **used,
                                  bool *is_captured);
/* Whether a default stream is shared with another rank's: then a call in it would wait for one
 * behind it. */
bool cuda_channels_share_default(const struct cuda_channels *channels);

/* From any thread: all kernels of this rank end, those to come too. */
void cuda_channels_abort(struct cuda_channels *channels);
/* Whether a kernel of this rank has begun and not ended. *ended, which may be NULL: a number that
 * changes whenever one ends. */
bool cuda_channels_is_running(const struct cuda_channels *channels, uint64_t *ended);
/* After an abort: returns when none runs, or after 10 s. */
void cuda_channels_settle(struct cuda_channels *channels);
/* The channel_failure that a kernel of this rank has found, or 0; the rank that it is about, and
 * how many bytes that sends and this rank expects. */
struct cuda_channels_error {
	uint32_t what;
	int peer;
	uint64_t bytes, expected;
};
struct cuda_channels_error cuda_channels_error(const struct cuda_channels *channels);

#endif
