/* The door of checkpoint/. Saving, loading, exporting and importing are functions of
 * <tutti/train.h>; this function is for tutti_trainer_destroy. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include <tutti/train.h>

/* Keeps the folder's name (copied) for tutti_trainer_continue. MEMORY. */
tutti_status checkpoint_keep_dir(tutti_trainer *trainer, const char *dir);
/* Removes a checkpoint without tutti_save_wait. Local. */
void checkpoint_abandon(tutti_trainer *trainer);

#endif
