/* Executes lists of actions in virtual time. An action begins when the one before has ended, its
 * message is there, and a buffer for what it sends is free. A message moves once it is sent and its
 * receive is posted. */
#include "train/pipeline/schedule/virtual_step.h"

#include <stdlib.h>
#include <string.h>

enum direction { ACTIVATIONS, GRADIENTS, DIRECTIONS };

#define NEVER (-1.0)

/* A micro-batch of a stage. */
struct task {
	bool did[ACTION_KINDS];
	double sent[DIRECTIONS];   /* when the message for this task was sent, or NEVER */
	double posted[DIRECTIONS]; /* and its receive posted */
};

/* The receives of a rank in one direction: actions of its list. The sends likewise, as the tasks
 * that get the messages. */
struct channel {
	int *receives, receive_count, next; /* next: the first one that is not posted */
	int *sends, send_count;             /* so far */
};

struct virtual_world {
	const struct pipeline_shape *shape;
	const struct action_list *lists;
	const struct schedule_buffers *buffers;
	const struct action_times *times;
	struct virtual_rank *ranks;
	struct virtual_span *const *spans;
	struct task *tasks;       /* [stage][micro-batch] */
	struct channel *channels; /* [rank][direction] */
};

static struct task *virtual_step_task_of(const struct virtual_world *world, int stage,
					 int micro_batch)
{
	return &world->tasks[(size_t)stage * (size_t)world->shape->micro_batches +
			     (size_t)micro_batch];
}

static enum direction virtual_step_direction_of(const struct action *action)
{
	return action_is_forward(action) ? ACTIVATIONS : GRADIENTS;
}

static struct channel *virtual_step_channel_of(const struct virtual_world *world, int rank,
					       enum direction way)
{
	return &world->channels[rank * DIRECTIONS + (int)way];
}

static void virtual_step_post_next(struct virtual_world *world, int rank, enum direction way,
				   double now)
{
	struct channel *channel = virtual_step_channel_of(world, rank, way);

	if (channel->next == channel->receive_count)
		return;
	const struct action *action = &world->lists[rank].at[channel->receives[channel->next++]];
	virtual_step_task_of(world, action->stage, action->micro_batch)->posted[way] = now;
}

/* When the message for a task is there; NEVER: nobody knows yet. */
static double virtual_step_arrival(const struct virtual_world *world, const struct task *task,
				   enum direction way)
{
	double sent = task->sent[way], posted = task->posted[way];

	if (sent < 0 || posted < 0)
		return NEVER;
	sent = sent > posted ? sent : posted;
	return world->shape->ranks > 1 ? sent + world->times->transfer : sent;
}

/* Whether this rank has done what the action builds on. */
static bool virtual_step_is_prepared(const struct virtual_world *world, const struct action *action)
{
	const struct task *task = virtual_step_task_of(world, action->stage, action->micro_batch);

	if (action_is_forward(action))
		return true;
	return task->did[action->kind == ACTION_BACKWARD_WEIGHTS ? ACTION_BACKWARD_INPUTS
								 : ACTION_FORWARD];
}

/* When the oldest message has left the buffer that this action sends from. */
static double virtual_step_room_at(const struct virtual_world *world, int rank,
				   const struct action *action)
{
	enum direction way = virtual_step_direction_of(action);
	const struct channel *channel = virtual_step_channel_of(world, rank, way);
	int oldest = world->buffers ? channel->send_count - world->buffers[rank].sends : -1;

	if (oldest < 0 || !action_sends(world->shape, action))
		return 0;
	return virtual_step_arrival(world, &world->tasks[channel->sends[oldest]], way);
}

static double virtual_step_duration(const struct virtual_world *world, const struct action *action)
{
	const struct action_times *times = world->times;

	switch (action->kind) {
	case ACTION_FORWARD:
	case ACTION_EVALUATE:
		return times->forward;
	case ACTION_BACKWARD:
		return times->inputs + times->weights;
	case ACTION_BACKWARD_INPUTS:
		return times->inputs;
	case ACTION_BACKWARD_WEIGHTS:
	case ACTION_KINDS:
		break;
	}
	return times->weights;
}

static void virtual_step_send(struct virtual_world *world, int rank, const struct action *action,
			      double now)
{
	enum direction way = virtual_step_direction_of(action);
	struct channel *channel = virtual_step_channel_of(world, rank, way);
	int stage = action->stage + (way == ACTIVATIONS ? 1 : -1);
	struct task *task = virtual_step_task_of(world, stage, action->micro_batch);

	task->sent[way] = now;
	channel->sends[channel->send_count++] = (int)(task - world->tasks);
}

static void virtual_step_finish(struct virtual_world *world, int rank, const struct action *action,
				double end)
{
	virtual_step_task_of(world, action->stage, action->micro_batch)->did[action->kind] = true;
	if (action_sends(world->shape, action))
		virtual_step_send(world, rank, action, end);
	if (!action_releases(world->shape, action))
		return;
	if (action->stage > 0)
		virtual_step_post_next(world, rank, ACTIVATIONS, end);
	if (action->stage < schedule_stages(world->shape) - 1)
		virtual_step_post_next(world, rank, GRADIENTS, end);
}

static void virtual_step_count_held(struct virtual_world *world, int rank, int *held,
				    const struct action *action)
{
	*held += action_is_forward(action);
	if (world->ranks[rank].peak < *held)
		world->ranks[rank].peak = *held;
	*held -= action_releases(world->shape, action);
}

/* The rank's next action, if nothing keeps it from beginning. */
static bool virtual_step_advance(struct virtual_world *world, int rank, int *held)
{
	struct virtual_rank *me = &world->ranks[rank];
	const struct action *action = &world->lists[rank].at[me->done];
	double start = me->ends, room, there;

	if (me->done == world->lists[rank].count || !virtual_step_is_prepared(world, action))
		return false;
	if ((room = virtual_step_room_at(world, rank, action)) < 0)
		return false;
	start = room > start ? room : start;
	if (action_receives(world->shape, action)) {
		there = virtual_step_arrival(
			world, virtual_step_task_of(world, action->stage, action->micro_batch),
			virtual_step_direction_of(action));
		if (there < 0)
			return false;
		start = there > start ? there : start;
	}
	me->ends = start + virtual_step_duration(world, action);
	me->busy += me->ends - start;
	if (world->spans)
		world->spans[rank][me->done] = (struct virtual_span){start, me->ends};
	me->done++;
	virtual_step_count_held(world, rank, held, action);
	virtual_step_finish(world, rank, action, me->ends);
	return true;
}

static bool virtual_step_prepare_channel(struct virtual_world *world, int rank, enum direction way)
{
	struct channel *channel = virtual_step_channel_of(world, rank, way);
	const struct action_list *list = &world->lists[rank];
	size_t room = (size_t)list->count + 1;
	int posted = list->count;

	channel->receives = malloc(room * sizeof *channel->receives);
	channel->sends = malloc(room * sizeof *channel->sends);
	if (!channel->receives || !channel->sends)
		return false;
	for (int i = 0; i < list->count; i++)
		if (action_receives(world->shape, &list->at[i]) &&
		    virtual_step_direction_of(&list->at[i]) == way)
			channel->receives[channel->receive_count++] = i;
	if (world->buffers)
		posted = way == ACTIVATIONS ? world->buffers[rank].activations
					    : world->buffers[rank].gradients;
	for (int i = 0; i < posted; i++)
		virtual_step_post_next(world, rank, way, 0);
	return true;
}

static bool virtual_step_prepare(struct virtual_world *world)
{
	size_t tasks = (size_t)schedule_stages(world->shape) * (size_t)world->shape->micro_batches;
	int ranks = world->shape->ranks;

	world->tasks = calloc(tasks, sizeof *world->tasks);
	world->channels = calloc((size_t)ranks * DIRECTIONS, sizeof *world->channels);
	if (!world->tasks || !world->channels)
		return false;
	for (size_t i = 0; i < tasks; i++)
		for (int way = 0; way < DIRECTIONS; way++)
			world->tasks[i].sent[way] = world->tasks[i].posted[way] = NEVER;
	for (int i = 0; i < ranks * DIRECTIONS; i++)
		if (!virtual_step_prepare_channel(world, i / DIRECTIONS,
						  (enum direction)(i % DIRECTIONS)))
			return false;
	return true;
}

/* Visits the ranks round and round, each time from another one on and for another number of
 * actions, until none can go on. */
static void virtual_step_execute(struct virtual_world *world, uint64_t seed, int *held)
{
	int ranks = world->shape->ranks;
	bool moved = true;

	while (moved) {
		moved = false;
		for (int i = 0; i < ranks; i++) {
			seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
			int rank = (i + (int)(seed >> 40) % ranks) % ranks;
			for (int n = (int)(seed >> 60); n >= 0; n--)
				moved |= virtual_step_advance(world, rank, &held[rank]);
		}
		for (int i = 0; !moved && i < ranks; i++)
			moved = virtual_step_advance(world, i, &held[i]);
	}
}

static struct virtual_step virtual_step_conclude(const struct virtual_world *world)
{
	struct virtual_step step = {.has_memory = true, .ends = true};
	double busy = 0;

	for (int r = 0; r < world->shape->ranks; r++) {
		const struct virtual_rank *rank = &world->ranks[r];
		step.ends &= rank->done == world->lists[r].count;
		step.time = rank->ends > step.time ? rank->ends : step.time;
		busy += rank->busy;
	}
	step.bubble = step.time > 0 ? 1 - busy / (step.time * world->shape->ranks) : 0;
	return step;
}

static struct virtual_step schedule_virtual_step_run(struct virtual_world *world, uint64_t seed)
{
	int count = world->shape->ranks;
	struct virtual_step step = {0};
	int *held = calloc((size_t)count, sizeof *held);

	memset(world->ranks, 0, (size_t)count * sizeof *world->ranks);
	if (held && virtual_step_prepare(world)) {
		virtual_step_execute(world, seed, held);
		step = virtual_step_conclude(world);
	}
	for (int i = 0; world->channels && i < count * DIRECTIONS; i++) {
		free(world->channels[i].receives);
		free(world->channels[i].sends);
	}
	free(world->channels);
	free(world->tasks);
	free(held);
	return step;
}

struct virtual_step virtual_step_run(const struct pipeline_shape *shape,
				     const struct action_list *lists,
				     const struct schedule_buffers *buffers,
				     const struct action_times *times, uint64_t seed,
				     struct virtual_rank *ranks, struct virtual_span *const *spans)
{
	struct virtual_world world = {shape, lists, buffers, times, ranks, spans, NULL, NULL};

	return schedule_virtual_step_run(&world, seed);
}
