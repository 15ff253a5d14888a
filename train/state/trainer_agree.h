/* What one rank alone can fail at, all fail at. */
#ifndef TRAIN_TOGETHER_H
#define TRAIN_TOGETHER_H

#include "train/state/trainer_state.h"

/* Collective: OK when own is OK on every rank; else, on all of them, what the lowest rank has that
 * failed, with its message. */
tutti_status trainer_agree(tutti_trainer *trainer, tutti_status own);

#endif
