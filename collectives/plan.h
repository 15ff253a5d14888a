/* A plan: one collective, for one rank, as a straight-line program.
 *
 * An algorithm is a pure function of (rank, size). It appends steps in program order as if each ran
 * to its end, and never waits; the builder infers from the chunks that steps read and write which
 * of them may overlap. A plan names numbered chunks of buffers, never addresses or sizes, so one
 * plan serves every count, pointer and dtype. It is plain arrays without pointers into itself, to
 * be printed, checked and simulated.
 *
 * An algorithm's file includes this header and nothing else of ours. */
#ifndef COLLECTIVES_PLAN_H
#define COLLECTIVES_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plan_buf { BUF_IN, BUF_OUT, BUF_TMP, BUF_COUNT };

enum step_kind {
	STEP_SEND,        /* src to peer                                                     */
	STEP_RECV,        /* dst from peer                                                   */
	STEP_RECV_REDUCE, /* dst = src (op) what arrives                                     */
	STEP_REDUCE,      /* dst = src[0] (op) src[1] ... in the fixed association           */
	STEP_COPY,        /* dst = src                                                       */
	STEP_FINISH,      /* the sum in dst is complete: divide it when the op is an average */
};

/* One chunk of one buffer. */
struct ref {
	uint32_t buf, chunk;
};

struct step {
	enum step_kind kind;
	int peer; /* -1 for a local step                                       */
	struct ref dst;
	uint32_t src, srcs;   /* slice of plan->refs: what the step reads                  */
	uint32_t shape;       /* the chunk of the call's layout whose length this step has */
	uint32_t lane;        /* the ordered stream it is issued on                        */
	uint32_t deps;        /* how many earlier steps it waits for                       */
	uint32_t succ, succs; /* slice of plan->edges: the steps that wait for it          */
	bool ends_average;    /* REDUCE: its result is complete                            */
};

/* A chunk of scratch: as long as chunk shape of the call's layout; the index-th of its pool. */
enum tmp_pool { POOL_HOST, POOL_KIND };
struct tmp_chunk {
	uint32_t shape, index;
	enum tmp_pool pool; /* KIND: in memory of the buffers' kind (staged plans only)   */
};

/* Steps that are issued in order: all sends to a peer, all receives from it, all local work. */
struct lane {
	int peer;              /* -1: local                                                 */
	bool sends, reduces;   /* reduces: has RECV_REDUCE steps                            */
	uint32_t first, count; /* slice of plan->order                                      */
};

struct plan {
	int rank, size;
	uint32_t chunks[BUF_COUNT];
	uint32_t shape_base[2]; /* IN and OUT: the layout's chunk that chunk 0 is            */
	bool staged;            /* IN and OUT are memory that no transport touches           */
	struct step *steps;
	uint32_t count;
	struct lane *lanes;
	uint32_t lane_count;
	uint32_t *order; /* steps by lane                                             */
	uint32_t *edges;
	struct ref *refs;
	struct tmp_chunk *tmp;
	uint32_t pool_chunks[2]; /* TMP: how many chunks lie in each pool                     */
	uint32_t max_srcs;       /* the most chunks that one step reads                       */
	struct builder *builder; /* only while building                                       */
};

/* How many chunks IN and OUT have; shape_base: see above, zero for whole buffers. */
struct plan_shape {
	uint32_t in_chunks, out_chunks;
	uint32_t in_base, out_base;
};

/* staged: every byte on its way passes through host chunks of TMP. NULL when out of memory, now or
 * while building (plan_end); a plan that failed to grow accepts more steps and drops them. */
struct plan *plan_new(int rank, int size, struct plan_shape shape, bool staged);
struct plan *plan_end(struct plan *plan);
void plan_free(struct plan *plan);

/* A run of chunks. The functions below append one step per chunk. */
struct span {
	uint32_t buf, first, count;
};

void plan_send(struct plan *plan, int peer, struct span src);
/* Where dst is still being sent the receive waits for that send: right only when what arrives
 * cannot exist before the peer has got it, as in an all_gather after a reduce_scatter. */
void plan_recv(struct plan *plan, int peer, struct span dst);
/* dst = src (op) incoming. Partial sums of 16- and 8-bit floats are rounded at every such step. */
void plan_recv_reduce(struct plan *plan, int peer, struct span dst, struct span src);
/* dst = src[0] (op) src[1] (op) ... in the fixed association, rounded once; finishes averages. */
#define PLAN_SOURCES_MAX 1024
void plan_reduce(struct plan *plan, struct span dst, const struct span *src, uint32_t n);
void plan_copy(struct plan *plan, struct span dst, struct span src);
/* The sums in dst, built by plan_recv_reduce, are complete. */
void plan_finish(struct plan *plan, struct span dst);
/* Fresh scratch, as long as the chunks of like. */
struct span plan_scratch(struct plan *plan, struct span like);

static inline struct span span(uint32_t buf, uint32_t first, uint32_t count)
{
	return (struct span){buf, first, count};
}

/* Part i (modulo n) of n equal parts. */
static inline struct span part(struct span s, int i, int n)
{
	uint32_t each = s.count / (uint32_t)n;
	return (struct span){s.buf, s.first + (uint32_t)(((i % n) + n) % n) * each, each};
}

/* The ranks that an algorithm runs among: me, counted from 0, of size. shift renumbers them, so
 * that the root of a broadcast is member 0. */
struct group {
	int me, size, first, stride, shift;
};

static inline int member(struct group g, int i)
{
	return g.first + (((i + g.shift) % g.size + g.size) % g.size) * g.stride;
}

/* The algorithms, by file. in and out have the group's size of chunks where the collective has
 * parts, one chunk elsewhere; in == out is in place. */
void ring_all_reduce(struct plan *plan, struct group g, struct span in, struct span out);
void ring_reduce_scatter(struct plan *plan, struct group g, struct span in, struct span out);
void ring_all_gather(struct plan *plan, struct group g, struct span in, struct span out);
void ring_broadcast(struct plan *plan, struct group g, struct span in, struct span out);
void doubling_all_reduce(struct plan *plan, struct group g, struct span in, struct span out);
void doubling_broadcast(struct plan *plan, struct group g, struct span in, struct span out);
void doubling_barrier(struct plan *plan, struct group g, struct span in, struct span out);
void direct_all_reduce(struct plan *plan, struct group g, struct span in, struct span out);
void direct_reduce_scatter(struct plan *plan, struct group g, struct span in, struct span out);
void direct_all_gather(struct plan *plan, struct group g, struct span in, struct span out);
void direct_broadcast(struct plan *plan, struct group g, struct span in, struct span out);

#endif
