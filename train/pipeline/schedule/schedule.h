/* The order in which the ranks of a pipeline do their work: lists of actions and formulas about
 * them. Plain arithmetic without communication or a clock; tutti-plan prints, draws and times it.
 *
 * Stage c * ranks + r is chunk c of rank r. An activation goes from a stage to the next one when
 * its forward has ended, a gradient to the one before when its backward has. On each rank the
 * forwards of all schedules have one order, and so have the backwards; a schedule says how the two
 * are mixed. So two neighbours send and receive in the same order. */
#ifndef TRAIN_PIPELINE_SCHEDULE_SCHEDULE_H
#define TRAIN_PIPELINE_SCHEDULE_SCHEDULE_H

#include <tutti/parallel.h>

#include <stdbool.h>

/* BACKWARD makes the gradients of inputs and weights; ZERO_BUBBLE has the other two in its place.
 * EVALUATE is a forward without a backward: nothing is kept. */
enum action_kind {
	ACTION_FORWARD,
	ACTION_BACKWARD,
	ACTION_BACKWARD_INPUTS,
	ACTION_BACKWARD_WEIGHTS,
	ACTION_EVALUATE,
	ACTION_KINDS,
};

struct action {
	enum action_kind kind;
	int stage, micro_batch;
};

struct action_list {
	struct action *at;
	int count;
};

struct pipeline_shape {
	tutti_schedule schedule;
	int ranks, micro_batches, chunks;
};

/* schedule.c */
enum { SCHEDULE_WHY_BYTES = 256, SCHEDULE_ACTIONS_MAX = 1 << 22 };
/* "gpipe", "1f1b", "interleaved", "zero_bubble"; NULL: there is no such schedule. */
const char *schedule_name(tutti_schedule schedule);
/* False with the reason, which has no full stop. All other functions need a shape that fits. */
bool schedule_fits(const struct pipeline_shape *shape, char why[SCHEDULE_WHY_BYTES]);
/* The actions of one rank in order. The caller frees at; NULL: there is no memory. */
struct action_list schedule_list(const struct pipeline_shape *shape, int rank);
/* Of an evaluation: the forwards of schedule_list, in its order, as EVALUATE. */
struct action_list schedule_evaluation(const struct pipeline_shape *shape, int rank);
int schedule_stages(const struct pipeline_shape *shape);

/* Messages between stages by an action: whether it waits for a message of the stage before (a
 * forward) or behind (a backward), and whether it sends one on. */
bool action_receives(const struct pipeline_shape *shape, const struct action *action);
bool action_sends(const struct pipeline_shape *shape, const struct action *action);
/* The activation of its micro-batch and stage is not needed any more: nor is the gradient that the
 * backward received. */
bool action_releases(const struct pipeline_shape *shape, const struct action *action);
static inline bool action_is_forward(const struct action *action)
{
	return action->kind == ACTION_FORWARD || action->kind == ACTION_EVALUATE;
}
static inline bool action_is_backward(const struct action *action)
{
	return action->kind == ACTION_BACKWARD || action->kind == ACTION_BACKWARD_INPUTS;
}

/* Which receives may be posted ahead, so that buffers are bounded. Receives of activations have
 * `activations` buffers, taken in the order of the list's forwards: the first ones are posted at
 * the start, each further one when action_releases gives a buffer back. Likewise gradients, in the
 * order of backwards. A message that is sent stays in one of `sends` buffers, for each direction,
 * until it has been received; the action that would need one more waits for the oldest. With these
 * numbers no step takes longer than with buffers without end (tests/train/pipeline/schedule). Nor does an
 * evaluation, with the buffers of any step. */
struct schedule_buffers {
	int activations, gradients; /* more than are in use at a time; 0: none come */
	int sends;
};
struct schedule_buffers schedule_buffers_of(const struct pipeline_shape *shape,
					    const struct action_list *list, int rank);

/* Costs of whole steps. Times are those of one action: of a stage, so a rank of V
 * chunks takes V times as long for a micro-batch. */
struct action_times {
	double forward, inputs, weights; /* BACKWARD takes inputs + weights */
	double transfer;                 /* of a message to another rank, beside everything else */
};
/* The time of a step without transfers; negative: there is no formula (interleaved, and zero_bubble
 * with several chunks, if micro_batches is no multiple of ranks; zero_bubble if a forward takes
 * less than both parts of a backward). virtual_step.h has it then. */
double schedule_step_time(const struct pipeline_shape *shape, const struct action_times *times);
/* The time that each rank works in a step. The bubble is the rest, as a share of the step. */
double schedule_busy_time(const struct pipeline_shape *shape, const struct action_times *times);
/* Activations that the rank holds at a time, of a stage and a micro-batch each. Interleaved holds
 * fewer if micro_batches is no multiple of ranks. */
int schedule_peak(const struct pipeline_shape *shape, int rank);
/* Messages that the rank sends to other ranks in a step; each has as many elements as pass between
 * stages. */
int64_t schedule_messages(const struct pipeline_shape *shape, int rank);

#endif
