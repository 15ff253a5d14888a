/* The window: collectives of ranks that can load and store each other's memory (docs/window.md).
 *
 * A window serves one communicator whose ranks all live on one node. Its operations run in sequence
 * on every rank. Each is a run: begin it, then advance it until it is done. window_advance never
 * blocks, so the engine can move a run along with everything else; window_drive is the fast driver
 * of a blocking call. One thread at a time makes calls of a window (the engine's lock). */
#ifndef COLLECTIVES_WINDOW_WINDOW_H
#define COLLECTIVES_WINDOW_WINDOW_H

#include "collectives/plan/plan.h"
#include "core/wait.h"

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

struct window;

struct window_config {
	int rank, size;
	uint64_t comm_id[2];
	size_t window_bytes; /* of shared memory for each rank */
	struct wait_policy policy;
	bool spreads;      /* ranks that share a CPU move to one with fewer: run_progress.c */
	size_t read_bytes; /* from so many bytes on reading.c may be used; never if 0 */
	int cores;         /* that the node's ranks may use together */
	/* NULL, or where a rank that could not join leaves a descriptor, by which the others learn
	 * of it at once. The caller closes it when all of them know. In all other cases it is left
	 * alone. */
	int *refusal;
};

/* Collective over the ranks of the node. UNSUPPORTED, on all ranks, where they cannot share memory,
 * where a rank does not come before the deadline, or soon after is_over(arg), which it asks now and
 * then while ranks are missing; is_over may be NULL. */
tutti_status window_join(struct window **window, const struct window_config *config,
			 uint64_t deadline_ns, bool (*is_over)(void *arg), void *arg);
/* For all n ranks of one process at once (tutti_init_all). configs[i] is rank i's. */
tutti_status window_join_all(struct window **windows, const struct window_config *configs, int n);
void window_destroy(struct window *window); /* leaves; NULL is fine */

struct window_path;  /* run_progress.h */
struct window_moves; /* staged.h */

/* An operation in flight. It lives in the work; the window keeps no pointer to one that is done.
 * The members after args are the window's own. The arrays of args (counts, offsets) live as long as
 * the run. */
struct window_run {
	struct call_args args;
	uint32_t number; /* which operation of the window this is; wraps */
	uint32_t room;   /* the others must post this line before it posts its own: window.c */
	uint32_t phase;  /* enum phase */
	uint32_t failed_in; /* the phase before it failed; PHASE_FAILED: it never began */
	bool is_small;   /* its data are in the lines */
	bool is_staged;  /* for sure, whatever the others' lines say */
	bool is_shared;  /* zero copy: the root and the others share the work */
	bool first_is_staged;
	bool may_be_long; /* its pieces are short, but where cores are contended */
	bool sees_all;        /* it waits for the lines of all others */
	int first, peers;     /* it waits for the lines of ranks [first, peers) ... */
	int peer;             /* ... and has come to this one; or to this one's word */
	uint32_t step, steps; /* of the path */
	const struct window_path *path;
	const struct window_moves *moves; /* of the staged path */
	/* The call's sizes, in elements, but where bytes are said. */
	enum collective pattern;    /* collective_pattern() of it */
	size_t unit;                /* bytes of an element */
	size_t own, largest, total; /* this rank's block, the largest block, all blocks */
	const void *scalar;         /* a scaled sum multiplies its input with it; or NULL */
	size_t payload;             /* bytes: the longest that a rank has for its line */
	size_t stream_bytes;        /* all_to_allv: what this rank sends to others */
	/* Staged. */
	uint64_t pieces;    /* generations that the run takes, on every path */
	size_t piece_bytes; /* the most of a slot that a piece takes */
	size_t each;        /* elements of a piece, or of a step */
	size_t cut, share;  /* a share is what a rank reduces of cut elements */
	/* Reading. */
	int source;  /* the rank read from, counted from this one ... */
	size_t read; /* ... and how many bytes of its block have been read */
	/* COLL_MEM_ALLOC, of args.count bytes. */
	uint64_t memory_id;
	void *memory; /* that it has made */
	tutti_status outcome; /* what all ranks have agreed on at the end of the run */
};

/* Starts the next operation. At most one is in flight: the caller keeps the others queued. */
void window_begin(struct window *window, struct window_run *run, const struct call_args *args);
/* Moves it as far as it goes without waiting. OK: done. IN_PROGRESS: not yet; *moved says whether
 * anything happened. Else an error, with its message in last_error. */
tutti_status window_advance(struct window *window, struct window_run *run, bool *moved);
/* Why run ended with its outcome, an error that leaves the ranks in step. */
void window_outcome_text(const struct window *window, const struct window_run *run, char *text,
                         size_t text_bytes);
/* For a thread that waits: looks for a missing line for a fraction of a microsecond. */
tutti_status window_advance_eagerly(struct window *window, struct window_run *run, bool *moved);
/* After window_begin. Returns when the run is done, at the deadline (TIMEOUT; the message names the
 * missing ranks), when *stop is not 0 (ABORTED), or when a rank has died or failed (PEER). It reads
 * the clock only in waits that turn slow. background is called now and then while it waits; it must
 * not touch this window. stop and background may be NULL. */
tutti_status window_drive(struct window *window, struct window_run *run, uint64_t timeout_ns,
                          const _Atomic int *stop, void (*background)(void *arg), void *arg);
/* Which ranks a run waits for, as "ranks 1, 3": for hang reports. Returns text. */
const char *window_explain(const struct window *window, const struct window_run *run, char *text,
                           size_t text_bytes);
/* How far a run is: "staged, step 3 of 12". Returns text. */
const char *window_progress_text(const struct window_run *run, char *text, size_t text_bytes);
/* The first rank that it waits for, or -1. */
int window_waits_for(const struct window *window, const struct window_run *run);
/* Tells the other ranks that this one has failed: their runs end with this message, and with PEER,
 * or MISMATCH or ABORTED if that is the status. */
void window_fail(struct window *window, tutti_status status, const char *reason);
/* The ranks' knowledge of each other, besides their data. Lives as long as the window. */
struct board;
struct board *window_board(struct window *window);

/* The word that a run waits for, for a thread that looks without the engine's lock: when it has
 * changed, or a rank has failed, the run may have got on. */
struct window_awaited {
	struct window *window;
	_Atomic uint64_t *word;
	uint64_t was;
	int rank;     /* whose word it is */
	bool is_near; /* a rank that it waits for was last seen on this CPU */
};
/* False: run may get on already. May move the thread to another CPU, as window_drive. */
bool window_awaits(struct window *window, const struct window_run *run,
		   struct window_awaited *awaited);
bool window_has_come(const struct window_awaited *awaited);
/* Until it comes, 1 ms at the most. */
void window_sleep(const struct window_awaited *awaited);

/* For a thread that sleeps on descriptors. window_arm true: run may get on already. False: it may
 * get on when the descriptor is readable. window_disarm when the thread is awake again. */
int window_event_fd(struct window *window);
bool window_arm(struct window *window, const struct window_run *run);
void window_disarm(struct window *window);

/* Puts a rank's own new memory into 2 MiB pages, as far as that can be done. ranks: so many do that
 * at once. */
void window_mem_enlarge(void *ptr, size_t bytes, int ranks);
/* From any thread. INVALID when ptr is no allocation of this process. */
tutti_status window_mem_free(void *ptr);
/* Where bytes of an allocation are, in numbers that mean the same to all ranks of the window. Any
 * thread. */
struct window_place {
	uint64_t allocation; /* 0: in none that all ranks reach, or some rank does not any more */
	uint64_t offset;
};
struct window_place window_mem_place(const struct window *window, const void *ptr, size_t bytes);
/* NULL: this process does not reach them. */
void *window_mem_at(const struct window *window, struct window_place place, size_t bytes);
/* Frees the memory of a run that failed, which no caller has been given. NULL is fine. */
void window_mem_drop(void *ptr);
/* After a failure: makes private all memory of this process that a rank of the window in another
 * process can reach, so that a stopped rank that wakes up cannot store into it. Addresses and
 * contents stay; it is freed with window_mem_free as before. SYSTEM when it fails. */
tutti_status window_mem_withdraw(struct window *window);

/* Traffic since the window was made. window_bytes: this rank's blocks in all calls, of an
 * all_to_all all that it sends. staged_bytes: what it has copied into its slots. Any thread. */
void window_stats(const struct window *window, uint64_t *window_bytes, uint64_t *staged_bytes);

#endif
