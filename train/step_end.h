/* Of a trainer's steps, for rooms above train/: how one ends that cannot be computed. */
#ifndef TRAIN_STEP_END_H
#define TRAIN_STEP_END_H

#include "train/base/base.h"

#include <tutti/train.h>

/* Instead of tutti_step, when this rank's part cannot be computed: all gradients are ready,
 * whatever they are. Ends the step on all ranks, where tutti_step returns this failure; nothing is
 * updated. Collective. Returns what tutti_step returns elsewhere: never OK. */
tutti_status step_give_up(tutti_trainer *trainer, const struct kept_error *why);

#endif
