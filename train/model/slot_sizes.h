/* The sizes of the slots that a trainer needs for whole units while they are gathered and for whole
 * gradients until they are reduced. Arithmetic on layout, model and config, with the same result on
 * all ranks. */
#ifndef TRAIN_SLOT_SIZES_H
#define TRAIN_SLOT_SIZES_H

#include "train/model/span_layout.h"

/* The bytes of each slot. */
struct slot_sizes {
	size_t *bytes;
	int count;
};

/* The slots that suffice in plain order: forward of all units as they were registered, then
 * backward in reverse. MEMORY leaves nothing to free. */
tutti_status slots_for_units(struct slot_sizes *slots, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config);
tutti_status slots_for_grads(struct slot_sizes *slots, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config);
/* The slots for all gradients at once, and for the largest that is sent as another type, smallest
 * first: needed when micro-batches are added before gradients are sent. */
tutti_status slots_for_whole(struct slot_sizes *slots, const struct model_layout *layout,
			     const tutti_train_config *config);
size_t slots_sum(const struct slot_sizes *slots);
void slots_finish(struct slot_sizes *slots);

/* config's prefetch_units, at most the number of units. */
int units_ahead(const tutti_train_config *config, const struct tutti_model *model);

/* The bytes of a slot: whole cache lines. */
static inline size_t slot_bytes(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

/* Counts values that exist at once, by size. First every value is expected; after tally_begin,
 * values are taken and given back any number of times. */
struct tally {
	size_t *all;   /* sizes of all expected values */
	size_t *sizes; /* the different sizes, ascending */
	int all_count, size_count;
	int *now;           /* values that exist now, by size */
	int *above, *below; /* the most at once: of at least that size; of smaller sizes */
};

/* most: of expected values. MEMORY leaves nothing to free. */
tutti_status tally_make(struct tally *tally, int most);
void tally_free(struct tally *tally);
void tally_expect(struct tally *tally, size_t bytes);
void tally_begin(struct tally *tally);
void tally_take(struct tally *tally, size_t bytes);
void tally_give(struct tally *tally, size_t bytes);
/* Sets the slots for the values that were counted. */
tutti_status tally_choose(const struct tally *tally, struct slot_sizes *slots);

#endif
