/* Model parallelism on Tutti: meshes of named axes. docs/parallel.md says more. Conventions are
 * those of tutti.h and train.h. */
#ifndef TUTTI_PARALLEL_H
#define TUTTI_PARALLEL_H

#include <tutti/train.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- meshes ------------------------------------------------------------------------------- */
/* The ranks of a communicator as a grid, numbered in C order: ranks that differ in the last axis
 * only are neighbours, so put first what may cross nodes and last what talks most. Names that the
 * trainer knows: "dp" (the strategy of train.h), "tp" (tensors split), "pp" (stages), "cp"
 * (sequence split), "ep" (experts). Others are the caller's own. One thread at a time per mesh. */
typedef struct tutti_mesh tutti_mesh;
typedef struct tutti_axis {
	const char *name;             /* 1 to 31 of a-z, 0-9, _                                  */
	int size;                     /* 0 on one axis at most: what the others leave            */
} tutti_axis;
/* Collective. Up to 8 axes; with num_axes 0 those of the environment's TUTTI_MESH, "dp=2,tp=4", as
 * tuttirun --mesh sets it. The mesh uses comm until it is destroyed. The same error on all ranks:
 * INVALID: the product is not the communicator's size (the message has both), or a bad axis;
 * MISMATCH: ranks pass different axes; else the communicator's, or MEMORY. */
tutti_status tutti_mesh_create(tutti_mesh **mesh, tutti_comm *comm, const tutti_axis *axes,
                               int num_axes);
/* Local; NULL is allowed. Its communicators go with it. */
void tutti_mesh_destroy(tutti_mesh *mesh);
/* The ranks that differ from this one in these axes only ("tp", or "dp,cp" as one), in mesh order;
 * "": this rank alone. The mesh's, until it is destroyed. Single axes exist from create on; a
 * combination is made at its first use, collectively over the mesh (MISMATCH: ranks ask for
 * different ones). NULL: tutti_comm_error(NULL) says why. */
tutti_comm *tutti_mesh_comm(tutti_mesh *mesh, const char *axes);
int tutti_mesh_size(const tutti_mesh *mesh, const char *axis);  /* 1: the axis is not there */
int tutti_mesh_coord(const tutti_mesh *mesh, const char *axis); /* 0: the axis is not there */
/* The rank in comm at coords, one for each axis; -1: outside of the mesh. */
int tutti_mesh_rank(const tutti_mesh *mesh, const int *coords);

/* ---- a trainer on a mesh -------------------------------------------------------------------- */
/* Every rank registers the whole model, with the shapes of whole tensors; the mesh decides what of
 * it lies where. Axes that the mesh does not have divide nothing, so that the same program runs on
 * any mesh. Call these before tutti_trainer_create_on. INVALID: there is no such parameter, unit,
 * dimension; "dp" and "cp" divide data, "pp" divides units. */

/* The tensor is split along dim over an axis ("tp", "ep"); tutti_param_data is this rank's piece,
 * C order, sizes as even as can be (the first ranks have one more). Without it a tensor is the same
 * on all ranks of the axis. Memory of tutti_model_param_extern is this rank's piece. */
tutti_status tutti_model_param_split(tutti_model *model, int param, const char *axis, int dim);
/* A replicated tensor whose gradient on this rank is a part of it only (a norm's, where the
 * sequence is split): summed over the axis with the step's reductions. Over "ep", whose ranks have
 * data of their own, all are that are not split over it. */
tutti_status tutti_model_param_partial(tutti_model *model, int param, const char *axis);
/* The unit lives on one stage of "pp", stage s on the ranks of coordinate s modulo its size; a
 * parameter used on two stages (tied embeddings) lives on both and its gradients are summed between
 * them. */
tutti_status tutti_model_unit_stage(tutti_model *model, int unit, int stage);
/* Strategies shard and reduce over "dp" (and "cp"). Norms, clipping, infinities, replica checks,
 * initial values, checkpoints, exports are those of the whole model: the same numbers and the same
 * files at every mesh. Items of a step count once for all ranks of "tp" and "pp", which pass the
 * same (else MISMATCH). Collective over the mesh, which is used until tutti_trainer_destroy.
 * INVALID: a unit without a stage, a dimension shorter than its axis; UNSUPPORTED: local SGD,
 * shadows, whole_tensors, a rank with several GPUs. tutti_trainer_continue is UNSUPPORTED. Buffers
 * are broadcast by the first rank of "dp" and "cp", and rank 0's are saved. docs/parallel.md has
 * more. */
tutti_status tutti_trainer_create_on(tutti_trainer **trainer, tutti_model *model,
                                     tutti_mesh *mesh, const tutti_train_config *config);
/* This rank's piece of a split parameter: elements [first, first + count) along dim; of one that is
 * not split, all along dimension 0; of one on another stage, none. */
tutti_status tutti_param_piece(const tutti_trainer *trainer, int param, int64_t *first,
                               int64_t *count);
/* Local: the bytes of the rank of such a mesh that would hold most, as tutti_memory_estimate. Axes
 * have sizes of at least 1. */
tutti_status tutti_memory_estimate_on(const tutti_model *model, const tutti_axis *axes,
                                      int num_axes, const tutti_train_config *config,
                                      tutti_train_stats *stats);
/* For loops that run forwards after backwards, such as a pipeline's. From a call with is_held = 1
 * on in a training micro-batch the end of a backward does not make gradients final; after a call
 * with 0 the next end of a unit's backward does, as its last. A micro-batch begins with 0. INVALID:
 * no such micro-batch, or a unit is open. */
tutti_status tutti_grads_hold(tutti_trainer *trainer, int is_held);

/* ---- pipelines -------------------------------------------------------------------------------- */
typedef enum tutti_schedule {
	TUTTI_GPIPE,              /* all forwards, then all backwards                          */
	TUTTI_1F1B,
	TUTTI_INTERLEAVED,        /* 1F1B over chunks > 1 model chunks a rank                  */
	TUTTI_ZERO_BUBBLE,        /* backward split in two: inputs first, weights in the gaps  */
	TUTTI_SCHEDULE_MAX_ = 0x7fffffff
} tutti_schedule;

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
