/* A window as its own files see it, and the way to what lies in its segment. */
#ifndef COLLECTIVES_WINDOW_WINDOW_INTERNAL_H
#define COLLECTIVES_WINDOW_WINDOW_INTERNAL_H

#include "collectives/window/segment.h"
#include "core/placement/cpu_spread.h"
#include "memory/reduce.h"
#include "memory/weave.h"

#include <string.h>

#define KNOWN_ALLOCATIONS 16u

/* Where a rank's block lies in the slots of a reduce_scatterv, and how much of it a piece has. */
struct deal {
	size_t at, each; /* bytes, elements */
};

/* Per rank, filled anew by each step. */
struct scratch {
	const void **src; /* for reduce() */
	void **dst;
	uint8_t **peer_send, **peer_recv; /* zero copy: where this process sees the buffers */
	struct deal *deals;
};

/* For tutti_mem_alloc: see allocations.h. */
struct shared_allocations {
	uint64_t comm_id[2];
	uint64_t made; /* how many were made here: names them */
	struct {
		uint64_t id;
		uint8_t *base;
	} known[KNOWN_ALLOCATIONS]; /* memory_base's answers; they never change */
	int *sockets; /* leader: one per rank; others: [0] to the leader; or NULL */
};

struct window {
	int rank, size;
	uint32_t number;     /* of the latest operation */
	uint32_t others;     /* every other rank has posted this line, at the least */
	uint32_t met;        /* the latest operation in which this rank saw the lines of all */
	uint64_t generation; /* the next one to be staged */
	struct places at;
	struct rank_area *area;   /* this rank's */
	struct geometry geometry; /* the same on all ranks, which policy need not be */
	struct wait_policy policy;
	uint64_t *seen[WORDS]; /* per rank: the largest value of a word seen so far */
	struct board board;
	struct scratch scratch;
	struct prepared_reduction prepared; /* what a call in the lines is to do with them */
	struct weave weave;                 /* what the staged round in flight is to do */
	struct segment *segment;
	struct shared_allocations memory;
	struct spread spread;
	uint64_t reads_from; /* the most of all ranks', or 0 until it is known */
	struct {
		_Atomic uint64_t total_bytes, staged_bytes;
	} traffic;
	bool is_armed;       /* between window_arm and window_disarm */
	tutti_status failed; /* the first failure; error is its message */
	char error[ERROR_BYTES];
};

/* window_create.c: rank's window on a segment, which it holds from then on. */
tutti_status window_create(struct window **window, struct segment *segment,
			   const struct window_config *config);

/* window.c: moves run to its next post at the most, and looks after nothing else. */
tutti_status window_advance_once(struct window *window, struct window_run *run);

static inline size_t line_index(const struct window *w, uint32_t number, int rank)
{
	return (size_t)(number % WINDOW_LINES) * (size_t)w->size + (size_t)rank;
}

static inline struct line *line_of(const struct window *w, uint32_t number, int rank)
{
	size_t index = line_index(w, number, rank);
	return (struct line *)(void *)(w->at.lines + index * w->geometry.line_bytes);
}

/* Where rank's payload lies, when the longest of all ranks' is of so many bytes. */
static inline uint8_t *payload_of(const struct window *w, uint32_t number, int rank, size_t longest)
{
	struct line *line = line_of(w, number, rank);

	if (longest <= LINE_PAYLOAD)
		return line->payload;
	if (longest <= LINE_BODY_BYTES)
		return (uint8_t *)line + LINE_BODY;
	return w->at.bodies + line_index(w, number, rank) * w->geometry.body_bytes;
}

static inline uint64_t line_header_of(const struct window *w, uint32_t number, int rank)
{
	return atomic_load_explicit(&line_of(w, number, rank)->header, memory_order_acquire);
}

static inline uint64_t line_header(const struct window_run *run)
{
	return run->number | (uint64_t)run->args.fingerprint << 32;
}

/* What rank said in its line of this run. */
static inline struct line_buffers line_buffers_of(const struct window *w,
						  const struct window_run *run, int rank)
{
	struct line_buffers buffers;
	memcpy(&buffers, line_of(w, run->number, rank)->payload, sizeof buffers);
	return buffers;
}

static inline uint8_t *slot_of(const struct window *w, uint64_t generation, int rank)
{
	size_t index = (size_t)rank * WINDOW_SLOTS + generation % WINDOW_SLOTS;
	return w->at.slots + index * w->geometry.slot_bytes;
}

static inline struct row_entry *row_of(const struct window *w, uint32_t number, int rank)
{
	size_t index = (size_t)(number & 1) * (size_t)w->size + (size_t)rank;
	return (struct row_entry *)(void *)(w->at.rows + index * w->geometry.row_bytes);
}

/* Whether rank's word has come to value. Pairs with word_post. */
static inline bool word_reached(const struct window *w, enum word word, int rank, uint64_t value)
{
	uint64_t *seen = &w->seen[word][rank];
	if (*seen < value)
		*seen = atomic_load_explicit(&w->at.areas[rank].words[word].value,
					     memory_order_acquire);
	return *seen >= value;
}

/* Only this rank writes; window_stats reads from any thread. */
static inline void count_bytes(_Atomic uint64_t *total, size_t bytes)
{
	uint64_t before = atomic_load_explicit(total, memory_order_relaxed);
	atomic_store_explicit(total, before + bytes, memory_order_relaxed);
}

#endif
