/* The trainer: one model, trained by this rank of a communicator. What its files share.
 *
 *   trainer.c   create and destroy
 *   config.c    what a config may say
 *   compare.c   is it the same model on every rank?
 *   layout.c    which parameters travel as one; cut.c: and whose part is which
 *   memory.c    where parameters, gradients and state lie; need.c: and what that adds up to
 *   pool.c      where whole units and gradients lie; slots.c, plain_order.c: how many at once
 *   hooks.c     micro-batches, and where gradients become final
 *   gather.c    FSDP: parameters are there from a unit's begin to its end
 *   reduce.c    gradients until they are on their way
 *   flight.c    ... and until they are sums
 *   reserve.c   deterministic modes: room for what micro-batches leave to the end of the step
 *   tree.c      deterministic = 2: the order in which micro-batches are added
 *   step.c      the end of a step: waits, agrees, divides, updates
 *   norm.c      the global norm
 *   optimizer.c the update of this rank's pieces
 *   publish.c   the way of updated values to whoever computes with them
 *   average.c   local SGD
 *   scale.c     what losses are multiplied by
 *   carry.c     what a trainer takes over from an earlier one
 *   traffic.c   the small collectives, and the count of bytes */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "train/model/span_layout.h"
#include "train/state/pieces.h"

enum { TREE_LEVELS = 32, NO_SLOT = -1 };
enum { STATE_MASTER, STATE_M, STATE_V, STATES };

/* A parameter at run time. */
struct tensor {
	int pending;   /* units that still add to the gradient in this micro-batch */
	bool is_ready; /* final in this micro-batch */
	int optimizer; /* the tutti_optimizer_kind that its state belongs to; -1: none */
};

/* A span at run time. Pointers are to its first element, wherever it is. */
struct bucket {
	const struct param_span *span;
	struct element_range part; /* this rank's */
	size_t part_elements;
	int first_piece, piece_count;

	char *data;  /* all values, of param_dtype; NULL: not gathered, or the caller's */
	char *shard; /* is_sharded: this rank's part of them */
	int data_slot;
	tutti_work *asking, *gathering; /* values on their way here; or updated ones on theirs */
	int32_t *events;                /* which unit each rank of the shard group gathers it for */
	bool is_wanted;                 /* gathered ahead for a unit that has not begun */
	bool lingers; /* its unit has ended: free it unless the next one uses it */

	char *grad, *wire; /* all of the gradient, of grad_dtype, and what travels; the same where
			      types are */
	int grad_slot;
	char *sum; /* this rank's part of the reduced gradient, of sum_dtype; NULL: it lies in the
		      gradients */
	tutti_dtype sum_dtype;
	bool has_sum;    /* !keeps_grad: sum has a micro-batch's gradient already */
	int to_come;     /* parameters whose gradient is not final in this micro-batch */
	bool is_started; /* in this micro-batch */
	bool is_flying;
	float *levels[TREE_LEVELS];
};

/* A gradient under way. */
struct flight {
	int bucket;
	int grad_slot, wire_slot;
	char *wire;
	enum { FLIGHT_SHARDS, FLIGHT_REPLICAS, FLIGHT_DONE } stage;
	bool is_last; /* of the step */
	tutti_work *work;
	tutti_status failed; /* not OK: it did not start, or did not end */
};

/* A place for one bucket's values or gradients. */
struct pool_slot {
	char *memory; /* NULL: not made */
	size_t bytes;
	bool is_taken;
	bool is_planned; /* there on all ranks; else this one needed it once */
	bool is_local;   /* ordinary memory; else in the region */
};

struct pool {
	struct pool_slot *slots;
	int count;
	void *region; /* of tutti_mem_alloc: what was planned at create */
};

struct unit_state {
	int uses, finished; /* in this micro-batch: forwards counted, backwards ended */
};

enum step_state {
	STEP_CLOSED, /* no micro-batch has begun */
	STEP_OPEN,   /* only ACCUMULATE so far */
	STEP_LAST,   /* the last micro-batch has begun */
};

enum unit_pass { UNIT_NONE, UNIT_FORWARD, UNIT_BACKWARD };

/* Units in the order in which they began. */
struct unit_events {
	int32_t *list;
	int count, room, next; /* next: of the one to come, as far as known */
};

/* What every rank says to every other at the end of a step. */
struct step_report {
	double items;
	uint64_t order;  /* of its units in this step */
	int32_t missing; /* the first parameter without its hook; -1: none */
	int32_t status;  /* this rank cannot update: tutti_status */
	int32_t batches, is_uneven; /* micro-batches of the step; they had unequal items */
};

struct tutti_trainer {
	struct tutti_model model;
	struct model_layout layout;
	tutti_comm *comm;            /* the caller's: for what is small */
	tutti_comm *gather, *reduce; /* of the shard group; NULL: it has one rank */
	tutti_comm *replicas; /* of the ranks with the same part; NULL: there is one, and a shard
				 group */
	int rank, size, shard_rank, replica_count;
	tutti_train_config config;

	struct tensor *tensors;
	struct unit_state *units;
	struct bucket *buckets;
	struct piece *pieces;
	int piece_count;
	size_t state_count; /* elements that have optimizer state on this rank */
	void *data_memory, *grad_memory, *wire_memory; /* of tutti_mem_alloc */
	struct state_file {
		float *values; /* NULL: not made */
		size_t bytes;
	} files[STATES]; /* with offload_dir: state lies here; else each piece has memory of its own
			  */
	struct pool data_pool, grad_pool;
	size_t transient_bytes; /* in slots now */
	size_t held_bytes;      /* all that memory_limit is of: optimizer state as if of AdamW, and slots; with FSDP of the
				   rank with most */
	size_t planned_bytes;   /* the same without what some ranks need beside the plan, on the rank with most */

	struct flight *flights; /* a ring, in the order in which they began */
	int flight_first, flight_count;
	int flights_done; /* of them, at the front, that are known to be done */
	int next_bucket; /* of those that start in the order of their index */

	enum step_state step;
	bool in_batch, backward_begun, units_ran;
	tutti_pass pass;   /* of the micro-batch, while in_batch */
	int micro_batches; /* of this step, that have ended */
	int kept_levels;   /* deterministic: of the tree that have memory; without one 1: whole gradients have */
	int open_unit;     /* between its begin and end, when open_pass is not NONE */
	enum unit_pass open_pass;
	struct unit_events plan, seen; /* of the last training micro-batch, and of this one */
	uint64_t order;           /* a hash of the step's units so far */
	int32_t *step_events;     /* one a rank of the shard group */
	double items, batch_items; /* here, in this step; in its first micro-batch */
	bool is_uneven;            /* other micro-batches have had other items */
	int missed;                /* local SGD: without its hook since ranks averaged; -1: none */
	int32_t missed_status;     /* ... and why this rank could not update */
	bool needs_average;             /* local SGD: a step was done since ranks averaged: they differ */
	bool owes_update;          /* after tutti_grads_finish, until tutti_params_updated */
	char *offload_dir;         /* config.offload_dir */
	uint64_t steps, updates; /* finished; of them with an update */
	struct scale {
		float factor,
			divisor; /* of the loss; of what 16-bit gradients are kept small with */
		int good_steps;
		bool is_known;
	} scale;
	int skipped_param;

	struct step_report *reports; /* one a rank */
	struct share *shares;   /* of the norm: one a rank of the shard group */
	tutti_train_stats stats;
	struct saving *saving; /* a checkpoint under way; NULL: none */
};

/* INVALID, with a message that begins with function's name, unless trainer and param are good. */
tutti_status trainer_check(const tutti_trainer *trainer, const char *function);
tutti_status trainer_check_param(const tutti_trainer *trainer, const char *function, int param);

/* INVALID or UNSUPPORTED, with a message, unless config is good, and good for this model. */
tutti_status config_check(const tutti_train_config *config);
tutti_status config_check_model(const tutti_train_config *config, const struct tutti_model *model);
tutti_status config_check_world(const tutti_train_config *config, int world_size, int node);

/* Collective: OK when model, buffers and config are the same on all ranks, else MISMATCH on all of
 * them with the same message. */
tutti_status compare_models(tutti_trainer *trainer);

/* The trainer's blocking collectives, in place; they count as time waited for communication.
 * sent_bytes of the stats are what a collective of the fewest bytes sends from this rank: what
 * really went over which wire is in tutti_comm_stats. */
tutti_status trainer_all_reduce(tutti_trainer *trainer, double *values, size_t count, tutti_op op);
tutti_status trainer_all_gather(tutti_trainer *trainer, void *all, size_t bytes_each);
tutti_status trainer_broadcast(tutti_trainer *trainer, void *data, size_t count, tutti_dtype dtype,
			       int root);
/* The same among the ranks of a shard group. */
tutti_status trainer_shard_gather(tutti_trainer *trainer, void *all, size_t bytes_each);
tutti_status trainer_average(tutti_trainer *trainer, float *values, size_t count); /* replicas */
tutti_status trainer_shard_broadcast(tutti_trainer *trainer, float *values, size_t count, int root);
/* A collective on bytes has started: what it sends from one of ranks. */
void trainer_count_reduced(tutti_trainer *trainer, size_t bytes, int ranks, bool is_all);
void trainer_count_gathered(tutti_trainer *trainer, size_t bytes, int ranks);
void trainer_count_averaged(tutti_trainer *trainer, size_t bytes);

/* The trainer's own communicators: of ranks that share a shard group (gather, reduce), and of those
 * with the same part (replicas). */
enum rank_group { IN_SHARD_GROUP, AMONG_REPLICAS };
/* Waits, and counts it as time waited for communication. Ends early when the caller's communicator
 * has failed. */
tutti_status trainer_wait(tutti_trainer *trainer, tutti_work **work, enum rank_group group);
/* What a call on one of them has returned. The message of a failure says which ranks of the job its
 * ranks are, or is that of the caller's communicator, where that has failed. */
tutti_status group_status(const tutti_trainer *trainer, tutti_status status, enum rank_group group);
/* All of them, here: waits end. */
void trainer_abort(const tutti_trainer *trainer);
double seconds_now(void); /* monotonic */

#endif
