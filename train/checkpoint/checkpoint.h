/* A checkpoint that is being saved. */
#ifndef TRAIN_SAVING_H
#define TRAIN_SAVING_H

#include "train/state/trainer_state.h"

/* INVALID unless the trainer is between two steps. */
tutti_status trainer_check_closed(const tutti_trainer *trainer, const char *function);
/* INVALID between two averages of local SGD, when there are no values of all ranks to save. */
tutti_status trainer_check_averaged(const tutti_trainer *trainer, const char *function);
/* Gives up what was not waited for; local. */
void checkpoint_abandon(tutti_trainer *trainer);

#endif
