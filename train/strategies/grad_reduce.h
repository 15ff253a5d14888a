/* Gradients on their way: a bucket starts as soon as its turn has come and flies while backward goes
 * on. */
#ifndef TRAIN_REDUCE_H
#define TRAIN_REDUCE_H

#include "train/state/trainer_state.h"

/* Where the author adds to a parameter's gradient; NULL: frozen, or not there at the moment. */
void *param_grad(const tutti_trainer *trainer, int param);
/* The bucket's gradients travel at the end of this micro-batch. */
bool bucket_reduces(const tutti_trainer *trainer, const struct bucket *bucket);

/* Local, before a micro-batch of TUTTI_PASS_ACCUMULATE: takes what deterministic modes keep until the step's end. MEMORY,
 * with the sum, on all ranks; nothing has begun then. */
tutti_status grads_reserve(tutti_trainer *trainer);
/* A step's first micro-batch begins: gradients are zero. */
void grads_zero(tutti_trainer *trainer);
/* A micro-batch begins: nothing is ready. */
void grads_expect(tutti_trainer *trainer);
/* A micro-batch has ended without travelling. */
tutti_status grads_keep(tutti_trainer *trainer);
/* Makes the bucket's gradient, zero, unless it is there. Waits where memory is bounded and all of it
 * under way. */
tutti_status grad_make(tutti_trainer *trainer, int bucket);
/* The parameter's gradient is final. Starts every bucket whose turn has come and returns at once. */
tutti_status grad_ready(tutti_trainer *trainer, int param);
/* Does what has become possible, and does not wait. */
tutti_status grads_poll(tutti_trainer *trainer);
/* Starts all that no hook started, so that the ranks' calls still match. */
tutti_status grads_flush(tutti_trainer *trainer);
/* Until every bucket started is reduced or failed. Returns the first failure. */
tutti_status grads_wait(tutti_trainer *trainer);

/* Between reduce.c and flight.c. A flight is added behind all others, started, and ends when it is the
 * oldest that is there; then its slots are free. */
struct flight *flight_add(tutti_trainer *trainer, const struct flight *flight);
tutti_status flight_start(tutti_trainer *trainer, struct flight *flight);
tutti_status flight_land(tutti_trainer *trainer);

/* deterministic = 2: micro-batches are added as a binary tree whose leaves are those of all ranks,
 * in their order; its levels are there (grads_reserve). Puts this micro-batch's gradient into the tree, and leaves zero. */
tutti_status sum_tree_push(tutti_trainer *trainer, int bucket);
/* Adds what is in the tree to the gradient of the last one. */
void sum_tree_finish(tutti_trainer *trainer, int bucket);

#endif
