/* A plan: one collective, for one rank, as a straight-line program.
 *
 * An algorithm is a pure function of (rank, size). It appends steps in program order as if each ran
 * to its end, and never waits; the builder infers from the chunks that steps read and write which
 * of them may overlap. A plan names numbered chunks of buffers, never addresses or sizes, so one
 * plan serves every count, pointer and dtype. It is plain arrays without pointers into itself, to
 * be printed, checked and simulated.
 *
 * An algorithm's file includes this header and nothing else of ours. */
#ifndef COLLECTIVES_PLAN_PLAN_H
#define COLLECTIVES_PLAN_PLAN_H

#include "collectives/plan/algorithm_table.h"
#include "collectives/plan/layout.h"
#include "collectives/plan/span.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum plan_buf { BUF_IN, BUF_OUT, BUF_TMP, BUF_COUNT };

enum step_kind {
	STEP_SEND,        /* refs to peer, as one message                                    */
	STEP_RECV,        /* refs from peer, as one message                                  */
	STEP_RECV_REDUCE, /* dst = ref (op) what arrives                                     */
	STEP_REDUCE,      /* dst = ref[0] (op) ref[1] ... in the fixed association           */
	STEP_COPY,        /* dst = ref                                                       */
	STEP_SCALE,       /* dst = ref times this rank's scalar                              */
	STEP_FINISH,      /* the sum in dst is complete: divide it when the op is an average */
};

/* One chunk of one buffer. */
struct ref {
	uint32_t buf, chunk;
};

struct step {
	enum step_kind kind;
	int peer;             /* -1 for a local step                                       */
	struct ref dst;       /* of all but SEND and RECV                                  */
	uint32_t ref, refs;   /* slice of plan->refs: what it reads; RECV: what it writes  */
	uint32_t lane;        /* the ordered stream it is issued on                        */
	uint32_t deps;        /* how many earlier steps it waits for                       */
	uint32_t succ, succs; /* slice of plan->edges: the steps that wait for it          */
	bool ends_average;    /* REDUCE: its result is complete                            */
};

enum tmp_pool {
	POOL_HOST,
	POOL_KIND,   /* in memory of the buffers' kind (staged plans only) */
	POOL_FILLED, /* there too: see plan_filled                         */
	POOLS
};

/* A chunk of scratch: as long as chunk shape of the call's layout; the index-th of its pool. */
struct tmp_chunk {
	uint32_t shape, index;
	enum tmp_pool pool;
};

/* Steps that are issued in order: all sends to a peer, all receives from it, all local work. */
struct lane {
	int peer;              /* or -1 for a local step                                    */
	bool sends, reduces;   /* reduces: has RECV_REDUCE steps                            */
	uint32_t first, count; /* slice of plan->order                                      */
};

/* How many chunks IN and OUT have; the layout's chunk that chunk 0 of each is. */
struct plan_shape {
	uint32_t in_chunks, out_chunks;
	uint32_t in_base, out_base;
};

struct plan_options {
	bool staged; /* IN and OUT are memory that no transport touches: every byte on its
		      * way passes through host chunks of TMP                          */
	bool scaled; /* each rank's input counts times its scalar                       */
	bool across; /* of two levels only what goes between nodes: GPUs do the rest    */
	/* Of staged plans, while they are built: by peer, whether messages go from and to IN, OUT
	 * and scratch of the kind where they lie (direct[peer] & direct_kind). NULL: with none. */
	const uint8_t *direct;
	uint8_t direct_kind;
	bool whole; /* with direct: neighbouring chunks of IN and OUT lie side by side, uncut  */
};

struct plan {
	int rank, size;
	uint32_t chunks[BUF_COUNT];
	uint32_t shape_base[2]; /* IN and OUT: the layout's chunk that chunk 0 is            */
	struct plan_options options;
	struct step *steps;
	uint32_t count;
	struct lane *lanes;
	uint32_t lane_count;
	uint32_t *order; /* steps by lane                                             */
	uint32_t *edges;
	struct ref *refs;
	struct tmp_chunk *tmp;
	uint32_t pool_chunks[POOLS]; /* TMP: how many chunks lie in each pool                 */
	uint32_t max_refs;       /* the most chunks of one step                               */
	struct builder *builder; /* only while building                                       */
};

/* NULL when out of memory, now or while building (plan_end); a plan that failed to grow accepts
 * more steps and drops them. */
struct plan *plan_new(int rank, int size, struct plan_shape shape, struct plan_options options);
struct plan *plan_end(struct plan *plan);
void plan_free(struct plan *plan);

/* The layout's chunk that r is as long as. */
static inline uint32_t plan_shape_of(const struct plan *plan, struct ref r)
{
	return r.buf == BUF_TMP ? plan->tmp[r.chunk].shape : r.chunk + plan->shape_base[r.buf];
}

/* One message, whatever the span: the peer receives a span of equal lengths in one message too. */
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
/* While partial, sums that reduce and finish complete are parts of longer ones: no average ends
 * there. */
void plan_partial(struct plan *plan, bool partial);
/* Fresh scratch, as long as the chunks of like. */
struct span plan_scratch(struct plan *plan, struct span like);
/* The same, but the data are there when the plan begins, in whole chunks: kernels have left them
 * (staged plans only). */
struct span plan_filled(struct plan *plan, struct span like);
/* Sends after this wait for the receives before it: paces an exchange, round by round. */
void plan_pace(struct plan *plan);

/* Where the ranks are, when count nodes have local of them each, numbered node by node or in turn:
 * the k-th of node i is rank i * node_step + k * local_step. */
struct nodes {
	int count, local, node_step, local_step;
};

static inline struct nodes nodes_in_order(int ranks, int count)
{
	return (struct nodes){count, ranks / count, ranks / count, 1};
}

/* The ranks that an algorithm runs among: me, counted from 0, of size. shift renumbers them, so
 * that the root of a broadcast is member 0. */
struct group {
	int me, size, first, stride, shift;
	const struct nodes *nodes; /* NULL for one node, or ranks in no such order */
};

static inline int member(struct group g, int i)
{
	return g.first + modulo(i + g.shift, g.size) * g.stride;
}

/* Among the ranks of my node; and among those that have my place in their nodes. */
static inline int place_in_node(const struct nodes *n, int rank)
{
	return rank / n->local_step % n->local;
}

static inline int node_of(const struct nodes *n, int rank)
{
	return rank / n->node_step % n->count;
}

static inline struct group group_in_node(const struct nodes *n, int rank)
{
	return (struct group){.me = place_in_node(n, rank),
	                      .size = n->local,
	                      .first = node_of(n, rank) * n->node_step,
	                      .stride = n->local_step};
}

static inline struct group group_across(const struct nodes *n, int rank)
{
	return (struct group){.me = node_of(n, rank),
	                      .size = n->count,
	                      .first = place_in_node(n, rank) * n->local_step,
	                      .stride = n->node_step};
}

/* Seconds = sum over links of rounds * alpha + (messages - rounds) * overhead + bytes * n * beta +
 * depth * slice * beta, and reduced * n * gamma, where n is the bytes of the call as the API counts
 * them (of one block in gather and the like). */
enum link { LINK_LOCAL, LINK_NET, LINKS }; /* within a node, between nodes */
struct cost {
	struct {
		double rounds, messages; /* in sequence; of one rank at the most */
		double bytes, depth; /* depth: slices that go by before the last link is busy    */
	} link[LINKS];
	double reduced;
	/* For ranks that share cores and wait for each other's work (links_seconds): how much a
	 * rank sends and reduces on the average, 0 if all do the same; and how much the busiest
	 * one sends, or half of what it receives, which is about as much work. */
	struct {
		double messages, bytes, reduced;
	} mean, busiest;
	bool is_one_way; /* to or from a root without an answer, so calls overlap */
};

struct topology {
	int ranks, nodes; /* nodes with equally many ranks                               */
};

/* The slowest link in use: for algorithms that do not look at nodes it is the one that counts. */
static inline enum link slowest_link(struct topology p)
{
	return p.nodes > 1 ? LINK_NET : LINK_LOCAL;
}

/* For algorithms that do not look at nodes: crossing ranks of a node use the link at once. */
static inline struct cost cost_flat(struct topology p, double rounds, double bytes, double crossing)
{
	struct cost c = {0};
	enum link l = slowest_link(p);
	c.link[l].rounds = c.link[l].messages = rounds;
	c.link[l].bytes = bytes * (p.nodes > 1 ? crossing : 1);
	return c;
}

/* A tree or a star: all ranks but one send so many messages of n bytes, on the average, and one so
 * many. */
static inline struct cost cost_uneven(struct cost c, struct topology p, double messages,
				      double busiest)
{
	c.mean.messages = c.mean.bytes = messages * (p.ranks - 1) / p.ranks;
	c.busiest.messages = c.busiest.bytes = busiest > 1 ? busiest : 1;
	c.mean.reduced = c.reduced > 0 ? (double)(p.ranks - 1) / p.ranks : 0;
	c.busiest.reduced = c.reduced;
	c.is_one_way = true;
	return c;
}

static inline int log2_up(int n)
{
	int log = 0;
	while (1 << log < n)
		log++;
	return log;
}

/* An algorithm is two functions. One builds the plan of rank g.me, of two ranks or more; the other
 * says what it costs. in and out have a chunk for each block of the collective, or as many as the
 * table's cut says; in == out is in place. */
typedef void algorithm_fn(struct plan *plan, struct group g, struct span in, struct span out);
typedef struct cost cost_fn(struct topology place);

#define DECLARE(COLLECTIVE, collective, name, ...)                                                 \
	algorithm_fn name##_##collective;                                                          \
	cost_fn name##_##collective##_cost;
#define DECLARE_NOTHING(COLLECTIVE)
ALGORITHM_TABLE(DECLARE, DECLARE_NOTHING)
#undef DECLARE
#undef DECLARE_NOTHING

#endif
