/* Calls: the collectives, the arguments of one call, and a text for a call. */
#ifndef COLLECTIVES_PLAN_CALLS_H
#define COLLECTIVES_PLAN_CALLS_H

#include <tutti/tutti.h>

#include <stddef.h>
#include <stdint.h>

/* All that ranks call together. */
enum collective {
	COLL_ALL_REDUCE,
	COLL_ALL_GATHER,
	COLL_REDUCE_SCATTER,
	COLL_BROADCAST,
	COLL_BARRIER,
	COLL_REDUCE,
	COLL_GATHER,
	COLL_SCATTER,
	COLL_ALL_TO_ALL,
	COLL_PATTERNS, /* the ones before have algorithms; those after are served by theirs: */
	COLL_ALL_GATHERV = COLL_PATTERNS,
	COLL_REDUCE_SCATTERV,
	COLL_GATHERV,
	COLL_SCATTERV,
	COLL_ALL_TO_ALLV,
	COLL_SPLIT, /* all_gathers of what the ranks ask for: root is the round,    */
	COLL_DUP,   /* counted from 0; all rounds have one sequence number          */
	COLL_MEM_REPORT, /* mem_alloc without a window: an all_gather of the results */
	COLL_MEM_ALLOC, /* not data: agrees on a piece of shared memory              */
	COLL_COUNT,
};

/* The collective whose algorithms serve it: itself, or for all_gatherv all_gather. MEM_ALLOC has
 * none. */
static inline enum collective collective_pattern(enum collective c)
{
	static const enum collective of[] = {COLL_ALL_GATHER, COLL_REDUCE_SCATTER, COLL_GATHER,
	                                     COLL_SCATTER,    COLL_ALL_TO_ALL,     COLL_ALL_GATHER,
	                                     COLL_ALL_GATHER, COLL_ALL_GATHER};
	return c >= COLL_PATTERNS && c < COLL_MEM_ALLOC ? of[c - COLL_PATTERNS] : c;
}

enum { SEND_SIDE, RECV_SIDE };

/* One call: the part that all ranks agree on, and this rank's buffers. */
struct call_args {
	enum collective collective;
	tutti_dtype dtype;
	tutti_op op;
	int root;
	uint32_t purpose;             /* of a call without a root: 0, or purpose.h's            */
	size_t count;                 /* elements, as the API counts them; v-variants: of all
	                               * blocks together; all_to_allv: 0                         */
	const void *send;
	void *recv;
	/* v-variants, else NULL: how many elements rank i's block has and where it begins, of
	 * send and of recv (both the same but in all_to_allv; a side with one block, such as
	 * all_gatherv's send, has only its own rank's, at offset 0: counts[rank]). The caller's
	 * arrays, gone when the call has returned; offsets are never NULL when counts are not. */
	const size_t *counts[2], *offsets[2];
	uint64_t sequence;            /* of this communicator                                   */
	uint32_t fingerprint;         /* of everything that ranks must agree on; never 0        */
	_Bool is_grouped;             /* here: it is part of a group                            */
	_Bool is_on_device;           /* GPU kernels do it, or a node's part of it               */
};

static inline _Bool collective_has_root(enum collective pattern)
{
	return pattern == COLL_BROADCAST || pattern == COLL_REDUCE || pattern == COLL_GATHER ||
	       pattern == COLL_SCATTER;
}

static inline _Bool collective_reduces(enum collective pattern)
{
	return pattern == COLL_ALL_REDUCE || pattern == COLL_REDUCE_SCATTER ||
	       pattern == COLL_REDUCE;
}

/* A v-variant: counts and offsets say how long the blocks are. */
static inline _Bool collective_has_counts(enum collective c)
{
	return c >= COLL_ALL_GATHERV && c <= COLL_ALL_TO_ALLV;
}

/* It makes a communicator, of ranks that may come late. */
static inline _Bool call_is_join(const struct call_args *args)
{
	return args->collective == COLL_SPLIT || args->collective == COLL_DUP;
}

static inline _Bool call_is_later_round(const struct call_args *args)
{
	return call_is_join(args) && args->root > 0;
}

/* A call record as people read it: to explain a mismatch and to tell where a rank is. */
struct call_summary {
	int collective, dtype, op, root; /* op: its op_identity(), perhaps of another rank */
	uint32_t purpose;
	_Bool is_on_device;
	uint64_t count, sequence;
};

extern const char *const collective_names[COLL_COUNT];

static inline const char *collective_name(enum collective collective)
{
	return (unsigned)collective < COLL_COUNT ? collective_names[collective] : "?";
}

/* Before the number of a purpose, which ends the text. */
#define CALL_PURPOSE " for purpose "
/* "all_reduce(f32, 1024, sum) as #17"; a number that is no collective is a "?". Returns text. */
const char *call_in_words(const struct call_summary *summary, char *text, size_t text_bytes);

#endif
