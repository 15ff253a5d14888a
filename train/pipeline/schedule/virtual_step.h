/* One step of a pipeline in virtual time: the lists of all ranks are executed without data. Says
 * how long a step takes, who is idle, how much is held, and whether the step ends at all. */
#ifndef TRAIN_PIPELINE_SCHEDULE_VIRTUAL_STEP_H
#define TRAIN_PIPELINE_SCHEDULE_VIRTUAL_STEP_H

#include "train/pipeline/schedule/schedule.h"

struct virtual_rank {
	int done;          /* actions; fewer than there are: the rank waits for ever */
	int peak;          /* activations held at a time */
	double busy, ends; /* from the start of the step */
};

struct virtual_step {
	bool has_memory; /* else nothing below counts */
	bool ends;
	double time, bubble; /* bubble: the share of all ranks' time that none of them works */
};

/* When each action starts and ends; one for each action of the rank. May be NULL. */
struct virtual_span {
	double start, end;
};

/* lists and buffers have one for each rank; buffers NULL: without end. seed decides which rank goes
 * on next of those that can. Ranks wait for named messages and buffers only, so it changes neither
 * the times nor whether the step ends; the tests try that. ranks has room for each rank; spans is
 * NULL, or an array for each rank. */
struct virtual_step virtual_step_run(const struct pipeline_shape *shape,
				     const struct action_list *lists,
				     const struct schedule_buffers *buffers,
				     const struct action_times *times, uint64_t seed,
				     struct virtual_rank *ranks, struct virtual_span *const *spans);

#endif
