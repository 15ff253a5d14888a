/* Model parallelism on Tutti: meshes of named axes, and collectives that hand over each block as it
 * comes. docs/parallel.md says more. Conventions are those of tutti.h and train.h. */
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
/* Local; NULL is allowed. Its communicators go with it. In a done function: see tutti_done_fn. */
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
/* Local, after an error: every pending and later call on the mesh's communicators and on the one
 * that it was made of returns ABORTED here, and PEER or ABORTED on the others, so that all ranks
 * come to tutti_comm_shrink. The mesh can only be destroyed, or be before, then; a second call does
 * nothing, and may come after that communicator was destroyed. */
tutti_status tutti_mesh_abort(tutti_mesh *mesh);
/* Collective over comm, which tutti_comm_shrink or tutti_comm_grow (tutti_recover) has made, after
 * ranks of a mesh have died: a mesh of the same axes, with "dp" as long as there are whole
 * replicas. before: this rank's mesh until then, of which communicators may be gone; NULL on a new
 * rank. Ranks keep their place on the other axes; where one is empty, a new rank takes it, or one
 * of a replica that is given up. The others are left over: OK, and *mesh is NULL. The mesh's ranks
 * are a communicator of its own (tutti_mesh_comm of all axes), which goes with it; comm is used by
 * this call only. tutti_trainer_continue is next. The same error on all ranks: UNSUPPORTED: there
 * is no whole replica, or no rank has a mesh before; MISMATCH: these differ; MEMORY; or the
 * communicator's. */
tutti_status tutti_mesh_continue(tutti_mesh **mesh, tutti_comm *comm, const tutti_mesh *before);

/* ---- a trainer on a mesh -------------------------------------------------------------------- */
/* Every rank registers the whole model, with the shapes of whole tensors; the mesh decides what of
 * it lies where. Axes that the mesh does not have divide nothing, so that the same program runs on
 * any mesh. Call these before tutti_trainer_create_on. INVALID: there is no such parameter, unit,
 * dimension; "dp" and "cp" divide data, "pp" divides units. */

/* The tensor is split along dim over an axis ("tp", "ep"); tutti_param_data is this rank's piece,
 * C order, sizes as even as can be (the first ranks have one more). If dim is shorter than the
 * axis, the last ranks have no elements. A tensor that is not split is the same on all ranks of the
 * axis. */
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
 * INVALID: a unit without a stage; UNSUPPORTED: local SGD, whole_tensors, parameters of
 * tutti_model_param_extern, a rank with several GPUs.
 * tutti_trainer_continue takes over from earlier trainers with the same part of the model, that is
 * at the same place on all axes but "dp" and "cp"; where no rank has a part, it loads the newest
 * checkpoint. first of tutti_shard counts from the rank's piece on. Buffers are broadcast by the
 * first rank of "dp" and "cp", and rank 0's are saved. docs/parallel.md has more. */
tutti_status tutti_trainer_create_on(tutti_trainer **trainer, tutti_model *model,
                                     tutti_mesh *mesh, const tutti_train_config *config);
/* This rank's piece of a split parameter: elements [first, first + count) along dim; of one that is
 * not split, all along dimension 0; of one on another stage, none. */
tutti_status tutti_param_piece(const tutti_trainer *trainer, int param, int64_t *first,
                               int64_t *count);
/* Local: the bytes of the rank of such a mesh that would hold most, as tutti_memory_estimate. Axes
 * have sizes of at least 1. Where "pp" has several ranks, what a pipeline holds counts, as the
 * trainer allocates it: with ZeRO-2, FSDP and HSDP whole gradients of a rank's stages. */
tutti_status tutti_memory_estimate_on(const tutti_model *model, const tutti_axis *axes,
                                      int num_axes, const tutti_train_config *config,
                                      tutti_train_stats *stats);
/* For loops that run forwards after backwards, such as a pipeline's. From a call with is_held = 1
 * on in a training micro-batch the end of a backward does not make gradients final; after a call
 * with 0 the next end of a unit's backward does, as its last. A micro-batch begins with 0. INVALID:
 * no such micro-batch, or a unit is open; and tutti_grad_ready in between. */
tutti_status tutti_grads_hold(tutti_trainer *trainer, int is_held);

/* ---- blocks as they come ------------------------------------------------------------------ */
/* Computing on each block while the next one moves: a column- or row-split matrix product with its
 * gather or scatter, ring attention. Collective, and over when it returns: call.work, done and
 * source are INVALID. Host memory only: a device's buffer or call.stream is UNSUPPORTED. All calls
 * of fn of one rank have to fit into call.timeout_ms.
 *
 * fn is called on the caller's thread, which holds no lock, for each rank once (with count 0, too);
 * data is valid during the call only. fn may block. On comm it may make no collective call, and
 * neither abort nor destroy it; all other calls are allowed. After a status that is not OK it is
 * not called again on this rank. Else as collectives of tutti.h: the same calls on every rank, none
 * in a group, a failure stays. MEMORY on one rank: comm is aborted. */
typedef tutti_status (*tutti_block_fn)(void *arg, int rank, void *data, size_t count);
/* Every rank sees every rank's block of count elements: own block first, which is send itself, the
 * others in the order of ranks. fn may read data, not write it. At most two foreign blocks are
 * kept, aligned to 64 bytes; none where all blocks are in tutti_mem_alloc memory that all ranks
 * reach: fn sees them there. An error of fn is returned on its rank alone: the others get all
 * blocks. */
tutti_status tutti_all_gather_each(const void *send, size_t count, tutti_dtype dtype,
                                   tutti_block_fn fn, void *arg, tutti_comm *comm,
                                   const tutti_call *call);
/* fn writes this rank's contribution to rank's block, all count elements, into data, aligned to 64
 * bytes, whose contents were undefined. Blocks are asked for in the order in which they are sent
 * on: that of ranks. recv, of count elements, is the reduction of all ranks' contributions to this
 * one's block, of every dtype and op, rounded as by tutti_reduce. fn does not touch recv. An error
 * of fn is returned on all ranks, with its rank and message; recv is undefined then. */
tutti_status tutti_reduce_scatter_each(void *recv, size_t count, tutti_dtype dtype, tutti_op op,
                                       tutti_block_fn fn, void *arg, tutti_comm *comm,
                                       const tutti_call *call);

/* ---- pipelines ---------------------------------------------------------------------------- */
/* The ranks of "pp" hold the model in stages, through which a step's micro-batches go.
 * docs/parallel.md has what each schedule costs. */
typedef enum tutti_schedule {
	TUTTI_GPIPE,              /* all forwards, then all backwards                      */
	TUTTI_1F1B,               /* one forward, one backward: holds fewer micro-batches  */
	TUTTI_INTERLEAVED,        /* 1F1B over chunks > 1 model chunks a rank; 1: 1F1B     */
	TUTTI_ZERO_BUBBLE,        /* backward split in two: inputs first, weights in the gaps */
	TUTTI_SCHEDULE_MAX_ = 0x7fffffff
} tutti_schedule;
typedef struct tutti_pipeline_config {
	tutti_schedule schedule;
	int micro_batches;        /* of a step                                             */
	int chunks;               /* 0: 1. Stage of chunk c on rank r of "pp": c * size + r.
	                           * More than 1: INTERLEAVED and ZERO_BUBBLE only         */
	size_t count;             /* elements that pass between stages, per micro-batch    */
	tutti_dtype dtype;
	/* NULL, or a trainer on the same mesh, in host memory, that exists until destroy. A step is
	 * then one tutti_micro_batch(LAST) with the items of all its micro-batches,
	 * tutti_pipeline_run, tutti_step. */
	tutti_trainer *trainer;
	void *arg;
	/* The callbacks run on the thread that calls tutti_pipeline_run or tutti_pipeline_forward,
	 * one at a time and in the schedule's order: each of them once per stage of this rank and
	 * micro-batch. The library holds no lock meanwhile. A callback may block. It may make any
	 * call except those on this pipeline (INVALID) and those that abort or destroy its mesh,
	 * communicators or trainer. Any status but OK ends the step; a message of tutti_set_error
	 * is passed on.
	 *
	 *   forward           Every schedule, and evaluations. Reads in, writes all of out.
	 *   backward          Every schedule. Reads out_grad, writes all of in_grad. Unless the
	 *                     schedule is ZERO_BUBBLE it also adds to the gradients of weights.
	 *   backward_weights  ZERO_BUBBLE only, where it must not be NULL; other schedules do not
	 *                     call it. Adds to the gradients of weights. It runs after the backward
	 *                     of the same stage and micro-batch, but not always right after it.
	 *
	 * in is NULL on the first stage, out on the last; likewise the gradients. Buffers are the
	 * library's, in host memory, aligned to 64 bytes and valid during the call, but in stays
	 * until its backward has returned; with ZERO_BUBBLE in and out_grad stay until its
	 * backward_weights has.
	 *
	 * With a trainer each callback must begin and end units of its stage
	 * (tutti_model_unit_stage) as follows, in every micro-batch. A unit that it leaves open is
	 * INVALID.
	 *
	 *   forward           tutti_forward_begin and tutti_forward_end of each unit
	 *   backward          tutti_backward_begin and tutti_backward_end of each unit; with
	 *                     ZERO_BUBBLE only of units whose values it reads or to whose
	 *                     gradients it adds
	 *   backward_weights  tutti_backward_begin and tutti_backward_end of each unit, even if
	 *                     backward has done so or there is nothing to add
	 *
	 * A stage's gradients are final when backward (with ZERO_BUBBLE: backward_weights) has
	 * ended the stage's units in the last micro-batch. If it has not ended one of them there,
	 * tutti_step is INVALID on all ranks, and its message names the callback, the stage and the
	 * micro-batch. tutti_pipeline_run holds the gradients until then: callbacks must not call
	 * tutti_grads_hold, tutti_micro_batch, tutti_step or tutti_grads_finish. */
	tutti_status (*forward)(void *arg, int stage, int micro_batch, const void *in, void *out);
	tutti_status (*backward)(void *arg, int stage, int micro_batch, const void *out_grad,
	                         void *in_grad);
	tutti_status (*backward_weights)(void *arg, int stage, int micro_batch);
	uint64_t reserved[8];
} tutti_pipeline_config;
/* Of this rank. Seconds: of the last step that went well, busy ones in callbacks. bubble: the share
 * of that step that ranks were not busy, all ranks of the mesh together; bubble_expected: by the
 * schedule, if a stage's forward and both parts of its backward take equally long, and messages no
 * time. peak_in_flight: activations of a stage and a micro-batch that were held at a time in the
 * last step. sent_bytes: of activations and gradients to other ranks, in all steps and evaluations;
 * each message has 8 bytes more. */
typedef struct tutti_pipeline_stats {
	double step_seconds, busy_seconds;
	double bubble, bubble_expected;
	int peak_in_flight;
	uint64_t sent_bytes;
	uint64_t reserved[8];
} tutti_pipeline_stats;
typedef struct tutti_pipeline tutti_pipeline;
/* Collective over the mesh, the same config on all ranks, but for the callbacks and arg. A mesh
 * without "pp" has one rank there. Buffers are allocated here (docs/parallel.md: how many). The
 * mesh and its communicator are used until destroy. The same error on all ranks: INVALID: the
 * config; MISMATCH: ranks pass different ones; MEMORY; UNSUPPORTED; or the communicator's. */
tutti_status tutti_pipeline_create(tutti_pipeline **pipeline, tutti_mesh *mesh,
                                   const tutti_pipeline_config *config);
/* Local; NULL is allowed. In a callback of the pipeline, or after one was left by longjmp, it
 * destroys nothing, and a line on stderr says so. */
void tutti_pipeline_destroy(tutti_pipeline *pipeline);
/* Collective over the mesh: one step's micro-batches in the schedule's order; sends and receives
 * overlap the calls. An error of a callback ends the step on all ranks of the mesh with that
 * status, and the message says which rank, stage and micro-batch it was; no callbacks are called
 * once a rank knows, and the pipeline is good for the next step; but a trainer's gathers and
 * reductions have ended with it (ABORTED), so that it can only be destroyed. TIMEOUT: a message did
 * not come within the communicator's timeout from when this rank began to wait for it. That and
 * PEER, a rank that has died, end this pipeline. INVALID: in a callback. */
tutti_status tutti_pipeline_run(tutti_pipeline *pipeline);
/* Collective over the mesh: an evaluation. Forwards alone, of micro-batches 0 to micro_batches - 1
 * in the schedule's order; any number of at least 1, whatever that of a step. in is valid during
 * the call only. With a trainer: between a tutti_micro_batch(EVAL) and the next micro-batch. Errors
 * as of tutti_pipeline_run; before anything has begun on any rank, and on all ranks, also INVALID:
 * the number, or no such micro-batch; MISMATCH: ranks pass different numbers; MEMORY. Statistics
 * stay those of the last step, but for sent_bytes. */
tutti_status tutti_pipeline_forward(tutti_pipeline *pipeline, int micro_batches);
tutti_status tutti_pipeline_stats_of(const tutti_pipeline *pipeline, tutti_pipeline_stats *stats);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
