/* The top of train/: what the files of this folder share.
 *
 *   trainer.c           tutti_trainer_create and tutti_trainer_destroy; checks of a config, and of
 *                       the model of all ranks
 *   memory_estimate.c   bytes that a rank will hold
 *   takeover.c          takes over the values of earlier trainers
 *   hooks.c             micro-batches and hooks
 *   step.c              the end of a step, and what ranks tell each other there
 *   params.c            values and gradients of parameters; compares them on all ranks; means
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
/* After an update, collective: averages ranks and compares replicas if this step is one of those.
 */
tutti_status step_run_scheduled(tutti_trainer *trainer);
/* Instead of tutti_step, when this rank's part cannot be computed: all gradients are ready,
 * whatever they are. Ends the step on all ranks, where tutti_step returns this failure; nothing is
 * updated. Collective. Returns what tutti_step returns elsewhere: never OK. */
tutti_status step_give_up(tutti_trainer *trainer, const struct kept_error *why);

#endif
