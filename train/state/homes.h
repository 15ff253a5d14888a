/* Homes: where the values of some units lie, which is host memory or a GPU's, in the order of a
 * stream there. Each has communicators of its own, since a communicator's rank has one GPU. A
 * trainer in host memory, or on one GPU, has one home. */
#ifndef TRAIN_HOMES_H
#define TRAIN_HOMES_H

#include "train/model/model.h"
#include "train/state/pieces.h"
#include "train/state/trainer_memory.h"

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
/* The later work of the first home's stream waits for what all others have now. */
void homes_join(const tutti_trainer *trainer);

/* The state that only a trainer on a mesh has: the whole model, and the communicators of ranks that
 * have other parts of it. */

/* How a step went among the ranks that reduce the gradients of a rank. */
struct step_conclusion {
	double items;
	int32_t status; /* tutti_status */
	int32_t data;   /* ranks with the same number have the same data */
};

struct trainer_mesh {
	struct axes axes;
	int rank; /* in the mesh */
	struct tutti_model whole;
	int *locals; /* for each parameter of whole its index in the trainer's model, or -1 */
	struct model_groups groups;
	tutti_comm *sums[MODEL_SUM_GROUPS]; /* of each group; NULL: this rank is not of it */
	/* The ranks of all axes that the strategy does not reduce over: together they have the
	 * model once, or more often. NULL: this rank alone has it. */
	tutti_comm *others;
	int other_rank, other_count;
	struct step_conclusion *conclusions; /* of each of these */
};

/* Local, of host memory. Makes *mesh with a copy of the model, and leaves this rank's part in the
 * model. */
tutti_status mesh_divide(struct trainer_mesh **mesh, struct tutti_model *model,
			 const struct axes *axes, int rank);
/* Collective over the mesh: makes the communicators, with this configuration. */
tutti_status mesh_split(struct trainer_mesh *mesh, tutti_comm *job, const tutti_config *config);
void mesh_abort(const struct trainer_mesh *mesh);
/* One of its communicators. NULL: no. */
bool mesh_has_failed(const struct trainer_mesh *mesh);
void mesh_close(struct trainer_mesh *mesh);

/* Whether this rank's items count: those of one rank are those of all that only have another part
 * of the model. Ranks of "ep" have other data. */
bool mesh_counts_items(const struct trainer_mesh *mesh);
/* Among ranks of the same "dp" and "cp": those with the same number have the same data. */
int mesh_data(const struct trainer_mesh *mesh);
/* The model as the caller registered it. */
const struct tutti_model *trainer_whole(const tutti_trainer *trainer);

#endif
