/* Ranks agree on whether all of them could do something. */
#include "train/state/trainer_collectives.h"

#include "train/base/train_error.h"
#include "train/state/trainer_state.h"

#include <stdio.h>

struct outcome {
	int32_t status;
	char message[sizeof((struct train_error *)0)->message];
};

tutti_status trainer_agree(tutti_trainer *trainer, tutti_status own)
{
	struct outcome told = {.status = (int32_t)own};
	double first = own == TUTTI_OK ? trainer->size : trainer->rank;

	snprintf(told.message, sizeof told.message, "%s", train_last_error().message);
	TRY(trainer_all_reduce(trainer, &first, 1, TUTTI_MIN));
	int failed = (int)first;
	if (failed == trainer->size)
		return TUTTI_OK;
	TRY(trainer_broadcast(trainer, &told, sizeof told, TUTTI_U8, failed));
	if (failed == trainer->rank)
		return tutti_set_error(own, told.message);
	return train_fail((tutti_status)told.status, "On rank %d: %s", failed, told.message);
}
