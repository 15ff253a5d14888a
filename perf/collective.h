/* What the driver knows of the collectives: buffers, values that must arrive, and nccl-tests' busbw. */
#ifndef PERF_COLLECTIVE_H
#define PERF_COLLECTIVE_H

#include "values.h"

enum collective_call {
	CALL_ALL_REDUCE,
	CALL_ALL_GATHER,
	CALL_REDUCE_SCATTER,
	CALL_BROADCAST,
	CALL_REDUCE,
	CALL_GATHER,
	CALL_SCATTER,
	CALL_ALL_TO_ALL,
	CALL_SENDRECV,
	CALL_BARRIER
};

/* How many elements a buffer has: none, count, or a block of count for each rank. */
enum collective_buffer { BUFFER_NONE, BUFFER_COUNT, BUFFER_BLOCKS };

struct collective {
	const char *name;
	enum collective_call call;
	enum collective_buffer send, recv;
	bool is_reduced, has_root, is_never_in_place;
	bool has_root_send, has_root_recv; /* that buffer is the root's alone */
};

struct place {
	int rank, ranks, root;
};

/* In elements. In place both buffers lie in one, the parts that send and recv are at these offsets.
 */
struct shape {
	size_t count;      /* the argument of the call */
	size_t whole;      /* nccl-tests' "size": the same on every rank */
	size_t send, recv; /* how many the buffers hold; of 0: NULL */
	size_t send_in_place, recv_in_place;
};

struct operation {
	enum collective_call what;
	const void *send;
	void *recv;
	size_t count;
	tutti_dtype dtype;
	tutti_op op;
	int root;
	tutti_comm *comm;
	const tutti_call *call; /* NULL: blocking */
};

/* The data that arrived at one rank in one iteration. */
struct arrival {
	const struct values *values;
	const unsigned char *recv; /* NULL: nothing had to arrive */
	size_t count;
	struct place at;
	uint64_t iteration;
};

extern const char *const perf_collective; /* the program's */
const struct collective *collective_named(const char *name);
/* Without data no rank may return from a call that another has not yet made. */
bool collective_has_data(const struct collective *collective);
/* For a message of that many elements (nccl-tests' "size"), which may round it down. */
struct shape collective_shape(const struct collective *collective, size_t elements, struct place at);
int collective_previous(int rank, int ranks);
/* How many of the elements that arrived are not what they should be. */
uint64_t collective_wrong(const struct collective *collective, const struct arrival *arrival);
/* busbw / algbw, as nccl-tests defines it. */
double collective_bus_factor(const struct collective *collective, int ranks);

#endif
