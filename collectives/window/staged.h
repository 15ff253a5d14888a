/* Ordinary buffers, too long for a line: piece by piece through the ranks' slots. */
#ifndef COLLECTIVES_WINDOW_STAGED_H
#define COLLECTIVES_WINDOW_STAGED_H

#include "collectives/window/blocks.h"
#include "collectives/window/run_progress.h"

/* Cuts the call into pieces, before the line. */
void staged_begin(struct window *window, struct window_run *run);
/* Puts piece 0 into its slot before the line is posted; false: the slot is not free, or the rank
 * stages nothing. */
bool staged_first(struct window *window, struct window_run *run);
/* All lines that the run waits for are there: run goes this path. */
void staged_agree(struct window *window, struct window_run *run);
/* Whether it is a reduce whose root does it all. */
bool staged_by_root(const struct window_run *run);

/* How a collective's data go through its pieces. stage, take and finish put what they do into the
 * window's weave, which runs when the round is complete. */
struct window_moves {
	/* Sets each and pieces, the same on all ranks (but all_to_allv: this rank's; staged_agree
	 * follows). */
	void (*cut)(struct window *window, struct window_run *run);
	/* Whether from puts something into its slot that to takes out in piece k; NULL: always.
	 * from and to differ. */
	bool (*passes)(const struct window *window, const struct window_run *run, uint64_t k,
		       int from, int to);
	/* Whether rank stages anything; NULL: every rank does. */
	bool (*stages)(const struct window_run *run, int rank);
	/* Copies into this rank's slot what others will read. Returns bytes. */
	size_t (*stage)(struct window *window, struct window_run *run, uint64_t k);
	/* Reduces or copies what this rank needs out of the others' slots. */
	void (*take)(struct window *window, struct window_run *run, uint64_t k);
	/* Copies out of this rank's own slot what the others' take has put there; or NULL. */
	void (*finish)(struct window *window, struct window_run *run, uint64_t k);
};

/* staged_copy.c */
extern const struct window_moves moves_broadcast, moves_gather, moves_stream;

#endif
