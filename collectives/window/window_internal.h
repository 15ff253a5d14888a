/* A window as its own files see it, and the way to what lies in its segment. */
#ifndef COLLECTIVES_WINDOW_WINDOW_INTERNAL_H
#define COLLECTIVES_WINDOW_WINDOW_INTERNAL_H

#include "collectives/window/contention.h"
#include "collectives/window/segment.h"
#include "core/placement/cpu_spread.h"
#include "core/memory/reduce.h"
#include "core/memory/weave.h"

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
	/* One end of a pair of sockets, the leader's to pass memory to all; or -1. The others share
	 * the other end: each takes a message of its own. */
	int mail;
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
	struct contention contention;
	struct segment *segment;
	atomic_int doorbell; /* see doorbell.c; -1: none so far */
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

/* window.c: moves run to its next post at the most, and looks after nothing else. */
tutti_status window_advance_once(struct window *window, struct window_run *run);

/* small.c: calls whose data fits the ranks' lines */

/* Whether all data of run fits; sets run->payload. The same on all ranks. */
bool small_fits(const struct window *window, struct window_run *run);
/* Before the line is posted. */
void small_write(struct window *window, const struct window_run *run);
/* After it was posted, where every rank has a core: pushes what this rank has written to the
 * others, and fetches what it will write in a next call of this length. */
void small_hand_over(struct window *window, const struct window_run *run);
/* The work that is possible before the others' lines are there, and when they are. */
void small_prepare(struct window *window, const struct window_run *run);
void small_finish(struct window *window, const struct window_run *run);

/* counts.c: blocks of different lengths; what a rank tells the others of them, so that all ranks
 * cut the call alike and none copies more than the other side has room for */

/* Writes this rank's row, where the call needs one, before its line. */
void counts_publish(struct window *window, struct window_run *run);
/* An all_to_allv, with all lines there: whether all blocks that are sent are expected. MISMATCH, on
 * all ranks alike, when one is not. */
tutti_status counts_agree(const struct window *window, const struct window_run *run);
/* An all_to_allv: says in buffers what this rank sends, and puts it into its payload if it fits. */
void counts_write(struct window *window, const struct window_run *run,
		  struct line_buffers *buffers);
/* Copies it out; false, on all ranks alike, when some rank's did not fit. */
bool counts_finish(struct window *window, const struct window_run *run);

/* zero_copy.c: buffers that all ranks of the window can reach (tutti_mem_alloc) */

/* With all lines there: run goes this path; false, on every rank alike: it cannot. */
bool zero_copy_begin(struct window *window, struct window_run *run);

/* Says in buffers where this rank's are, or an id of 0 where the others cannot reach one that they
 * would use. Returns whether the call may go without staging, for all that this rank knows. */
bool reach_publish(struct window *window, const struct window_run *run,
		  struct line_buffers *buffers);
/* Whether the others use a buffer of rank. */
bool reach_lends(const struct window_run *run, int rank);
/* Whether, by the root's line, the root and the others may share the work. All lines decide. */
bool reach_may_share(struct window *window, const struct window_run *run,
		     const struct line_buffers *root);

/* reading.c: ordinary buffers that are only copied, read where they lie in the other process
 * (process_vm_readv) */

/* Before the others look: how they can know this process. */
void read_say_process(struct window *window);
/* When all have said it: whether this rank can read what all others have in memory. */
void read_find_out(struct window *window, size_t read_bytes);
/* Says in buffers whether this rank would read, and returns that. */
bool read_publish(struct window *window, const struct window_run *run,
		  struct line_buffers *buffers);
/* With all lines there: run goes this path; false, on every rank alike: some rank would not. */
bool read_begin(struct window *window, struct window_run *run);

/* run_progress.c: what can end a run badly */

/* From now on all calls fail with status and last_error, unless they do already. OK: nothing. */
void failure_keep(struct window *window, tutti_status status);
/* MISMATCH: the line of peer disagrees with this rank's. */
tutti_status failure_mismatch(struct window *window, const struct window_run *run, int peer);
tutti_status failure_timeout(struct window *window, const struct window_run *run,
			     uint64_t timeout_ns);
/* Looks for a reason, besides its deadline, to end a run that does not move. OK: none. */
tutti_status failure_check(struct window *window, const struct window_run *run, uint64_t now_ns);
/* This rank's call in words. Returns text. */
const char *failure_call_text(const struct window *window, const struct window_run *run, char *text,
			      size_t text_bytes);

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

/* The content of rank's line in this run. */
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
