/* A shadow: the part of the left neighbour in the shard group, which this rank keeps as its own.
 *
 * The owner sends its reduced gradients in every step, and both ranks make the same update. So the
 * shadow has the owner's bits after each step, for a third of the bytes that its state has. A rank
 * that has finished a step knows that every other rank has all gradients of it; so there is one
 * shadow, and no older generation. */
#ifndef TRAIN_SHADOW_H
#define TRAIN_SHADOW_H

#include "train/state/pieces.h"

struct shadow {
	bool is_kept;
	int owner;            /* its rank in the shard group */
	struct piece *pieces; /* of split spans, in the owner's order */
	int piece_count;
	char **sums; /* of reduced gradients; by bucket, or NULL */
	/* It has the owner's values after trainer->steps. Otherwise the next step begins with
	 * them. */
	bool is_current;
};

/* Makes the tables and memory, if the config wants a shadow. Local. MEMORY. */
tutti_status shadow_make(tutti_trainer *trainer);
void shadow_free(tutti_trainer *trainer);
/* Values or state change, but not by a step. */
void shadow_expire(tutti_trainer *trainer);
/* Collective: gets all values and state of the owner, unless the shadow is current. */
tutti_status shadow_fetch(tutti_trainer *trainer);
/* Collective: gets the owner's reduced gradients. */
tutti_status shadow_fetch_sums(tutti_trainer *trainer);
/* The shadow's piece of a parameter; NULL if there is none. */
struct piece *shadow_piece_of(const tutti_trainer *trainer, int param);

#endif
