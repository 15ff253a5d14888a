/* The door of state/: the state of a trainer on this rank, with the headers of its parts. The
 * functions that work on it are in the rooms above (train/trainer.h lists them); no other file of
 * train/ defines a part of it. */
#ifndef TRAIN_TRAINER_STATE_H
#define TRAIN_TRAINER_STATE_H

#include "train/base/base.h"
#include "train/precision/precision.h"
#include "train/state/homes.h"
#include "train/state/pieces.h"
#include "train/state/shadow.h"
#include "train/state/trainer_memory.h"
#include "train/state/trainer_collectives.h"

enum { TREE_LEVELS = 32 };

/* A parameter at run time. */
struct tensor {
	int pending;   /* units that still add to the gradient in this micro-batch */
	int pushed;    /* deterministic = 2: micro-batches in the sum tree */
	bool is_ready; /* the gradient is final in this micro-batch */
	int optimizer; /* the tutti_optimizer_kind that its state belongs to; -1: it has no state */
};

/* A bucket: a span of parameters at run time. Pointers are to the span's first element. */
struct bucket {
	const struct param_span *span;
	struct home *home;
	struct element_range part; /* this rank's */
	size_t part_elements;
	int first_piece, piece_count;

	char *data;  /* all values, of param_dtype; NULL: not gathered, or the caller's */
	char *shard; /* if sharded: this rank's part of the values */
	char *copy;  /* a slot in which the caller's values are on their way, or NULL */
	tutti_work *gathering; /* in flight: (updated) values */
	bool is_gathered_ahead;                 /* for a unit that has not begun */
	bool lingers;                   /* its unit has ended: freed unless the next one uses it */

	char *grad;  /* the whole gradient, of grad_dtype */
	char *wire;  /* the gradient as it is sent, of reduce_dtype; or grad if that is its type */
	char *sum;   /* this rank's part of the reduced gradient; NULL: local SGD uses grad */
	tutti_dtype sum_dtype;
	bool has_sum;    /* !keeps_grad: sum has the gradient of an earlier micro-batch */
	int params_left;     /* parameters whose gradient is not final in this micro-batch */
	bool is_started; /* in this micro-batch */
	bool is_in_flight;
	float *levels[TREE_LEVELS]; /* deterministic = 2: partial sums */
};

/* A gradient in flight. */
struct flight {
	int bucket;
	char *grad, *copy; /* its slots, or NULL: the gradient, and a copy in the type to send */
	char *wire;        /* what is sent */
	enum { FLIGHT_SHARDS, FLIGHT_REPLICAS, FLIGHT_DONE } stage;
	bool is_last; /* the step's last micro-batch */
	tutti_work *work;
	tutti_status failed; /* why it did not start or end, or OK */
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

/* Units in the order in which they began, as the numbers of unit_event. */
struct unit_events {
	uint32_t *list;
	int count, room;
	int next; /* of a plan: the expected next event */
};

/* A rank's report to all others at the end of a step. */
struct step_report {
	double items;
	uint64_t order;     /* a hash of the order of its units in this step */
	int32_t missing;    /* the first parameter without its hook, or -1 */
	int32_t status;     /* why this rank cannot update: a tutti_status */
	int32_t batches;    /* micro-batches of the step */
	int8_t is_uneven;   /* they had unequal items */
	int8_t is_given_up; /* status is that of the program's forward, loss or backward */
	uint8_t use;        /* if missing: index of the unit that lacks the hook among the units of
			     * this rank that use the parameter */
	uint8_t hook;       /* if missing: an enum missing_hook */
};

enum missing_hook {
	MISSING_FORWARD,  /* no unit of the parameter has begun a forward */
	MISSING_BACKWARD, /* the unit has not ended as many backwards */
	MISSING_RELEASE,  /* gradients are held until the end of the step */
};

/* The values' memory of this rank, and how much of it there is. */
struct trainer_memory {
	bool is_mapped;         /* tutti_mem_alloc may give memory of the homes' GPUs: all ranks
				 * have named one to the caller's communicator */
	size_t transient_bytes; /* in slots now */
	size_t held_bytes;      /* what memory_limit limits: optimizer state as of AdamW, and slots,
				 * with FSDP those of the rank with most */
	size_t planned_bytes;   /* held_bytes of the rank with most, with planned slots only */
};

/* The gradients that are on their way, in the order in which they set out. */
struct flights {
	struct flight *ring; /* oldest first */
	int first, count;
	int done;        /* the oldest ones that are known to be done */
	int next_bucket; /* of the buckets that start in the order of their index */
};

/* The micro-batch that is computed now. */
struct micro_batch {
	bool is_open, backward_begun, units_ran;
	bool is_held;  /* no backward is a unit's last one */
	bool adds_up;  /* deterministic = 2: while they are held, each is one to the sum tree */
	bool is_part;  /* of such a one */
	bool was_held; /* in this micro-batch */
	/* Of a pipeline: the name of the callback that ends the last backward of a stage's units,
	 * and the number of its micro-batches. NULL: no pipeline has run in this micro-batch. */
	const char *last_callback;
	int pipelined;
	tutti_pass pass; /* while is_open */
	int open_unit;   /* the unit between its begin and end, if open_pass is not UNIT_NONE */
	enum unit_pass open_pass;
};

/* The step that the micro-batches add up to. */
struct step_progress {
	enum step_state state;
	int micro_batches;         /* that have ended */
	int kept_levels;           /* deterministic = 2: levels of the sum tree; = 1: 1 if gradients
				    * are kept */
	uint64_t order;            /* a hash of the step's units so far */
	int32_t *met;              /* for trainer_meet: one a rank of the shard group */
	double items, batch_items; /* on this rank, of the step and of its first micro-batch */
	bool is_uneven;            /* micro-batches had unequal items */
	bool is_given_up;          /* step_give_up ends it */
	struct step_report *reports; /* one a rank */
	/* Gradients and report are complete: if another rank has finished this step, this one can
	 * do so from what it has, and that rank's numbers. */
	bool may_finish;
};

/* The last finished step, as all ranks know it. */
struct last_step {
	tutti_optimizer *groups;
	int32_t group_count, group_room; /* 0: there was no update */
	float factor;                    /* the gradient is factor times its sum */
	bool is_callers;                 /* the update is the caller's own */
};

/* Local SGD: what has happened since the last average. */
struct local_steps {
	int missed;                  /* a parameter without hook, or -1 */
	struct kept_error failed; /* why this rank could not update */
	bool needs_average;          /* a step was done */
};

struct tutti_trainer {
	/* Set when the trainer is made. */
	struct tutti_model model;
	struct model_layout layout;
	tutti_train_config config;
	char *offload_dir;           /* config.offload_dir */
	/* The caller's communicators, for small collectives: of the ranks that the strategy divides
	 * and reduces over, and of all that train the model. Without a mesh they are one. */
	tutti_comm *comm;
	struct job_ranks {
		tutti_comm *comm;
		int rank, size;
	} job;
	struct trainer_mesh *mesh;   /* NULL: there is none */
	struct home *homes;          /* the first one's communicators have small collectives, too */
	int home_count;
	int rank, size, shard_rank, replica_count; /* rank, size: in comm */

	/* Where its values lie. */
	struct tensor *tensors;
	struct unit_state *units;
	struct bucket *buckets;
	struct piece *pieces;
	int piece_count;
	struct trainer_memory memory;
	struct shadow shadow;

	/* The operations under way. */
	struct flights flights;
	struct micro_batch batch;
	struct step_progress step;
	struct unit_events plan, seen; /* of the last training micro-batch, and of this one */

	/* Between steps. */
	struct local_steps local;
	bool owes_update;        /* after tutti_grads_finish, until tutti_params_updated */
	uint64_t steps, updates; /* finished steps; those with an update */
	struct last_step last;
	struct loss_scale scale;
	int skipped_param;
	struct share *shares;  /* of the norm: one a rank of the shard group */
	struct share *other_shares; /* and of the mesh's others */
	tutti_train_stats stats;
	struct saving *saving; /* the checkpoint that is being saved, or NULL */
	char *checkpoint_dir;  /* of the last save or load, or NULL */
};

/* Local SGD: each rank steps alone. */
static inline bool trainer_is_local(const tutti_trainer *trainer)
{
	return trainer->config.strategy == TUTTI_LOCAL_SGD;
}

/* Optimizer state of a trainer on a device is in host memory, or in files. */
static inline bool trainer_offloads(const tutti_trainer *trainer)
{
	const tutti_train_config *c = &trainer->config;

	return c->on_device && (c->offload_optimizer || c->offload_dir);
}

/* The home whose files have the piece's optimizer state: the piece's own for state on a GPU, else
 * the first. */
static inline struct home *state_home(const tutti_trainer *trainer, const struct piece *piece)
{
	bool is_there = trainer->config.on_device && !trainer_offloads(trainer);

	return is_there ? piece->home : &trainer->homes[0];
}

static inline struct bucket *bucket_of(const tutti_trainer *trainer, int param)
{
	return &trainer->buckets[trainer->layout.places[param].span];
}

/* This rank's part of a whole bucket. An empty one has the whole's address: behind the whole may be
 * memory of another kind. */
static inline char *part_in(const struct bucket *bucket, char *whole, size_t width)
{
	bool is_empty = bucket->part.first == bucket->part.last;

	return is_empty ? whole : whole + bucket->part.first * width;
}

/* The begin of a unit. */
static inline uint32_t unit_event(int unit, enum unit_pass pass)
{
	return (uint32_t)unit * 4 + (uint32_t)pass;
}

/* "forward" or "backward". */
const char *pass_name(enum unit_pass pass);

#endif
