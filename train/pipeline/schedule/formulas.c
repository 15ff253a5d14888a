/* Costs of the schedules, in closed form. tests/train/pipeline/schedule compares each formula with
 * lists of actions that are executed in virtual time. */
#include "train/pipeline/schedule/schedule.h"

static double formulas_larger(double a, double b)
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
static double unsplit_time(const struct pipeline_shape *shape, double turn)
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
static double zero_bubble_time(const struct pipeline_shape *shape, const struct action_times *times)
{
	int ranks = shape->ranks, count = shape->micro_batches;
	double gap =
		formulas_larger(times->forward, times->forward + times->inputs - times->weights);
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
		return zero_bubble_time(shape, times);
	return unsplit_time(shape, times->forward + times->inputs + times->weights);
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
