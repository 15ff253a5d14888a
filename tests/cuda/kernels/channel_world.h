/* Ranks whose GPUs are this CPU: segments, words of the host, and programs of calls that each rank
 * carries out at its own pace, a thread a block. */
#ifndef TESTS_CUDA_KERNELS_CHANNEL_WORLD_H
#define TESTS_CUDA_KERNELS_CHANNEL_WORLD_H

#include "launch.h"

#include <tutti/tutti.h>

#include <stdbool.h>

#define WORLD_RANKS    8
#define WORLD_CHANNELS 4

enum call_kind {
	CALL_ALL_REDUCE,
	CALL_REDUCE,
	CALL_REDUCE_SCATTER,
	CALL_ALL_GATHER,
	CALL_BROADCAST,
	CALL_GATHER,
	CALL_SCATTER,
	CALL_ALL_TO_ALL,
	CALL_ALL_TO_ALLV, /* the last: not by packets */
	CALL_KINDS
};

/* One call of all ranks. counts[a][b]: elements from rank a to rank b; of all but ALL_TO_ALLV all
 * are the same. */
struct world_call {
	enum call_kind kind;
	bool by_packets, in_place;
	bool is_scaled; /* op is the sum, and scalars are the ranks' */
	uint64_t scalars[WORLD_RANKS];
	bool is_repeated; /* its buffers are used by a later call, too */
	bool send_is_mapped[WORLD_RANKS], recv_is_mapped[WORLD_RANKS];
	tutti_dtype dtype;
	tutti_op op;
	unsigned blocks;
	int root, shift[WORLD_RANKS];
	size_t counts[WORLD_RANKS][WORLD_RANKS];
	/* Filled by world_prepare(). */
	char *memory[WORLD_RANKS], *send[WORLD_RANKS], *recv[WORLD_RANKS];
	char *sent[WORLD_RANKS]; /* a copy of send, for what is expected                          */
	char *got[WORLD_RANKS];  /* a copy of recv, made as soon as this rank's call has ended    */
	size_t send_bytes[WORLD_RANKS], recv_bytes[WORLD_RANKS];
};

struct world {
	int size;
	uint64_t staging_bytes;
	void *segments[WORLD_RANKS];
	struct channel_host *hosts[WORLD_RANKS];
	uint64_t *regions[WORLD_RANKS];
	uint32_t fingerprints[WORLD_RANKS];
};

void world_create(struct world *w, int size, uint32_t first_epoch);
void world_destroy(struct world *w);
/* Of the last call, of every channel; greetings of other epochs are forgotten. */
void world_set_epoch(struct world *w, uint32_t epoch);

/* Makes buffers with random bytes, and frees them. */
void world_prepare(const struct world *w, struct world_call *call, uint64_t *seed);
void world_release(const struct world *w, struct world_call *call);
void world_channel_args(const struct world *w, int rank, struct channel_args *args);
void world_args(const struct world *w, const struct world_call *call, int rank,
                struct packets_args *packets, struct lines_args *lines);
void world_start(const struct world *w, const struct world_call *call, int rank,
                 struct launch *launch, void *args);
/* All ranks do all calls, in order; each at its own pace. When a call has ended on a rank, that rank
 * takes its result and uses the buffers for something else. */
void world_run(const struct world *w, struct world_call *calls, int n);
/* Fails the test where a rank has not what it should have. */
void world_check(const struct world *w, const struct world_call *call);

/* As a rank's host aborts, or 0 for the next test. */
void world_abort(struct channel_host *host, uint64_t value);

#endif
