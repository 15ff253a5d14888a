/* The top of train/: what the files of this folder share. Its rooms, from the top:
 *
 *   trainer.c           create and destroy                 hooks.c    micro-batches and hooks
 *   train_config.c      checks of a config                 step.c     the end of a step
 *   model_compare.c     is the model the same everywhere?  params.c   values and gradients of parameters
 *   trainer_continue.c  values of an earlier trainer       replicas.c are parameters the same everywhere?
 *
 *   checkpoint/   save, load, export, import; the files of checkpoints
 *   optimizer/    the norm of gradients and the update
 *   strategies/   parameters are gathered and published, gradients reduced
 *   state/        struct tutti_trainer, where its values lie, its collectives
 *   precision/    arithmetic on arrays, exact sums, the loss scale
 *   model/        units and parameters, the layout of their values, the bytes that takes
 *   metrics/      log files of a run (uses base/ only)
 *   data/         which samples a rank takes (uses base/ only)
 *   base/         errors, random numbers, UTF-8
 *
 * A file includes and calls its own room and those below it. Rooms with a door are entered by it alone: checkpoint.h,
 * optimizer.h, strategies.h. Of state/, precision/, model/ and base/ every header but kernel_table.h is for other rooms. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/state/trainer_state.h"

/* INVALID or UNSUPPORTED unless the config is good, and good for this model or number of ranks. */
tutti_status config_check(const tutti_train_config *config);
tutti_status config_check_model(const tutti_train_config *config, const struct tutti_model *model);
tutti_status config_check_world(const tutti_train_config *config, int world_size, int node);
/* Collective: OK if model, buffers and config are the same on all ranks. Otherwise MISMATCH with the same message on all
 * ranks. */
tutti_status compare_models(tutti_trainer *trainer);
/* After an update, collective: averages ranks and compares replicas if this step is one of those. */
tutti_status step_run_scheduled(tutti_trainer *trainer);

#endif
