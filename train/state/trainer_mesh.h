/* The state of a trainer that only one on a mesh has: the whole model, and the communicators of
 * ranks that have other parts of it. */
#ifndef TRAIN_TRAINER_MESH_H
#define TRAIN_TRAINER_MESH_H

#include "train/model/model.h"

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
