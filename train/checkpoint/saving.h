/* This rank's part of a checkpoint: flat ranges, and where their values lie. By kind:
 *
 *     param      each parameter in f32 (the master copy); a frozen one of 16 bits as it is
 *     low        with stochastic rounding: the rounded parameter
 *     m, v       optimizer state
 *     optimizer  for each parameter the tutti_optimizer_kind of its state
 *     buffer     rank 0's
 *     state      the caller's: rank 0's; state.3 is rank 3's
 *     trainer    counts and the loss scale */
#ifndef TRAIN_SAVING_H
#define TRAIN_SAVING_H

#include "train/checkpoint/checkpoint_writer.h"
#include "train/state/trainer_state.h"

enum { COUNTS = 2, SCALES = 4 };

/* The kind of a state: state.3 for rank 3's own. */
void saved_state_kind(char kind[CHECKPOINT_KIND_BYTES], const struct state *state, int rank);

#endif
