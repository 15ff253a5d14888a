/* Which rank holds which elements of each parameter, at the step from which all continue: parts of
 * earlier trainers and their shadows, whatever their strategies and numbers of ranks were. */
#ifndef TRAIN_HOLDINGS_H
#define TRAIN_HOLDINGS_H

#include "train/state/trainer_state.h"

enum { HELD_OWN, HELD_SHADOW, HELD_KINDS };

/* Elements [first, last) of a parameter. */
struct holding {
	uint64_t first, last;
};

struct holdings {
	struct holding *all; /* by rank, parameter and kind */
	int ranks, params;
};

/* Local: room for all ranks. MEMORY. */
tutti_status holdings_make(struct holdings *holdings, const tutti_trainer *trainer);
void holdings_free(struct holdings *holdings);
/* Collective. before: this rank's earlier trainer, or NULL if it holds nothing of that step. */
tutti_status holdings_gather(struct holdings *holdings, tutti_trainer *trainer,
			     const tutti_trainer *before);

/* Where elements come from: rank has those from the one asked for to last, as its own or as its
 * shadow. */
struct source {
	int rank, kind;
	size_t last;
};
/* A rank that holds this element: preferred, if that does; else the lowest. False: none does. */
bool holdings_find(const struct holdings *holdings, int param, size_t element, int preferred,
		   struct source *source);
/* The first element that no rank holds, in the order of parameters. False: there is none. */
bool holdings_miss(const struct holdings *holdings, const struct tutti_model *model, int *param,
		   size_t *element);

#endif
