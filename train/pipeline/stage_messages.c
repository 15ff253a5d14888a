/* Messages between stages. Each is the elements and a word: which stage and micro-batch it is for,
 * and whether the step has failed. A word that is not the expected one is our mistake: both ranks
 * follow lists of one schedule. Calls in flight have no deadline of their own, since receives are
 * posted long before their messages can come; a wait has the communicator's. */
#include "train/pipeline/pipeline.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

static const char *const way_names[] = {"activation", "gradient"};

static size_t stage_messages_message_bytes(const struct tutti_pipeline *pipeline)
{
	return pipeline->bytes + sizeof(uint64_t);
}

static tutti_status buffers_create(const struct tutti_pipeline *pipeline,
				   struct stage_buffer **buffers, int count)
{
	size_t bytes =
		(stage_messages_message_bytes(pipeline) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

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
static void buffers_destroy(struct stage_buffer *buffers)
{
	for (struct stage_buffer *b = buffers; b && b->data; b++)
		free(b->data);
	free(buffers);
}

tutti_status inbox_create(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct inbox *inbox = &pipeline->inbox[way];
	int ranks = pipeline->step.shape.ranks, count = pipeline->buffers.activations;

	if (way == WAY_GRADIENTS)
		count = pipeline->buffers.gradients;
	inbox->way = way;
	inbox->peer = (pipeline->rank + (way == WAY_ACTIVATIONS ? ranks - 1 : 1)) % ranks;
	TRY(buffers_create(pipeline, &inbox->buffers, count));
	inbox->free = calloc((size_t)count + 1, sizeof *inbox->free);
	if (!inbox->free)
		return fail_no_memory("the receives of a pipeline");
	for (int i = count - 1; i >= 0; i--)
		inbox->free[inbox->free_count++] = i;
	return TUTTI_OK;
}

tutti_status outbox_create(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct outbox *outbox = &pipeline->outbox[way];
	int ranks = pipeline->step.shape.ranks;

	outbox->way = way;
	outbox->peer = (pipeline->rank + (way == WAY_ACTIVATIONS ? 1 : ranks - 1)) % ranks;
	outbox->buffer_count = pipeline->buffers.sends;
	return buffers_create(pipeline, &outbox->buffers, outbox->buffer_count);
}

void inbox_destroy(struct inbox *inbox)
{
	buffers_destroy(inbox->buffers);
	free(inbox->free);
}

void outbox_destroy(struct outbox *outbox)
{
	buffers_destroy(outbox->buffers);
}

tutti_status inbox_post(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct inbox *inbox = &pipeline->inbox[way];
	const struct stage_plan *plan = pipeline->plan;

	while (inbox->posted < plan->needed[way] && inbox->free_count > 0 &&
	       inbox->posted < inbox->taken + RECEIVES_AHEAD) {
		int buffer = inbox->free[inbox->free_count - 1];
		struct stage_buffer *to = &inbox->buffers[buffer];
		tutti_call call = {.work = &to->work,
				   .tag = (int)way,
				   .timeout_ms = INT_MAX,
				   .label = way_names[way]};
		TRY(tutti_recv(to->data, stage_messages_message_bytes(pipeline), TUTTI_U8,
			       inbox->peer, pipeline->line, &call));
		inbox->free_count--;
		plan->buffer_of[way][plan->needed_by[way][inbox->posted++]] = buffer;
	}
	return TUTTI_OK;
}

static uint64_t stage_messages_word_of(const struct tutti_pipeline *pipeline, int stage,
				       int micro_batch)
{
	uint64_t count = (uint64_t)pipeline->plan->shape.micro_batches;

	return ((uint64_t)stage * count + (uint64_t)micro_batch) << 1;
}

/* Waits for the message that action needs. */
static tutti_status inbox_wait(const struct tutti_pipeline *pipeline, const struct inbox *inbox,
			       struct stage_buffer *buffer, const struct action *action)
{
	tutti_status status = tutti_work_wait(&buffer->work, pipeline->timeout_ms);
	bool is_activation = inbox->way == WAY_ACTIVATIONS;

	if (status != TUTTI_IN_PROGRESS)
		return status;
	return fail(TUTTI_ERR_TIMEOUT,
		    "A pipeline's %s of micro-batch %d did not arrive from rank %d within "
		    "%d ms: is that rank still in the %s of stage %d, or in an earlier "
		    "callback?",
		    way_names[inbox->way], action->micro_batch,
		    tutti_parent_rank(pipeline->line, inbox->peer), pipeline->timeout_ms,
		    is_activation ? "forward" : "backward",
		    action->stage + (is_activation ? -1 : 1));
}

static tutti_status outbox_wait(const struct tutti_pipeline *pipeline, const struct outbox *outbox,
				struct stage_buffer *buffer)
{
	tutti_status status = tutti_work_wait(&buffer->work, pipeline->timeout_ms);

	if (status != TUTTI_IN_PROGRESS)
		return status;
	return fail(TUTTI_ERR_TIMEOUT,
		    "A pipeline's %s to rank %d was not received within %d ms: is that rank "
		    "still in a callback?",
		    way_names[outbox->way], tutti_parent_rank(pipeline->line, outbox->peer),
		    pipeline->timeout_ms);
}

tutti_status inbox_take(struct tutti_pipeline *pipeline, enum stage_way way, int action,
			const void **data)
{
	struct inbox *inbox = &pipeline->inbox[way];
	const struct stage_plan *plan = pipeline->plan;
	const struct action *of = &plan->list.at[action];
	uint64_t word;

	TRY(inbox_post(pipeline, way));
	assert(inbox->taken < inbox->posted && plan->needed_by[way][inbox->taken] == action);
	struct stage_buffer *buffer = &inbox->buffers[plan->buffer_of[way][action]];
	TRY(inbox_wait(pipeline, inbox, buffer, of));
	inbox->taken++;
	memcpy(&word, buffer->data + pipeline->bytes, sizeof word);
	assert((word | 1) == (stage_messages_word_of(pipeline, of->stage, of->micro_batch) | 1));
	if (word & 1)
		pipeline_fail(pipeline);
	*data = buffer->data;
	return TUTTI_OK;
}

void inbox_release(struct tutti_pipeline *pipeline, enum stage_way way, int action)
{
	struct inbox *inbox = &pipeline->inbox[way];
	int buffer = pipeline->plan->buffer_of[way][action];

#ifdef TUTTI_POISON
	memset(inbox->buffers[buffer].data, 0xdb, stage_messages_message_bytes(pipeline));
#endif
	inbox->free[inbox->free_count++] = buffer;
}

tutti_status outbox_room(struct tutti_pipeline *pipeline, enum stage_way way, void **data)
{
	struct outbox *outbox = &pipeline->outbox[way];
	struct stage_buffer *buffer = &outbox->buffers[outbox->sent % outbox->buffer_count];

	TRY(outbox_wait(pipeline, outbox, buffer));
	*data = buffer->data;
	return TUTTI_OK;
}

tutti_status outbox_send(struct tutti_pipeline *pipeline, enum stage_way way,
			 const struct action *action)
{
	struct outbox *outbox = &pipeline->outbox[way];
	struct stage_buffer *buffer = &outbox->buffers[outbox->sent % outbox->buffer_count];
	uint64_t word =
		stage_messages_word_of(pipeline, action->stage + (way == WAY_ACTIVATIONS ? 1 : -1),
				       action->micro_batch) |
		pipeline->has_failed;
	tutti_call call = {.work = &buffer->work,
			   .tag = (int)way,
			   .timeout_ms = INT_MAX,
			   .label = way_names[way]};

	memcpy(buffer->data + pipeline->bytes, &word, sizeof word);
	TRY(tutti_send(buffer->data, stage_messages_message_bytes(pipeline), TUTTI_U8, outbox->peer,
		       pipeline->line, &call));
	outbox->sent++;
	if (outbox->peer != pipeline->rank)
		pipeline->stats.sent_bytes += pipeline->bytes;
	return TUTTI_OK;
}

tutti_status outbox_flush(struct tutti_pipeline *pipeline, enum stage_way way)
{
	struct outbox *outbox = &pipeline->outbox[way];

	for (int i = 0; i < outbox->buffer_count; i++)
		TRY(outbox_wait(pipeline, outbox, &outbox->buffers[i]));
	return TUTTI_OK;
}

void messages_abandon(struct tutti_pipeline *pipeline)
{
	tutti_comm_abort(pipeline->line);
	for (int way = 0; way < WAYS; way++) {
		for (struct stage_buffer *b = pipeline->inbox[way].buffers; b->data; b++)
			tutti_work_wait(&b->work, 0);
		for (struct stage_buffer *b = pipeline->outbox[way].buffers; b->data; b++)
			tutti_work_wait(&b->work, 0);
	}
}
