/* Where the parameters, gradients and optimizer state of a trainer lie. */
#ifndef TRAIN_TRAINER_MEMORY_H
#define TRAIN_TRAINER_MEMORY_H

#include "train/state/trainer_state.h"

/* Makes the tables of buckets, flights and slots. Local. */
tutti_status memory_tables(tutti_trainer *trainer);
/* Allocates all memory but optimizer state, and sets the buckets' pointers. Collective. */
tutti_status memory_place(tutti_trainer *trainer);
void memory_free(tutti_trainer *trainer);

/* The gradient that the author adds to. NULL: the parameter is frozen, or the gradient is not there
 * now. */
void *param_grad(const tutti_trainer *trainer, int param);

#endif
