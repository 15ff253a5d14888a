/* A rank's list of actions, and which of them need messages. */
#include "train/pipeline/pipeline.h"

#include <stdlib.h>
#include <string.h>

static tutti_status stage_plan_allocate(struct stage_plan *plan)
{
	size_t tasks = (size_t)plan->shape.chunks * (size_t)plan->shape.micro_batches;
	size_t actions = (size_t)plan->list.count;
	bool has_memory;

	plan->forward_of = calloc(tasks, sizeof *plan->forward_of);
	plan->backward_of = calloc(tasks, sizeof *plan->backward_of);
	plan->last_of = calloc((size_t)plan->shape.chunks, sizeof *plan->last_of);
	has_memory = plan->forward_of && plan->backward_of && plan->last_of;
	for (int way = 0; way < WAYS; way++) {
		plan->needed_by[way] = calloc(actions, sizeof *plan->needed_by[way]);
		plan->buffer_of[way] = calloc(actions, sizeof *plan->buffer_of[way]);
		has_memory = has_memory && plan->needed_by[way] && plan->buffer_of[way];
	}
	return has_memory ? TUTTI_OK : fail_no_memory("the tasks of a pipeline");
}

static void index_action(struct stage_plan *plan, int i)
{
	const struct action *a = &plan->list.at[i];
	int chunk = a->stage / plan->shape.ranks;
	int task = chunk * plan->shape.micro_batches + a->micro_batch;
	enum stage_way way = way_of(a);

	if (action_is_forward(a))
		plan->forward_of[task] = i;
	else
		plan->last_of[chunk] = i;
	if (action_is_backward(a))
		plan->backward_of[task] = i;
	if (action_receives(&plan->shape, a))
		plan->needed_by[way][plan->needed[way]++] = i;
}

tutti_status stage_plan_make(struct stage_plan *plan, const struct pipeline_shape *shape,
			     struct action_list list)
{
	*plan = (struct stage_plan){.shape = *shape, .list = list};
	if (!plan->list.at)
		return fail_no_memory("the schedule of a pipeline");
	TRY(stage_plan_allocate(plan));
	for (int i = 0; i < plan->list.count; i++)
		index_action(plan, i);
	return TUTTI_OK;
}

void stage_plan_finish(struct stage_plan *plan)
{
	free(plan->list.at);
	free(plan->forward_of);
	free(plan->backward_of);
	free(plan->last_of);
	for (int way = 0; way < WAYS; way++) {
		free(plan->needed_by[way]);
		free(plan->buffer_of[way]);
	}
	*plan = (struct stage_plan){.list = {NULL, 0}};
}
