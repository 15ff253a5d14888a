/* The trainer's own collectives, and the checks that a call makes before it communicates.
 *
 * Blocking collectives are in place, and their time counts as exposed. sent_bytes of the statistics
 * are the least bytes that such a collective can send from this rank; tutti_comm_stats has what was
 * really sent. */
#ifndef TRAIN_TRAINER_COLLECTIVES_H
#define TRAIN_TRAINER_COLLECTIVES_H

#include <tutti/train.h>

#include <stdbool.h>

struct bucket;
struct home;

/* INVALID, with a message that begins with the function's name, unless the trainer is good. DEVICE:
 * its GPU has failed. */
tutti_status trainer_check(const tutti_trainer *trainer, const char *function);
/* *param, an index in the caller's model, becomes that in trainer->model; -1: it is on other ranks
 * of the mesh. INVALID: there is no such parameter. */
tutti_status trainer_find_param(const tutti_trainer *trainer, const char *function, int *param);
/* The same, but INVALID if it is on other ranks. */
tutti_status trainer_need_param(const tutti_trainer *trainer, const char *function, int *param);
/* INVALID while a unit is open. */
tutti_status trainer_check_no_unit(const tutti_trainer *trainer, const char *function);
/* INVALID unless the trainer is between two steps. */
tutti_status trainer_check_closed(const tutti_trainer *trainer, const char *function);
/* INVALID between two averages of local SGD: each rank has values of its own there. */
tutti_status trainer_check_averaged(const tutti_trainer *trainer, const char *function);

/* Among the ranks of comm, of host memory; job_: among all that train the model. */
tutti_status trainer_all_reduce(tutti_trainer *trainer, double *values, size_t count, tutti_op op);
tutti_status trainer_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each);
tutti_status trainer_broadcast(tutti_trainer *trainer, void *data, size_t count, tutti_dtype dtype,
			       int root);
/* error_agree on the ranks of comm. */
tutti_status trainer_agree(tutti_trainer *trainer, tutti_status own);
tutti_status job_all_reduce(tutti_trainer *trainer, double *values, size_t count, tutti_op op);
tutti_status job_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each);
tutti_status job_broadcast(tutti_trainer *trainer, void *data, size_t count, tutti_dtype dtype,
			   int root);
/* The bits of values that one or several ranks have; on the others they are 0. */
tutti_status job_combine(tutti_trainer *trainer, float *values, size_t count);
/* Among the mesh's others. */
tutti_status others_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each);
tutti_status others_broadcast(tutti_trainer *trainer, void *data, size_t bytes, int root);
/* Waits for a call on the mesh's communicators whose start has returned status. */
tutti_status trainer_finish(tutti_trainer *trainer, tutti_status status, tutti_work **work);
/* The number among all ranks of one of comm. */
int job_rank_of(const tutti_trainer *trainer, int rank);
/* error_agree on all ranks. */
tutti_status job_agree(tutti_trainer *trainer, tutti_status own);
/* The trainer's values. */
tutti_status trainer_broadcast_values(tutti_trainer *trainer, struct home *home, void *values,
				      size_t count, tutti_dtype dtype, int root);

/* Among the ranks of a shard group. */
tutti_status trainer_shard_gather(tutti_trainer *trainer, void *all, size_t bytes_each);
/* On a device only a stream has waited for gathers: if one of this home or a later one has failed,
 * so does this call. That of the first home fails in trainer_shard_gather, too. */
tutti_status trainer_meet(tutti_trainer *trainer, int home, uint32_t purpose);
/* Messages within a shard group, of any home: tutti_group_begin, sends and receives on the first
 * home's reduce, then this call, which waits for all. */
tutti_status trainer_messages_end(tutti_trainer *trainer);
/* Among replicas. elements: those of count that are no padding. */
tutti_status trainer_average(tutti_trainer *trainer, struct home *home, float *values, size_t count,
			     size_t elements);

/* Counts a collective on bytes that has started among so many ranks. */
void trainer_count_reduced(tutti_trainer *trainer, size_t bytes, int ranks, bool is_all);
/* What the calls of a shard group are for, where ranks compare it (collectives/api/purpose.h): a
 * unit_event at which values are gathered, or one of these. */
enum { PURPOSE_NONE, PURPOSE_STEP_END = 3 };
/* Starts bucket->gathering: each rank's part of the values into whole. */
tutti_status trainer_gather(tutti_trainer *trainer, struct bucket *bucket, const char *part,
			    char *whole, uint32_t purpose);

/* The ranks of one of the trainer's own communicators: gather and reduce, replicas, or the mesh's.
 */
enum rank_group { IN_SHARD_GROUP, AMONG_REPLICAS, AMONG_PARTS };

/* Waits, and counts the time as exposed. Ends early when the caller's communicator has failed. */
tutti_status trainer_wait(tutti_trainer *trainer, tutti_work **work, enum rank_group group);
/* The same for bucket->gathering. On a device its home's stream waits instead, and a failure comes
 * with the next call on the same communicator, in the same step. */
tutti_status trainer_wait_values(tutti_trainer *trainer, struct bucket *bucket);
/* Returns status, the result of a call on a communicator of the trainer's own. The message of a
 * failure gives the job's numbers of its ranks, or is the message of the caller's communicator if
 * that has failed; if purposes differ, it names the units. */
tutti_status group_status(const tutti_trainer *trainer, tutti_status status, enum rank_group group);
/* The purpose of a bucket's calls, for traces: "unit h.3", or parameters. Returns label's text. */
struct bucket_label {
	char text[56];
};
const char *bucket_label(const tutti_trainer *trainer, const struct bucket *bucket,
			 struct bucket_label *label);
/* Returns status. The message of a failure begins with what was done, and with which unit or
 * parameters: "Gathering unit 'h.3': ". */
tutti_status bucket_status(const tutti_trainer *trainer, const struct bucket *bucket,
			   const char *what, tutti_status status);
/* NULL is none. */
bool comm_is_broken(const tutti_comm *comm);
/* Aborts the trainer's own communicators. Waits on this rank end. */
void trainer_abort(const tutti_trainer *trainer);

#endif
