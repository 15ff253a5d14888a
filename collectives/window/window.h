/* The window: collectives of ranks that can load and store each other's memory.
 *
 * docs/design.md and DESIGN.md section 3 have the shape and its nine rules. One window serves one
 * communicator whose ranks all live on one node. Its operations run in sequence on every rank; each is
 * a resumable run: begin, then advance until done. advance never blocks, so the engine can move a
 * window run along with everything else; window_drive is the calling thread's fast driver for
 * the blocking case. Calls for one window are made by one thread at a time (the engine's lock). */
#ifndef COLLECTIVES_WINDOW_WINDOW_H
#define COLLECTIVES_WINDOW_WINDOW_H

#include "collectives/plan/calls.h"
#include "core/wait.h"

#include <tutti/tutti.h>

#include <stdbool.h>
#include <stdint.h>

struct window;

struct window_config {
	int rank, size;
	uint64_t comm_id[2];
	size_t window_bytes;          /* staging of one rank                                    */
	struct wait_policy policy;
	bool spreads;                 /* with more ranks than cores: see window_spread.c        */
	size_t read_bytes;            /* from so many on; 0: never. See window_read.c           */
	int cores;                    /* that the node's ranks may use together                 */
	/* NULL, or where a rank that could not join leaves a descriptor, by which the others learn of it at
	 * once. The caller closes it when all of them know; it is left alone in all other cases. */
	int *refusal;
};

/* Collective over the ranks of the node: the lowest makes the segment and passes it on. UNSUPPORTED, on
 * all ranks, where that cannot be done; a rank that does not come shows at the deadline. */
tutti_status window_join(struct window **window, const struct window_config *config,
                         uint64_t deadline_ns);
/* The same, but given up soon when is_over(arg): asked now and then while ranks are missing. */
tutti_status window_join_unless(struct window **window, const struct window_config *config,
                                uint64_t deadline_ns, bool (*is_over)(void *arg), void *arg);
/* All n ranks of one process at once (tutti_init_all): one mapping. configs[i] is rank i's. */
tutti_status window_join_all(struct window **windows, const struct window_config *configs, int n);
void window_leave(struct window *window); /* this rank makes no calls any more: the others see it */
void window_destroy(struct window *window);    /* leaves; NULL is fine */

/* How an operation goes on once all ranks' lines are there, and what lies in staged pieces:
 * window_internal.h. */
struct window_path;
struct window_moves;

/* One operation under way. Lives in the work; the window keeps no pointer to a finished one. What comes
 * after args is the window's own. The arrays of args (counts, offsets) live as long as the run. */
struct window_run {
	struct call_args args;
	uint32_t number;              /* which operation of the window this is; wraps           */
	uint32_t room;                /* what the others have posted before it posts: window.c  */
	bool is_small, sees_all;      /* its data are in the lines; it waits for all others     */
	bool is_staged;               /* for sure, whatever the others' lines say               */
	uint32_t phase;
	int peer;                     /* the rank looked at next                                */
	int first, peers;             /* it waits for the lines of these: [first, peers)        */
	uint32_t step, steps;         /* of the path                                            */
	const struct window_path *path;
	const struct window_moves *moves;
	enum collective pattern;      /* collective_pattern() of it                             */
	size_t unit;                  /* bytes of an element                                    */
	size_t own, largest, total;   /* elements: of this rank's block, of the largest, of all */
	size_t stream_bytes;          /* all_to_allv: what this rank sends to others            */
	const void *scalar;           /* of a scaled sum: its input is multiplied with it       */
	size_t payload;               /* bytes of the longest that a rank has for its line      */
	size_t piece_bytes;           /* of a slot that a piece takes at the most               */
	size_t each;                  /* elements of a piece                                    */
	uint64_t pieces;
	size_t cut, share;            /* a share is what a rank reduces of cut elements         */
	bool first_is_staged;
	bool is_shared;               /* zero copy: the root and the others share the work      */
	tutti_status outcome;         /* all ranks' verdict on a run that came to its end       */
	int source;                   /* window_read.c: the rank read from, counted from this ... */
	size_t read;                  /* ... and how many bytes of its block were               */
	uint64_t memory_id;
	void *memory;
};

/* Starts the next operation. At most one is under way: the caller keeps the others queued. */
void window_begin(struct window *window, struct window_run *run, const struct call_args *args);
/* Moves it as far as it goes without waiting. OK: done. IN_PROGRESS: not yet; *moved says whether
 * anything happened. An error: the sentence is this thread's last error. */
tutti_status window_advance(struct window *window, struct window_run *run, bool *moved);
/* begin was called; returns when done, at the deadline (TIMEOUT, the sentence names the missing
 * ranks), when *stop is not 0 (ABORTED), or when a rank of the node has died or failed (PEER). Times are
 * only taken once the wait has turned slow. background, when not NULL, is called now and then while
 * waiting (the engine's other work); it must not touch this window. stop may be NULL. */
tutti_status window_drive(struct window *window, struct window_run *run, uint64_t timeout_ns,
                          const _Atomic int *stop, void (*background)(void *arg), void *arg);
/* From here on a wait for a rank whose process is stopped for so long fails with TIMEOUT; 0: never. */
void window_watch(struct window *window, uint32_t silence_ms);
/* Which ranks a run waits for, as "ranks 1, 3": for hang reports. Returns text. */
const char *window_explain(const struct window *window, const struct window_run *run, char *text,
                           size_t text_bytes);
/* How far it is: "staged, step 3 of 12". Returns text. */
const char *window_progress_text(const struct window_run *run, char *text, size_t text_bytes);
/* The first rank that it waits for; -1: none. */
int window_waits_for(const struct window *window, const struct window_run *run);
/* Tells the other ranks that this one has failed: their runs end in PEER, or MISMATCH or ABORTED if that
 * is what it was, with this sentence. */
void window_fail(struct window *window, tutti_status status, const char *reason);
/* The rank that has died when that was the failure, here or as another rank told; else -1. */
int window_dead(const struct window *window);
/* Whether the failure is a TIMEOUT that all ranks have, with one sentence: a rank that is stopped. */
bool window_is_stopped(const struct window *window);

/* This rank's flight recorder, which the others can see. Lives as long as the window. */
struct recorder;
struct recorder *window_recorder(const struct window *window);
/* What can end the wait of a call that goes by messages: a failure, another call, a rank that has left or
 * died before it made the call; is_bad: or after. OK: nothing. The sentence is this thread's last error. */
tutti_status window_look(struct window *window, uint64_t sequence, bool is_bad);
/* Whether the process of rank has ended, for sure. */
bool window_has_ended(const struct window *window, int rank);
/* The ranks that have not made call sequence, as "ranks 1, 3"; "" for none. Returns text. */
const char *window_missing(const struct window *window, uint64_t sequence, char *text,
                           size_t text_bytes);

/* For a thread that sleeps on descriptors: readable, after window_arm returned false, when an advance
 * of run may get on. window_arm true: it may already. window_disarm when awake again. */
int window_event_fd(struct window *window);
bool window_arm(struct window *window, const struct window_run *run);
void window_disarm(struct window *window);

/* tutti_mem_alloc: the window run of COLL_MEM_ALLOC (args.count bytes) leaves the memory here. */
void *window_run_memory(const struct window_run *run);
/* Fresh memory of so many bytes, of each rank, is put into 2 MiB pages; what cannot be stays as it is. The
 * rank's own, before others use it. */
void window_mem_enlarge(void *ptr, size_t bytes, int ranks);
/* From any thread; TUTTI_ERR_INVALID when ptr is no allocation. Known per process. */
tutti_status window_mem_free(void *ptr);
/* What window_run_memory gave after a run that failed, or NULL: nobody has been given it. */
void window_mem_drop(void *ptr);
/* After a failure: all memory of this process that a rank of the window in another process can reach is
 * made private, at the same addresses with the same contents, so that a stopped rank that wakes up cannot
 * store into it. Ordinary memory from then on; window_mem_free as before. SYSTEM when it fails. */
tutti_status window_mem_withdraw(struct window *window);

/* Traffic since the window was made. window_bytes: the blocks of this rank in every call, its own
 * contribution or share; of an all_to_all all that it sends. staged_bytes: what it has copied into its
 * slots. From any thread. */
void window_stats(const struct window *window, uint64_t *window_bytes, uint64_t *staged_bytes);

#endif
