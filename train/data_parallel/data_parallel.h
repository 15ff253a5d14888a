/* The replicas of one process, and the functions that the files of data_parallel/ share.
 *
 *   data_parallel_create.c   tutti_data_parallel_create, tutti_mirrored_create, destroy; the threads;
 *                            the memory of DataParallel: parameters and gradients of each replica
 *   data_parallel.c          the other public calls; a step of DataParallel (phases, with the loss
 *                            between them) and of Mirrored (a trainer's step in each thread); calls
 *                            of the program's functions, and what these may call */
#ifndef TRAIN_DATA_PARALLEL_H
#define TRAIN_DATA_PARALLEL_H

#include "train/base/base.h"
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

/* data_parallel.c */

/* One turn: call on each replica. Returns when all have ended, with
 * data_parallel_replicas_failure. */
tutti_status replicas_run(struct tutti_data_parallel *dp, tutti_status (*call)(struct replica *));

/* data_parallel_create.c */

/* A turn's work for one replica. */
typedef void (*replica_task)(void *arg, int replica);
/* One turn: the task for replicas 0 to count - 1 at once, 0 in this thread. Returns when all have
 * returned: what the tasks did is visible then. One turn at a time. There is no deadline, because a
 * task that still runs uses the caller's memory, and a thread cannot be ended from outside: the
 * task's own waits have deadlines. Allocates nothing. */
void replica_threads_run(struct replica_threads *threads, replica_task task, void *arg);

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

#endif
