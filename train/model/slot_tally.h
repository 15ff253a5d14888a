/* Between plain_order.c, any_order.c and slot_sizes.c: how many values exist at once. */
#ifndef TRAIN_SLOT_TALLY_H
#define TRAIN_SLOT_TALLY_H

#include "train/model/model.h"

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
/* any_order.c: counts the most whole units at once, in whichever order they begin. */
tutti_status tally_any_order(struct tally *tally, const struct model_layout *layout,
			     const struct tutti_model *model, const tutti_train_config *config,
			     int home);
/* Sets the slots for the values that were counted. */
tutti_status tally_choose(const struct tally *tally, struct slot_sizes *slots);

#endif
