/* Between the files of strategies/: buckets in flight, and the sum tree of deterministic = 2. */
#ifndef TRAIN_GRAD_FLIGHTS_H
#define TRAIN_GRAD_FLIGHTS_H

#include "train/state/trainer_state.h"

/* Adds a flight behind all others. */
struct flight *flight_add(tutti_trainer *trainer, const struct flight *flight);
tutti_status flight_start(tutti_trainer *trainer, struct flight *flight);
/* Waits for the oldest flight, and frees its slots. */
tutti_status flight_finish(tutti_trainer *trainer);

/* Puts a parameter's gradient of this micro-batch, which is there (grad_make), into the tree, and
 * sets it to zero. grads_reserve has made the tree's levels. */
void sum_tree_push(tutti_trainer *trainer, int param);
/* Adds the sums in the tree to the gradient of the last micro-batch. */
void sum_tree_finish(tutti_trainer *trainer, int bucket);

#endif
