/* The top of train/: what the files of this folder share.
 *
 *   trainer.c           tutti_trainer_create and tutti_trainer_destroy
 *   train_config.c      checks of a config
 *   memory_estimate.c   bytes that a rank will hold
 *   model_compare.c     compares the model of all ranks
 *   trainer_continue.c  takes over the values of earlier trainers
 *   holdings.c          which rank holds what of these
 *   hooks.c             micro-batches and hooks
 *   step.c              the end of a step
 *   step_reports.c      what ranks tell each other there
 *   mesh_agreement.c    and those of a mesh that have other parts of the model
 *   params.c            values and gradients of parameters
 *   replicas.c          compares the parameters of all ranks
 *   means.c             weighted means over ranks
 *
 * The rooms, from the top. A file includes and calls its own room and those below it:
 *
 *   data_parallel/   above this folder: replicas in the threads of a process
 *   checkpoint/   save, load, export, import; the files of checkpoints
 *   optimizer/    the norm of gradients and the update
 *   strategies/   gathers and publishes parameters, reduces gradients
 *   state/        struct tutti_trainer, where its values lie, its collectives
 *   device/       the same arithmetic on a GPU, and its memory; the only room that knows CUDA
 *   precision/    arithmetic on arrays, exact sums, the loss scale
 *   model/        units and parameters, the layout of their values, the bytes they take
 *   metrics/      the log files of a run; uses base/ only
 *   data/         the samples of a rank; uses base/ only
 *   flags/        the flags of a trainer's command line; uses base/ only
 *   base/         errors, files, tables, random numbers, UTF-8, values of JSON
 *
 * A room has one door: the header of its name, trainer_state.h of state/, or train_device.h of
 * device/. No file includes headers of metrics/, data/ or flags/ from outside. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/state/trainer_state.h"

/* INVALID or UNSUPPORTED unless the config is good, and good for this model or number of ranks. */
tutti_status config_check(const tutti_train_config *config);
tutti_status config_check_model(const tutti_train_config *config, const struct tutti_model *model);
/* UNSUPPORTED: not on a mesh. */
tutti_status config_check_mesh(const tutti_train_config *config, const struct tutti_model *model);
tutti_status config_check_world(const tutti_train_config *config, int world_size, int node);
/* Collective: OK if model, buffers and config are the same on all ranks. Otherwise MISMATCH with
 * the same message on all ranks. */
tutti_status compare_models(tutti_trainer *trainer);
/* Sets this rank's report of the step. local: why it cannot update, or OK. */
void report_fill(tutti_trainer *trainer, tutti_status local);
/* Concludes from all reports, with the same result on every rank, or with local SGD from this
 * rank's: OK, with the items of the step, if all ranks can update. own: the failure that this rank
 * has reported; if it is the first one, the others are told its message. */
tutti_status reports_check(tutti_trainer *trainer, const struct kept_error *own, double *items);
/* After reports_check, with its result, which is the same among the ranks of trainer->comm: returns
 * what all ranks of the mesh can conclude. *items: in, of the ranks of comm; out, with those of
 * "ep". MISMATCH: ranks with the same data have other items. */
tutti_status mesh_agree(tutti_trainer *trainer, tutti_status status, double *items);
/* Local SGD, collective: OK if no rank has failed in a step since the last average. */
tutti_status reports_exchange_missed(tutti_trainer *trainer);
/* After an update, collective: averages ranks and compares replicas if this step is one of those.
 */
tutti_status step_run_scheduled(tutti_trainer *trainer);

#endif
