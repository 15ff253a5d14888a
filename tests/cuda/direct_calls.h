/* The calls of test_direct: what goes in, and what is to come out. */
#ifndef TESTS_CUDA_DIRECT_CALLS_H
#define TESTS_CUDA_DIRECT_CALLS_H

#include "cuda/api.h"

#include <tutti/tutti.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define RANKS_MOST 8
#define MOST       ((size_t)1 << 20) /* bytes of a block            */
#define SLACK      ((size_t)128)     /* for odd places, and a guard */
#define DIRECT_GARBAGE 0x5a

enum what {
	ALL_GATHER,
	BROADCAST,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	MESSAGES,
	COPYING, /* so many */
	ALL_REDUCE = COPYING,
	REDUCE_SCATTER,
	REDUCE,
	WHATS
};

/* One world, and one of its ranks. */
struct one;
struct world {
	int size, nodes;
	void (*body)(struct one *);
	char meeting[64];
	pthread_barrier_t barrier;
};
struct one {
	struct world *w;
	int rank;
	tutti_comm *comm;
	pthread_t thread;
	uint8_t *host, *send, *recv; /* host: of both others' size */
	CUstream stream;
};

extern uint64_t direct_seed;
extern const char *const direct_names[];

/* Ends the program with a message unless it is so; unless status is OK. */
void direct_must(const struct one *r, bool is_so, const char *what, size_t bytes);
void direct_well(const struct one *r, tutti_status status, const char *what, size_t bytes);
/* Blocks of so many bytes, which begin at an odd place perhaps. */
void direct_fill(const struct one *r, enum what what, size_t bytes, size_t at);
tutti_status direct_issue(const struct one *r, enum what what, size_t bytes, size_t at,
			  const tutti_call *call);
void direct_check(const struct one *r, enum what what, size_t bytes, size_t at);
/* How long messages of GPUs' memory go to that rank and from it: "stages", "adapters", "copies". */
const char *direct_way(const tutti_comm *comm, int peer);

#endif
