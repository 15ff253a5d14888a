/* Runs of plans: what run.c and run_create.c share. */
#ifndef COLLECTIVES_ENGINE_RUN_H
#define COLLECTIVES_ENGINE_RUN_H

#include "collectives/engine/cursor.h"
#include "collectives/engine/engine_internal.h"

#define RUN_INTERLEAVE   4    /* slices whose steps alternate on a lane                        */
#define RUN_SLOTS        8    /* slices in flight at once: two rounds of them                  */
#define LANE_DEPTH       8    /* ios posted at once on a lane                                  */
#define LANDING_BYTES    (1u << 20) /* on a lane, unless two slices are more                   */
#define FREE_RUNS_MAX    8    /* blocks kept for runs to come                                  */

/* One step on one slice. */
struct step_io {
	struct engine_io base;
	struct lane_run *lane;
	uint32_t step, slice;
	bool is_done, has_landed; /* has_landed: a RECV_REDUCE that is now reducing    */
	const void **src;         /* room for what op.src points to ...                */
	struct tutti_piece *pieces; /* ... and for a message's pieces                    */
};

struct lane_run {
	struct run *run;
	const struct lane *lane;
	struct stream *stream; /* NULL: local                                       */
	struct lane_run *next_in_stream, *next_dirty;
	struct cursor cursor;
	uint32_t posted, retired, depth; /* ios[posted % depth] is the next free one          */
	bool is_dirty, is_issued;        /* is_issued: the cursor is at the end               */
	struct step_io *ios;
	uint8_t *landing; /* depth pieces of a slice, for RECV_REDUCE          */
};

/* One execution of a plan. One block of memory, reused for later runs. */
struct run {
	struct tutti_work *work;
	struct run *next_free;
	const struct memory_kind *kind; /* that copies from and to the block */
	size_t block_bytes;
	const struct plan *plan;
	uint8_t *base[2], *tmp[POOLS]; /* IN, OUT; the pools                              */
	size_t element, slice_elements, slice_stride;
	size_t filled_stride; /* of POOL_FILLED, whose chunks are whole, without gaps   */
	uint32_t slices, interleave, slots;
	uint32_t finished; /* slices, counted from the first                    */
	bool is_started;
	uint32_t *left;    /* by slot: steps to go                              */
	uint32_t *pending; /* [step * slots + slot]: what a step still waits for */
	struct lane_run *lanes;
};

/* run_create.c. How chunks of up to longest elements are cut. is_known: all ranks know longest.
 * width: the scratch chunks of the plan. */
struct run_limits {
	size_t element, slice_bytes, scratch_bytes;
};
struct run_cut {
	uint32_t slices; /* one at least */
	size_t elements; /* of each but the last, of a chunk of longest */
};
struct run_cut run_cut(size_t longest, bool is_known, uint32_t width,
		       const struct run_limits *limits);
void run_free_all(struct engine *e);

/* run.c */
extern const struct io_owner run_step_owner;
void run_refill(struct run *run, uint32_t slot); /* all steps are to do again, for the next slice */
/* Explains what work, which runs a plan, waits for, as a kind of task does. */
int run_explain(struct engine *e, const struct tutti_work *work, char *text, size_t text_bytes);
void run_start(struct engine *e, struct run *run);
bool run_issue(struct engine *e); /* on one lane; false: there was none */

#endif
