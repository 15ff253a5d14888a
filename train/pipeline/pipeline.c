/* tutti_pipeline_create: checks, the plan of a rank's actions, and all buffers. */
#include "train/pipeline/pipeline.h"

#include "core/callback.h"
#include "train/mesh/mesh.h"
#include "train/pipeline/schedule/virtual_step.h"
#include "train/state/trainer_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- plans: a rank's list of actions, and which of them need messages ---- */

static tutti_status pipeline_stage_plan_allocate(struct stage_plan *plan)
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

static void pipeline_index_action(struct stage_plan *plan, int i)
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
	TRY(pipeline_stage_plan_allocate(plan));
	for (int i = 0; i < plan->list.count; i++)
		pipeline_index_action(plan, i);
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

/* ---- buffers of messages ---- */

enum { ALIGNMENT = 64 };

static tutti_status pipeline_buffers_create(const struct tutti_pipeline *pipeline,
					    struct stage_buffer **buffers, int count)
{
	size_t bytes = whole_lines(message_bytes(pipeline));

	*buffers = calloc((size_t)count + 1, sizeof **buffers);
	for (int i = 0; *buffers && i < count; i++) {
		(*buffers)[i].data = aligned_alloc(ALIGNMENT, bytes);
		if (!(*buffers)[i].data)
			return fail_no_memory("%d buffers of %zu bytes of a pipeline", count,
					      bytes);
		memset((*buffers)[i].data, 0, bytes);
	}
	return *buffers ? TUTTI_OK : fail_no_memory("the buffers of a pipeline");
}

/* The list of buffers ends with one that has no data. */
static void pipeline_buffers_destroy(struct stage_buffer *buffers)
{
	for (struct stage_buffer *b = buffers; b && b->data; b++)
		free(b->data);
	free(buffers);
}

static tutti_status pipeline_inbox_create(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct inbox *inbox = &pipeline->inbox[way];
	int ranks = pipeline->step.shape.ranks, count = pipeline->buffers.activations;

	if (way == WAY_GRADIENTS)
		count = pipeline->buffers.gradients;
	inbox->way = way;
	inbox->peer = (pipeline->rank + (way == WAY_ACTIVATIONS ? ranks - 1 : 1)) % ranks;
	TRY(pipeline_buffers_create(pipeline, &inbox->buffers, count));
	inbox->free = calloc((size_t)count + 1, sizeof *inbox->free);
	if (!inbox->free)
		return fail_no_memory("the receives of a pipeline");
	for (int i = count - 1; i >= 0; i--)
		inbox->free[inbox->free_count++] = i;
	return TUTTI_OK;
}

static tutti_status pipeline_outbox_create(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct outbox *outbox = &pipeline->outbox[way];
	int ranks = pipeline->step.shape.ranks;

	outbox->way = way;
	outbox->peer = (pipeline->rank + (way == WAY_ACTIVATIONS ? 1 : ranks - 1)) % ranks;
	outbox->buffer_count = pipeline->buffers.sends;
	return pipeline_buffers_create(pipeline, &outbox->buffers, outbox->buffer_count);
}

/* ---- create ---- */

static tutti_status pipeline_check_callbacks(const tutti_pipeline_config *config)
{
	bool splits = config->schedule == TUTTI_ZERO_BUBBLE;

	if (!config->forward || !config->backward)
		return fail_invalid("A pipeline has no %s.",
				    config->forward ? "backward" : "forward");
	if (splits && !config->backward_weights)
		return fail_invalid("A pipeline with TUTTI_ZERO_BUBBLE has no backward_weights.");
	return TUTTI_OK;
}

static tutti_status pipeline_check_trainer(const struct tutti_pipeline *pipeline)
{
	const tutti_trainer *trainer = pipeline->config.trainer;

	if (trainer && (!trainer->mesh || trainer->job.comm != pipeline->whole))
		return fail_invalid("A pipeline has a trainer of another mesh: make both on the "
				    "same one, the trainer by tutti_trainer_create_on.");
	return trainer && trainer->config.on_device
		       ? fail(TUTTI_ERR_UNSUPPORTED,
			      "A pipeline has its buffers in host memory, but its trainer is "
			      "on a GPU.")
		       : TUTTI_OK;
}

static tutti_status pipeline_check(const tutti_pipeline_config *config,
				   const struct pipeline_shape *shape)
{
	const tutti_pipeline_config zero = {0};
	bool is_type = config->dtype >= TUTTI_F32 && config->dtype <= TUTTI_U64;
	char why[SCHEDULE_WHY_BYTES];

	if (memcmp(config->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return fail_invalid(
			"tutti_pipeline_config.reserved is not zero: zero-initialise it.");
	if (!schedule_fits(shape, why))
		return fail_invalid("A pipeline cannot be made: %s.", why);
	if (!is_type)
		return fail_invalid("A pipeline has elements of dtype %d, which is none.",
				    (int)config->dtype);
	if (config->count > (SIZE_MAX / 4) / dtype_bytes(config->dtype))
		return fail_invalid("A pipeline has messages of %zu elements, which are too many.",
				    config->count);
	return pipeline_check_callbacks(config);
}

static void pipeline_write_config(FILE *file, const void *of)
{
	const struct tutti_pipeline *pipeline = of;
	const struct pipeline_shape *shape = &pipeline->step.shape;

	fprintf(file,
		"%s with %d micro-batches, %d chunks, %s trainer and %zu elements of dtype %d\n",
		schedule_name(shape->schedule), shape->micro_batches, shape->chunks,
		pipeline->config.trainer ? "a" : "no", pipeline->config.count,
		(int)pipeline->config.dtype);
}

/* Where there is no formula, the lists of all ranks are executed in virtual time. */
static tutti_status pipeline_expect_bubble(struct tutti_pipeline *pipeline)
{
	const struct pipeline_shape *shape = &pipeline->step.shape;
	const struct action_times times = {1, 1, 1, 0};
	double time = schedule_step_time(shape, &times);
	size_t ranks = (size_t)shape->ranks;

	if (time < 0) {
		struct action_list *lists = calloc(ranks, sizeof *lists);
		struct virtual_rank *all = calloc(ranks, sizeof *all);
		bool has_memory = lists && all;
		for (int r = 0; has_memory && r < shape->ranks; r++)
			has_memory = (lists[r] = schedule_list(shape, r)).at != NULL;
		struct virtual_step step = {0};
		if (has_memory)
			step = virtual_step_run(shape, lists, NULL, &times, 1, all, NULL);
		for (int r = 0; lists && r < shape->ranks; r++)
			free(lists[r].at);
		free(lists);
		free(all);
		if (!step.has_memory)
			return fail_no_memory("the schedule of a pipeline");
		time = step.time;
	}
	pipeline->stats.bubble_expected = 1 - schedule_busy_time(shape, &times) / time;
	return TUTTI_OK;
}

static tutti_status pipeline_allocate(struct tutti_pipeline *pipeline)
{
	struct stage_plan *step = &pipeline->step;
	struct pipeline_shape shape = step->shape;

	TRY(stage_plan_make(step, &shape, schedule_list(&shape, pipeline->rank)));
	pipeline->buffers = schedule_buffers_of(&shape, &step->list, pipeline->rank);
	for (int way = 0; way < WAYS; way++) {
		TRY(pipeline_inbox_create(pipeline, (enum stage_way)way));
		TRY(pipeline_outbox_create(pipeline, (enum stage_way)way));
	}
	return pipeline_expect_bubble(pipeline);
}

/* A communicator of its own, so that tags meet none of the caller's. */
static tutti_status pipeline_join_line(struct tutti_pipeline *pipeline, tutti_mesh *mesh)
{
	tutti_comm *axis = NULL;
	tutti_config config;

	if (pipeline->step.shape.ranks > 1 && !(axis = tutti_mesh_comm(mesh, "pp")))
		return kept_error_return(
			&(struct kept_error){TUTTI_ERR_INTERNAL, "The mesh lost its axis 'pp'."});
	TRY(axis ? tutti_comm_dup(axis, &pipeline->line)
		 : tutti_comm_split(pipeline->whole, tutti_rank(pipeline->whole), 0, NULL,
				    &pipeline->line));
	TRY(tutti_comm_config(pipeline->line, &config));
	pipeline->timeout_ms = config.timeout_ms;
	return TUTTI_OK;
}

static tutti_status pipeline_make(struct tutti_pipeline *pipeline, tutti_mesh *mesh)
{
	TRY(error_agree(pipeline->whole, pipeline_check(&pipeline->config, &pipeline->step.shape)));
	TRY(error_agree(pipeline->whole, pipeline_check_trainer(pipeline)));
	TRY(texts_compare(pipeline->whole, "pipelines", "pass the same config on every rank",
			  pipeline_write_config, pipeline));
	TRY(error_agree(pipeline->whole, pipeline_allocate(pipeline)));
	return error_agree(pipeline->whole, pipeline_join_line(pipeline, mesh));
}

tutti_status tutti_pipeline_create(tutti_pipeline **pipeline, tutti_mesh *mesh,
				   const tutti_pipeline_config *config)
{
	if (!pipeline || !mesh || !config)
		return fail_invalid("tutti_pipeline_create: %s is NULL.", !pipeline ? "pipeline"
									  : !mesh   ? "mesh"
										    : "config");
	struct tutti_pipeline *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("a pipeline");
	made->config = *config;
	made->step.shape =
		(struct pipeline_shape){config->schedule, tutti_mesh_size(mesh, "pp"),
					config->micro_batches, config->chunks ? config->chunks : 1};
	made->whole = mesh_all(mesh);
	made->rank = tutti_mesh_coord(mesh, "pp");
	made->bytes = config->count * dtype_bytes(config->dtype);
	tutti_status status = pipeline_make(made, mesh);
	if (status != TUTTI_OK) {
		struct kept_error failure = kept_error_of(status);
		tutti_pipeline_destroy(made);
		return kept_error_return(&failure);
	}
	*pipeline = made;
	return TUTTI_OK;
}

void tutti_pipeline_destroy(tutti_pipeline *pipeline)
{
	if (!pipeline || callback_refuses("tutti_pipeline_destroy"))
		return;
	if (pipeline->is_running) {
		callback_keep("tutti_pipeline_destroy",
			      "a callback of the pipeline runs, or was left by longjmp");
		return;
	}
	tutti_comm_destroy(pipeline->line);
	for (int way = 0; way < WAYS; way++) {
		pipeline_buffers_destroy(pipeline->inbox[way].buffers);
		free(pipeline->inbox[way].free);
		pipeline_buffers_destroy(pipeline->outbox[way].buffers);
	}
	stage_plan_finish(&pipeline->step);
	stage_plan_finish(&pipeline->evaluation);
	free(pipeline);
}

tutti_status tutti_pipeline_stats_of(const tutti_pipeline *pipeline, tutti_pipeline_stats *stats)
{
	if (!pipeline || !stats)
		return fail_invalid("tutti_pipeline_stats_of: %s is NULL.",
				    pipeline ? "stats" : "pipeline");
	*stats = pipeline->stats;
	return TUTTI_OK;
}
