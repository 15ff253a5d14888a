/* The replicas of one process, and the functions that the files of data_parallel/ share.
 *
 *   data_parallel_create.c   tutti_data_parallel_create, tutti_mirrored_create, destroy
 *   data_parallel.c          the other public calls
 *   gathered_step.c          a step of DataParallel: phases, with the loss between them
 *   mirrored_step.c          a step of Mirrored: a trainer's step in each thread
 *   replica_copies.c         DataParallel's memory: parameters and gradients of each replica
 *   replica_calls.c          calls of the program's functions, and what these may call
 *   replica_threads.c        the threads */
#ifndef TRAIN_DATA_PARALLEL_H
#define TRAIN_DATA_PARALLEL_H

#include "train/base/base.h"
#include "train/data_parallel/replica_threads.h"
#include "train/state/trainer_state.h"

#include <stdatomic.h>
#include <sys/types.h>

struct replica {
	tutti_replica view; /* the first member: functions of the program have its address */
	struct tutti_data_parallel *of;
	tutti_comm *comm;             /* the caller's */
	tutti_trainer *trainer;       /* NULL: DataParallel, and not replica 0 */
	struct kept_error failure; /* of this turn */
	/* DataParallel */
	tutti_comm *copies;     /* parameters and gradients go by this one; NULL: one replica */
	char *data, *grads;     /* all parameters, all gradients; data NULL: those of replica 0 */
	tutti_train_stats sent; /* what its calls on copies have sent, and waited */
	/* Mirrored: the results of a step */
	tutti_step_info info;
	double mean_loss;
};

/* Bytes in a replica's data and grads. */
struct copy_place {
	size_t data, grad;
};

struct tutti_data_parallel {
	tutti_data_parallel_config config;
	tutti_train_config train;
	bool is_mirrored;
	bool is_busy; /* a call is under way; functions of the program may read it */
	atomic_bool was_kept; /* one of them, or its thread, has asked to destroy this */
	pid_t owner;  /* the process that has the threads: not one that it has forked */
	int count;
	struct replica *replicas;
	struct replica_threads *threads;
	/* DataParallel */
	struct tutti_model model;         /* its parameters are extern: those of replica 0 */
	struct copy_place *places, total; /* one a parameter */
	tutti_comm *alone;                /* of the trainer */
	/* The batch of this call. */
	const tutti_data_parallel_batch *batch;
	const tutti_optimizer *groups;
	int num_groups;
	float *outputs, *output_grads; /* of the whole batch */
	size_t output_room;            /* floats */
};

/* replica_calls.c */

/* Gives each replica its part of dp->batch. MEMORY. */
tutti_status replicas_scatter(struct tutti_data_parallel *dp, bool with_grads);
/* Before the program's function is called, and with its status afterwards: INVALID if a function
 * of this call has asked to destroy the replicas, which is not done. */
void replicas_begin_function(void);
tutti_status replicas_end_function(const struct tutti_data_parallel *dp, tutti_status status);
/* Calls a function of the program, unless the replica has no items. what: "forward". */
tutti_status replica_call(struct replica *replica, tutti_replica_fn fn, const char *what);
/* Multiplies the gradients of its outputs by the trainer's scale. */
void replica_scale_grads(const struct replica *replica, const tutti_trainer *trainer);
/* The failure of the first count replicas: the first one that does not follow from another's. */
tutti_status replicas_failure(const struct tutti_data_parallel *dp, int count);
/* One turn: call on each replica. Returns when all have ended, with replicas_failure. */
tutti_status replicas_run(struct tutti_data_parallel *dp, tutti_status (*call)(struct replica *));
/* Tells the trainer that all gradients are final. */
tutti_status replica_end_grads(tutti_trainer *trainer);

/* replica_copies.c */

/* UNSUPPORTED, INVALID: the config has what DataParallel does not do. Local. */
tutti_status copies_check(const tutti_data_parallel_config *config);
/* Makes memory, communicators and the trainer of replica 0. */
tutti_status copies_create(struct tutti_data_parallel *dp);
void copies_destroy(struct tutti_data_parallel *dp);
/* OK, unless a communicator of the caller's has failed, or was aborted. */
tutti_status copies_check_comms(const struct tutti_data_parallel *dp);
/* On all replicas at once: copies the parameters of replica 0 to this one. */
tutti_status copies_replicate(struct replica *replica);
/* On all replicas at once: adds up all gradients in replica 0. */
tutti_status copies_reduce(struct replica *replica);
void copies_zero_grads(struct replica *replica);
const void *copies_param(const struct replica *replica, int param);
void *copies_grad(const struct replica *replica, int param);
tutti_status copies_stats(const struct replica *replica, tutti_train_stats *stats);

/* Steps: dp->batch and dp->groups are set and checked. */
tutti_status gathered_step(struct tutti_data_parallel *dp, tutti_data_parallel_info *info);
tutti_status mirrored_step(struct tutti_data_parallel *dp, tutti_data_parallel_info *info);

#endif
