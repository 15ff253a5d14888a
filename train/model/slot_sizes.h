/* Which slots a trainer needs for what does not stay: whole units while they are gathered, and whole gradients until they
 * are reduced. Arithmetic on layout, model and config, the same on all ranks. */
#ifndef TRAIN_SLOTS_H
#define TRAIN_SLOTS_H

#include "train/model/span_layout.h"

/* The bytes of each slot. */
struct slot_sizes {
	size_t *bytes;
	int count;
};

/* With these nobody needs more in plain order: forward as units were registered, each once, and back. MEMORY leaves
 * nothing to free. */
tutti_status slots_for_units(struct slot_sizes *slots, const struct model_layout *layout, const struct tutti_model *model,
			     const tutti_train_config *config);
tutti_status slots_for_grads(struct slot_sizes *slots, const struct model_layout *layout, const struct tutti_model *model,
			     const tutti_train_config *config);
/* All gradients at once, and the largest that travels as another type, largest first: what is there when a step's
 * micro-batches are added before they travel. */
tutti_status slots_for_whole(struct slot_sizes *slots, const struct model_layout *layout, const tutti_train_config *config);
size_t slots_sum(const struct slot_sizes *slots);
void slots_finish(struct slot_sizes *slots);

/* config's prefetch_units; no more than there are. */
int units_ahead(const tutti_train_config *config, const struct tutti_model *model);

/* A slot's bytes: whole cache lines. */
static inline size_t slot_bytes(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* What is there at once, by size. Every value is first expected, then, after tally_begin, taken and given back as often as
 * one likes. */
struct tally {
	size_t *all;   /* what is expected, */
	size_t *sizes; /* and the different sizes of it, ascending */
	int all_count, size_count;
	int *now;           /* there, of each size */
	int *above, *below; /* at once: the most of at least that size; the most of smaller ones */
};

/* MEMORY leaves nothing to free. most: how many are expected at most. */
tutti_status tally_make(struct tally *tally, int most);
void tally_free(struct tally *tally);
void tally_expect(struct tally *tally, size_t bytes);
void tally_begin(struct tally *tally);
void tally_take(struct tally *tally, size_t bytes);
void tally_give(struct tally *tally, size_t bytes);
/* The slots for that. */
tutti_status tally_choose(const struct tally *tally, struct slot_sizes *slots);

#endif
