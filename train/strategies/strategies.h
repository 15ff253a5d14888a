/* The door of strategies/: how parameters reach the ranks that compute with them, and how gradients
 * become sums. Every strategy is a choice of these steps; config and layout decide which of them do
 * something. */
#ifndef TRAIN_STRATEGIES_H
#define TRAIN_STRATEGIES_H

#include "train/state/trainer_state.h"

/* Where the author reads a parameter. NULL: not gathered, or its unit is not open. */
void *param_data(const tutti_trainer *trainer, int param);

/* FSDP: a micro-batch begins. */
tutti_status params_expect(tutti_trainer *trainer);
/* Returns when the values of the unit are there. Starts to gather those of the next units. */
tutti_status params_open(tutti_trainer *trainer, int unit, enum unit_pass pass);
/* The unit has ended: its values may be freed. is_over: also if the same unit begins next. */
tutti_status params_close(tutti_trainer *trainer, int unit, bool is_over);
/* Frees all that is gathered: values change, or a step ends. */
tutti_status params_drop(tutti_trainer *trainer);
/* At the end of a step: MISMATCH when another rank gathers a unit instead. */
tutti_status params_compare_order(tutti_trainer *trainer);
/* Before pieces are written: waits for values on their way, and frees all that is gathered. */
tutti_status params_begin_write(tutti_trainer *trainer);
/* Sends pieces that were written to all ranks. */
tutti_status params_publish(tutti_trainer *trainer);

/* ZeRO-1 and -2: starts to send this rank's part of the bucket to the others. Otherwise does
 * nothing. */
tutti_status publish_bucket(tutti_trainer *trainer, int bucket);
/* Waits until the values of a bucket, or of all of them, are there. */
tutti_status publish_wait(tutti_trainer *trainer, int bucket);
tutti_status publish_wait_all(tutti_trainer *trainer);

/* Before so many micro-batches whose gradients are kept: takes the memory that deterministic modes
 * keep until the end of the step. Local. MEMORY, with the sum, on all ranks; no micro-batch has
 * begun then. */
tutti_status grads_reserve(tutti_trainer *trainer, int micro_batches);
/* For a pipeline that holds gradients: its micro-batches, so many, are one of the trainer's. With
 * deterministic = 2 their gradients are added up as micro-batches are. last_callback: the
 * callback after whose last call a stage's gradients are final, for messages. Local; MEMORY. */
tutti_status grads_add_up(tutti_trainer *trainer, int micro_batches, const char *last_callback);
/* Whether the next backward of a unit leaves a part of that micro-batch's gradients for another. */
void grads_hold_part(tutti_trainer *trainer, bool is_part);
/* A step's first micro-batch begins: sets gradients to zero. */
void grads_zero(tutti_trainer *trainer);
/* A micro-batch begins: no gradient is final. */
void grads_expect(tutti_trainer *trainer);
/* A micro-batch has ended whose gradients are not sent. */
tutti_status grads_keep(tutti_trainer *trainer);
/* The unit's backward has ended, and gradients are held. */
void grads_push(tutti_trainer *trainer, int unit);
/* Makes the bucket's gradient, zero, unless it is there. Waits for a slot if all of them are in
 * flight. */
tutti_status grad_make(tutti_trainer *trainer, int bucket);
/* The parameter's gradient is final. Starts every bucket whose turn has come. Does not wait. */
tutti_status grad_ready(tutti_trainer *trainer, int param);
/* Progresses what is in flight. Does not wait. */
tutti_status grads_poll(tutti_trainer *trainer);
/* Starts all buckets that no hook started, so that the ranks' calls still match. */
tutti_status grads_flush(tutti_trainer *trainer);
/* Waits until every bucket that was started is reduced or failed. Returns the first failure. */
tutti_status grads_wait(tutti_trainer *trainer);

/* On a mesh, after all reductions of a step: adds up gradients that ranks of other axes have parts
 * of, and those of tied parameters. Collective over the mesh. */
tutti_status grads_sum_groups(tutti_trainer *trainer);

#endif
