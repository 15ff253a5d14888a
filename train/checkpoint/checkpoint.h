/* The door of checkpoint/: saving, loading, exporting and importing are functions of
 * <tutti/train.h>; a trainer that goes away needs one function more. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <tutti/train.h>

/* Removes a checkpoint that nobody has waited for. Local. */
void checkpoint_abandon(tutti_trainer *trainer);

#endif
