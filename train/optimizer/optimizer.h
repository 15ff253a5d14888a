/* The update: AdamW and SGD with momentum, each piece by the rank that has it. */
#ifndef TRAIN_OPTIMIZER_H
#define TRAIN_OPTIMIZER_H

#include "train/state/trainer_state.h"

tutti_status optimizer_check(const tutti_trainer *trainer, const tutti_optimizer *groups,
			     int num_groups);
/* Makes the state that pieces do not have yet: zero. MEMORY or SYSTEM when there is no room for it.
 */
tutti_status optimizer_prepare(tutti_trainer *trainer, const tutti_optimizer *groups);
/* Update number trainer->updates, from 1, with the gradient sum * scale. Values are sent on their
 * way to the other ranks bucket by bucket. */
tutti_status optimizer_update(tutti_trainer *trainer, const tutti_optimizer *groups, float scale);
/* Gradients, where the author sees them, and their sums: sum * scale. */
void optimizer_scale(tutti_trainer *trainer, float scale);

#endif
