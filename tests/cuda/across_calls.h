/* Random calls across nodes on GPUs, each beside the same call on host memory. All bytes of both
 * buffers are compared, those around the blocks, too. */
#ifndef TESTS_CUDA_ACROSS_CALLS_H
#define TESTS_CUDA_ACROSS_CALLS_H

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ACROSS_RANKS 8

enum across_what {
	ACROSS_ALL_REDUCE,
	ACROSS_REDUCE_SCATTER,
	ACROSS_ALL_GATHER,
	ACROSS_REDUCE_SCATTERV,
	ACROSS_ALL_GATHERV,
	ACROSS_WHATS
};

struct across_call {
	/* The same on all ranks. */
	enum across_what what;
	tutti_dtype dtype;
	tutti_op op;
	size_t count, late[2]; /* late: elements that send and recv begin late */
	size_t counts[ACROSS_RANKS], offsets[ACROSS_RANKS]; /* of the blocks, if there are */
	bool in_place;
	uint32_t salt;
	/* This rank's. */
	int rank, ranks;
	bool is_mapped; /* device's memory, which goes with the communicator */
	unsigned char *device[2], *host[2]; /* send's buffer and recv's */
	char why[200];
};

/* Sizes of elements of the dtypes that are drawn. */
size_t across_element(tutti_dtype dtype);

/* Takes buffers, of the current GPU; is_mapped: those that all ranks map. */
tutti_status across_open(struct across_call *call, tutti_comm *comm, bool is_mapped);
void across_close(struct across_call *call);
/* Of so many bytes in all. */
void across_set(struct across_call *call, enum across_what what, size_t bytes);
void across_draw(struct across_call *call, uint64_t *shared);
/* Fills all buffers, and makes the call on the host's. */
tutti_status across_prepare(struct across_call *call, tutti_comm *comm);
tutti_status across_issue(const struct across_call *call, tutti_comm *comm,
			  const tutti_call *how);
/* false: call->why says what is wrong. */
bool across_check(struct across_call *call);

#endif
