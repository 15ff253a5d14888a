/* A door of optimizer/: whether the numbers of a caller's optimizers are good. It knows no trainer.
 */
#ifndef TRAIN_OPTIMIZER_GROUPS_H
#define TRAIN_OPTIMIZER_GROUPS_H

#include <tutti/train.h>

/* INVALID, with the call's name and the group's number. */
tutti_status optimizer_groups_check(const char *call, const tutti_optimizer *groups,
				    int num_groups);
/* Of a tutti_optimizer_kind. */
const char *optimizer_kind_name(int kind);

#endif
