/* Homes: where the values of some units lie, which is host memory or a GPU's, in the order of a
 * stream there. Each has communicators of its own, since a communicator's rank has one GPU. A
 * trainer in host memory, or on one GPU, has one home. */
#ifndef TRAIN_HOMES_H
#define TRAIN_HOMES_H

#include "train/state/pieces.h"
#include "train/state/slot_pool.h"
#include "train/state/trainer_values.h"

enum { REGION_DATA, REGION_GRAD, REGION_WIRE, REGIONS };

struct home {
	struct train_device *device; /* NULL: host memory */
	void *stream;
	tutti_comm *gather, *reduce; /* of the shard group; NULL: it has one rank */
	tutti_comm *replicas;        /* of the ranks with the same part; NULL: one shard group */
	struct shared_values regions[REGIONS];
	struct slot_pool data_pool, grad_pool;
	size_t state_count; /* elements with optimizer state on this rank */
	struct state_file {
		float *values; /* NULL: not made */
		size_t bytes;
	} files[STATES]; /* optimizer state, of a trainer on GPUs or in offload_dir; else each piece
			  * has memory. state_home() tells whose. */
	char *shadow_sums; /* of reduced gradients of the shadow */
};

/* Makes the homes of the layout, and opens their GPUs. Local. INVALID: a stream, or the caller's
 * memory, is elsewhere. */
tutti_status homes_open(tutti_trainer *trainer);
/* Makes their communicators, so that gathers, reductions and the caller's calls overlap.
 * Collective. */
tutti_status homes_split(tutti_trainer *trainer);
/* After memory_free. */
void homes_close(tutti_trainer *trainer);

/* The first failure of a GPU. */
tutti_status homes_failure(const tutti_trainer *trainer);
/* Returns when all streams have come to here. */
void homes_wait(const tutti_trainer *trainer);
/* Streams wait for each other: a unit's for those where other values that it uses lie, when the
 * unit begins; and these for the unit's when it ends. */
void homes_enter_unit(const tutti_trainer *trainer, int unit);
void homes_leave_unit(const tutti_trainer *trainer, int unit);
/* The later work of this home's stream waits for what the other one has now. */
void home_follow(const struct home *home, const struct home *other);
/* The same for the first home and all others. */
void homes_join(const tutti_trainer *trainer);

#endif
