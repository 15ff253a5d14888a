/* The door of optimizer/: the global norm of gradients, and the update of this rank's pieces. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "train/state/trainer_state.h"

/* Makes trainer->shares. The caller frees them. */
tutti_status norm_create(tutti_trainer *trainer);
/* The sum of squares of the reduced gradients, the same on all ranks. Collective if gradients are
 * sharded. *bad_param: the first parameter with an infinity or NaN, or -1. With
 * config.deterministic the bits do not depend on the sharding. */
tutti_status norm_sum_of_squares(tutti_trainer *trainer, double *sum, int *bad_param);

/* INVALID, with the call's name and the group's number, unless the numbers of the groups are good. */
tutti_status optimizer_groups_check(const char *call, const tutti_optimizer *groups,
				    int num_groups);
/* Of a tutti_optimizer_kind. */
const char *optimizer_kind_name(int kind);
/* INVALID unless the groups are good for this model. */
tutti_status optimizer_check(const tutti_trainer *trainer, const tutti_optimizer *groups,
			     int num_groups);
/* Makes the state that pieces lack, zero, and room for trainer->last.groups. MEMORY, SYSTEM. */
tutti_status optimizer_prepare(tutti_trainer *trainer, const tutti_optimizer *groups,
			       int num_groups);
/* Makes update number trainer->updates, counted from 1, with the gradient sum * scale, of this
 * rank's pieces and its shadow. Sends each bucket's values to the other ranks. */
tutti_status optimizer_update(tutti_trainer *trainer, const tutti_optimizer *groups, float scale);
/* The same without sending: the trainer's communicators have failed. */
void optimizer_update_alone(tutti_trainer *trainer, const tutti_optimizer *groups, float scale);
/* Multiplies sums, and the gradients that the author sees, by scale. */
void optimizer_scale(tutti_trainer *trainer, float scale);

#endif
