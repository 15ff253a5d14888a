/* Every way to place a model on ranks, and the fastest that fit. */
#ifndef TUTTI_PLAN_LAYOUT_SEARCH_H
#define TUTTI_PLAN_LAYOUT_SEARCH_H

#include "layout_memory.h"
#include "layout_times.h"

/* Why a mesh is left out. */
enum misfit {
	MISFIT_HEADS,  /* tp does not divide the heads                     */
	MISFIT_LAYERS, /* more stages than layers                          */
	MISFIT_LENGTH, /* cp: each rank has two equal parts of a sequence  */
	MISFIT_TOKENS, /* tp divides the tokens of a rank of cp, too       */
	MISFIT_BATCH,  /* dp does not divide the sequences, or micro-batches those of a replica */
	MISFITS
};

struct found_layout {
	struct candidate candidate;
	struct held_bytes held;
	struct step_found step;
};

struct layout_search {
	struct candidate *candidates;
	size_t count, room;
	int misfits[MISFITS];
	struct found_layout *best; /* the fastest first, found of them, at most top */
	int top, found;
	int simulated;             /* the others cannot be among the best           */
	struct found_layout least; /* what needs least memory, where nothing fits   */
};

/* All that are possible, with no regard to memory. */
void layout_search_open(struct layout_search *search, const struct layout_question *question);
/* The best ones. A schedule is executed only while the step could be one of them without its
 * bubble; so they are those of a search that leaves out nothing. */
void layout_search_run(struct layout_search *search, const struct layout_question *question,
		       int top);
void layout_search_close(struct layout_search *search);

/* Memory and step of one. */
struct found_layout layout_find(const struct layout_question *question,
				const struct candidate *candidate, struct trainer_book *book);
/* Below 0: a comes first. The faster one; of equals (to a billionth) that with fewer axes, then
 * with less memory, then the one that is listed first. */
int layout_compare(const struct found_layout *a, const struct found_layout *b);

#endif
