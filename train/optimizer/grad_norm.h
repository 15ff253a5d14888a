/* The norm of all gradients, the same on every rank: whoever's part an element is, it counts once.
 */
#ifndef TRAIN_NORM_H
#define TRAIN_NORM_H

#include "train/state/trainer_state.h"

/* Of the reduced gradients. Collective where they are split. *bad_param: the first one with an
 * infinity or NaN; -1: none. With config.deterministic the bits do not depend on how gradients are
 * cut. */
/* Makes trainer->shares, which free() frees. */
tutti_status norm_create(tutti_trainer *trainer);
tutti_status norm_sum_of_squares(tutti_trainer *trainer, double *sum, int *bad_param);

#endif
