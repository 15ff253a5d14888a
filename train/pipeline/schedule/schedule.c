/* Lists of actions. One generator makes all schedules: a rank does some forwards, the warm-up, then
 * a forward and a backward by turns, then the backwards that are left. Zero bubble's gradients of
 * weights follow some backwards behind.
 *
 * Forwards go in groups of as many micro-batches as there are ranks: all of a group through one
 * chunk, then through the next; backwards from the last chunk to the first. Where the number of
 * micro-batches is no multiple, the last group is filled up, and the actions of those that do not
 * exist are left out. That keeps the order, so what ended before still ends.
 *
 * 1F1B: Narayanan et al., PipeDream, 2019; interleaved: Narayanan et al., Megatron-LM, 2021; zero
 * bubble: Qi et al., Zero Bubble Pipeline Parallelism, 2024, its ZB-H1, which here has chunks, too.
 */
#include "train/pipeline/schedule/schedule.h"

#include <stdio.h>
#include <stdlib.h>

/* A message is sent while the next action of its kind computes. */
enum { SENDS = 2 };

const char *schedule_name(tutti_schedule schedule)
{
	switch (schedule) {
	case TUTTI_GPIPE:
		return "gpipe";
	case TUTTI_1F1B:
		return "1f1b";
	case TUTTI_INTERLEAVED:
		return "interleaved";
	case TUTTI_ZERO_BUBBLE:
		return "zero_bubble";
	case TUTTI_SCHEDULE_MAX_:
		break;
	}
	return NULL;
}

static int schedule_groups(const struct pipeline_shape *shape)
{
	return shape->micro_batches / shape->ranks + (shape->micro_batches % shape->ranks != 0);
}

bool schedule_fits(const struct pipeline_shape *shape, char why[SCHEDULE_WHY_BYTES])
{
	const char *name = schedule_name(shape->schedule);

	why[0] = '\0';
	if (!name)
		snprintf(why, SCHEDULE_WHY_BYTES, "there is no schedule %d", (int)shape->schedule);
	else if (shape->ranks < 1 || shape->micro_batches < 1 || shape->chunks < 1)
		snprintf(why, SCHEDULE_WHY_BYTES,
			 "a pipeline has ranks, micro-batches and chunks, one of each at least, "
			 "not %d, %d and %d",
			 shape->ranks, shape->micro_batches, shape->chunks);
	else if (shape->chunks > 1 &&
		 (shape->schedule == TUTTI_GPIPE || shape->schedule == TUTTI_1F1B))
		snprintf(why, SCHEDULE_WHY_BYTES,
			 "%s has one chunk on each rank, not %d: interleaved and zero_bubble take "
			 "several",
			 name, shape->chunks);
	else if ((double)schedule_groups(shape) * shape->ranks * shape->chunks * 3 >
			 SCHEDULE_ACTIONS_MAX ||
		 (double)shape->ranks * shape->chunks > SCHEDULE_ACTIONS_MAX)
		snprintf(why, SCHEDULE_WHY_BYTES,
			 "%d micro-batches of %d chunks on %d ranks are more than %d actions a "
			 "rank",
			 shape->micro_batches, shape->chunks, shape->ranks, SCHEDULE_ACTIONS_MAX);
	return why[0] == '\0';
}

int schedule_stages(const struct pipeline_shape *shape)
{
	return shape->ranks * shape->chunks;
}

static bool schedule_splits_backward(const struct pipeline_shape *shape)
{
	return shape->schedule == TUTTI_ZERO_BUBBLE;
}

/* How many forwards come before the first backward's own. A rank nearer to the first stage gets its
 * gradients later. */
static int schedule_warm_up(const struct pipeline_shape *shape, int rank, int all)
{
	int behind = shape->ranks - 1 - rank, earlier = (shape->chunks - 1) * shape->ranks;
	bool is_doubled = shape->schedule == TUTTI_INTERLEAVED && shape->chunks > 1;
	int count = earlier + behind * (is_doubled ? 2 : 1);

	return shape->schedule == TUTTI_GPIPE || count > all ? all : count;
}

/* The k-th forward or backward of a rank. */
static struct action schedule_action_at(const struct pipeline_shape *shape, int rank,
					enum action_kind kind, int k)
{
	int in_group = shape->ranks * shape->chunks;
	int chunk = k % in_group / shape->ranks;

	if (kind != ACTION_FORWARD && kind != ACTION_EVALUATE)
		chunk = shape->chunks - 1 - chunk;
	return (struct action){kind, chunk * shape->ranks + rank,
			       k / in_group * shape->ranks + k % shape->ranks};
}

static void schedule_append(struct action_list *list, const struct pipeline_shape *shape, int rank,
			    enum action_kind kind, int k)
{
	struct action action = schedule_action_at(shape, rank, kind, k);

	if (action.micro_batch < shape->micro_batches)
		list->at[list->count++] = action;
}

struct action_list schedule_list(const struct pipeline_shape *shape, int rank)
{
	int all = schedule_groups(shape) * shape->ranks * shape->chunks;
	int warm = schedule_warm_up(shape, rank, all);
	bool splits = schedule_splits_backward(shape);
	enum action_kind backward = splits ? ACTION_BACKWARD_INPUTS : ACTION_BACKWARD;
	struct action_list list = {malloc((size_t)all * 3 * sizeof *list.at), 0};

	if (!list.at)
		return list;
	for (int k = 0; k < warm; k++)
		schedule_append(&list, shape, rank, ACTION_FORWARD, k);
	for (int k = 0; k < all; k++) {
		if (warm + k < all)
			schedule_append(&list, shape, rank, ACTION_FORWARD, warm + k);
		schedule_append(&list, shape, rank, backward, k);
		/* Weights wait `rank` backwards: gradients come to this rank so much earlier than
		 * to the first, and the weights fill its gap at the end instead. */
		if (splits && k >= rank)
			schedule_append(&list, shape, rank, ACTION_BACKWARD_WEIGHTS, k - rank);
	}
	for (int k = all > rank ? all - rank : 0; splits && k < all; k++)
		schedule_append(&list, shape, rank, ACTION_BACKWARD_WEIGHTS, k);
	return list;
}

struct action_list schedule_evaluation(const struct pipeline_shape *shape, int rank)
{
	int all = schedule_groups(shape) * shape->ranks * shape->chunks;
	struct action_list list = {malloc((size_t)all * sizeof *list.at), 0};

	for (int k = 0; list.at && k < all; k++)
		schedule_append(&list, shape, rank, ACTION_EVALUATE, k);
	return list;
}

bool action_receives(const struct pipeline_shape *shape, const struct action *action)
{
	if (action_is_forward(action))
		return action->stage > 0;
	return action_is_backward(action) && action->stage < schedule_stages(shape) - 1;
}

bool action_sends(const struct pipeline_shape *shape, const struct action *action)
{
	if (action_is_forward(action))
		return action->stage < schedule_stages(shape) - 1;
	return action_is_backward(action) && action->stage > 0;
}

bool action_releases(const struct pipeline_shape *shape, const struct action *action)
{
	return action->kind == ACTION_EVALUATE ||
	       action->kind == (schedule_splits_backward(shape) ? ACTION_BACKWARD_WEIGHTS
								: ACTION_BACKWARD);
}

struct schedule_buffers schedule_buffers_of(const struct pipeline_shape *shape,
					    const struct action_list *list, int rank)
{
	struct schedule_buffers buffers = {0, 0, SENDS};
	int activations = 0, gradients = 0, last = schedule_stages(shape) - 1;
	int all_activations = 0, all_gradients = 0;

	for (int i = 0; i < list->count; i++) {
		const struct action *action = &list->at[i];

		if (action_receives(shape, action))
			*(action->kind == ACTION_FORWARD ? &activations : &gradients) += 1;
		if (buffers.activations < activations)
			buffers.activations = activations;
		if (buffers.gradients < gradients)
			buffers.gradients = gradients;
		if (action_releases(shape, action)) {
			activations -= action->stage > 0;
			gradients -= action->stage < last;
			all_activations += action->stage > 0;
			all_gradients += action->stage < last;
		}
	}
	buffers.activations += buffers.activations > 0;
	buffers.gradients += buffers.gradients > 0;
	/* From the third chunk on the first rank's gradients come to the last one up to half a
	 * round of micro-batches before they are used; without room the first rank would wait. */
	if (schedule_splits_backward(shape) && shape->chunks > 2 && rank == shape->ranks - 1)
		buffers.gradients += shape->ranks * 3 / 5;
	if (buffers.activations > all_activations)
		buffers.activations = all_activations;
	if (buffers.gradients > all_gradients)
		buffers.gradients = all_gradients;
	return buffers;
}

/* ---- costs ---- */

/* Costs of the schedules, in closed form. tests/train/pipeline/schedule compares each formula with
 * lists of actions that are executed in virtual time. */

static double schedule_larger(double a, double b)
{
	return a > b ? a : b;
}

double schedule_busy_time(const struct pipeline_shape *shape, const struct action_times *times)
{
	return (double)shape->micro_batches * shape->chunks *
	       (times->forward + times->inputs + times->weights);
}

/* The first forward comes to the last rank after P - 1 others, and the last backward goes back as
 * far, through one chunk of V only. If the micro-batches are fewer than the ranks, those of each
 * further chunk come that much later. */
static double schedule_unsplit_time(const struct pipeline_shape *shape, double turn)
{
	int ranks = shape->ranks, count = shape->micro_batches;

	if (shape->chunks == 1)
		return (count + ranks - 1) * turn;
	if (count < ranks)
		return ((double)shape->chunks * ranks + count - 1) * turn;
	return count % ranks ? -1 : ((double)shape->chunks * count + ranks - 1) * turn;
}

/* The first forward comes as late as ever, but weights fill the gap at the end, unless one of them
 * takes less than a backward. No schedule of one step is shorter than (P - 1) forwards and its
 * work, since the last rank has nothing to do before. With fewer micro-batches than ranks there
 * are too few weights. Where a forward takes less than either part of a backward, forwards wait for
 * both in turns. */
static double schedule_zero_bubble_time(const struct pipeline_shape *shape,
					const struct action_times *times)
{
	int ranks = shape->ranks, count = shape->micro_batches;
	double gap =
		schedule_larger(times->forward, times->forward + times->inputs - times->weights);
	double idle = (ranks - 1) * gap;
	double part = times->inputs < times->weights ? times->inputs : times->weights;

	if ((count % ranks && shape->chunks > 1) || (times->forward < part && ranks > 1))
		return -1;
	if (count < ranks)
		idle += (ranks - count) * part;
	return schedule_busy_time(shape, times) + idle;
}

double schedule_step_time(const struct pipeline_shape *shape, const struct action_times *times)
{
	if (shape->schedule == TUTTI_ZERO_BUBBLE)
		return schedule_zero_bubble_time(shape, times);
	return schedule_unsplit_time(shape, times->forward + times->inputs + times->weights);
}

int schedule_peak(const struct pipeline_shape *shape, int rank)
{
	int ranks = shape->ranks, chunks = shape->chunks, count = shape->micro_batches;
	int held = chunks * (count < ranks ? count : ranks); /* of zero bubble */

	if (shape->schedule == TUTTI_GPIPE)
		held = count;
	else if (shape->schedule == TUTTI_1F1B ||
		 (shape->schedule == TUTTI_INTERLEAVED && chunks == 1))
		held = ranks - rank;
	else if (shape->schedule == TUTTI_INTERLEAVED)
		held = 2 * (ranks - 1 - rank) + (chunks - 1) * ranks + 1;
	return held < count * chunks ? held : count * chunks;
}

int64_t schedule_messages(const struct pipeline_shape *shape, int rank)
{
	int64_t directions = 2 * (int64_t)shape->chunks;

	if (shape->ranks == 1)
		return 0;
	/* The first stage sends no gradients, and the last no activations. */
	return shape->micro_batches * (directions - (rank == 0) - (rank == shape->ranks - 1));
}
