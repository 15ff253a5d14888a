/* The door of checkpoint/. Saving, loading, exporting and importing are functions of
 * <tutti/train.h>. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "train/checkpoint/checkpoint_index.h"

/* Keeps the folder's name (copied) for tutti_trainer_continue. MEMORY. */
tutti_status checkpoint_keep_dir(tutti_trainer *trainer, const char *dir);
/* For tutti_trainer_destroy: removes a checkpoint without tutti_save_wait. Local. */
void checkpoint_abandon(tutti_trainer *trainer);

/* What a rank saves: flat ranges, by kind:
 *
 *     param      each parameter in f32 (the master copy); a frozen one of 16 bits as it is
 *     low        with stochastic rounding: the rounded parameter
 *     m, v       optimizer state
 *     optimizer  for each parameter the tutti_optimizer_kind of its state
 *     buffer     rank 0's
 *     state      the caller's: rank 0's; state.3 is rank 3's
 *     trainer    counts and the loss scale */
enum { COUNTS = 2, SCALES = 4 };

/* The kind of a state: state.3 for rank 3's own. */
void saved_state_kind(char kind[CHECKPOINT_KIND_BYTES], const struct state *state, int rank);

#endif
