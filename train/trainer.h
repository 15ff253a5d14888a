/* What a step consists of besides its gradients' way. */
#ifndef TRAIN_STEP_H
#define TRAIN_STEP_H

#include "train/state/trainer_state.h"

void scale_create(tutti_trainer *trainer);
/* A step's first micro-batch has items here. Collective the first time. */
tutti_status scale_begin_step(tutti_trainer *trainer, double items);
/* What gradients are multiples of. */
float scale_now(const tutti_trainer *trainer);
/* A step of items, of all ranks, has ended. */
void scale_end_step(tutti_trainer *trainer, double items, bool is_finite);

/* After an update: what all ranks do at certain steps. Collective at those. */
tutti_status step_at_times(tutti_trainer *trainer);
/* Local SGD: all ranks get the mean of their values, and of their state where the config says so.
 * Collective. */
tutti_status local_sgd_average(tutti_trainer *trainer);

#endif
