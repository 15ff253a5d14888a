/* tutti_trainer_continue in two files: which step all go on from, and who has it
 * (trainer_continue.c); and how the parts of it move (takeover_move.c). */
#ifndef TRAIN_TAKEOVER_H
#define TRAIN_TAKEOVER_H

#include "train/holdings.h"
#include "train/precision/precision.h"

/* The earlier trainer of a rank. steps is -1 if there is none. */
struct earlier_trainer {
	int64_t steps;
	int32_t has_part; /* it has the same part of the model as the new one */
	int32_t has_dir;  /* of checkpoints */
};

/* Numbers that all ranks have after a step; the optimizer groups follow. */
struct step_numbers {
	uint64_t updates;
	struct loss_scale scale;
	float factor;
	int32_t group_count, is_callers;
};

/* On a mesh the step, its numbers and checkpoints are all ranks' alike; parts move among those that
 * have the same part of the model: the ranks of the trainer's comm. */
struct takeover {
	tutti_trainer *trainer, *before; /* before: NULL on a new rank */
	struct earlier_trainer *earlier; /* one a rank of the job */
	struct holdings holdings;
	double *state;               /* by parameter: its optimizer, and whether m, v lack */
	int root;                    /* the job's rank with most steps */
	int part_root;               /* of comm: the rank with most steps of this part; or -1 */
	int64_t steps;               /* that root has finished, or -1 */
	struct step_numbers numbers; /* of that step */
};

enum { STATE_NUMBERS = 3 };

/* This rank's earlier trainer, if it has this part at the step that all continue from. */
const tutti_trainer *takeover_holder(const struct takeover *t);
/* Collective: each rank gets what it is to hold, all of which some rank of comm has. */
tutti_status takeover_move(struct takeover *t);

#endif
