/* A pipeline: this rank's lists of actions, and the buffers of messages in and out. */
#ifndef TRAIN_PIPELINE_PIPELINE_H
#define TRAIN_PIPELINE_PIPELINE_H

#include "train/pipeline/schedule/schedule.h"
#include "train/base/base.h"

#include <tutti/parallel.h>

enum {
	WAYS = 2,            /* activations, gradients */
	RECEIVES_AHEAD = 48, /* posted at most; of 128 calls that may be in flight beside GPUs */
};

enum stage_way { WAY_ACTIVATIONS, WAY_GRADIENTS };

/* A message: the elements, then its word. */
struct stage_buffer {
	char *data;
	tutti_work *work; /* NULL: none in flight */
};

/* The actions of this rank: of a step, or of an evaluation. */
struct stage_plan {
	struct pipeline_shape shape;
	struct action_list list;
	/* [chunk][micro-batch]: the forward and the backward of a task, as actions of the list. */
	int *forward_of, *backward_of;
	int *last_of; /* [chunk]: the action with which its gradients are final */
	int *needed_by[WAYS], needed[WAYS]; /* actions that need a message, in order */
	int *buffer_of[WAYS]; /* [action]: the buffer with its message, from posting to release */
};

/* Messages of one way from one rank, in the order in which the plan's actions need them. */
struct inbox {
	enum stage_way way;
	int peer;
	struct stage_buffer *buffers;
	int *free, free_count; /* buffers that no message is in or comes to */
	int posted, taken;     /* of the plan's needed ones */
};

/* Messages of one way to one rank. Buffers take turns. */
struct outbox {
	enum stage_way way;
	int peer;
	struct stage_buffer *buffers;
	int buffer_count, sent; /* sent: in this step */
};

struct tutti_pipeline {
	tutti_pipeline_config config;
	tutti_comm *whole; /* the mesh's */
	tutti_comm *line;  /* the ranks of "pp", for these messages alone */
	int rank, timeout_ms;
	size_t bytes; /* of a message without its word */
	struct stage_plan step, evaluation; /* evaluation: the last one's */
	const struct stage_plan *plan;      /* the one of both that is carried out */
	struct schedule_buffers buffers;    /* of a step; an evaluation needs no more */
	struct inbox inbox[WAYS];
	struct outbox outbox[WAYS];
	bool is_running;
	/* In this step a callback has failed, here or on a rank whose message has come. */
	bool has_failed;
	struct kept_error failure; /* this rank's own */
	int held;
	double busy_seconds;
	tutti_pipeline_stats stats;
};

static inline enum stage_way way_of(const struct action *action)
{
	return action_is_forward(action) ? WAY_ACTIVATIONS : WAY_GRADIENTS;
}

static inline size_t message_bytes(const struct tutti_pipeline *pipeline)
{
	return pipeline->bytes + sizeof(uint64_t);
}

/* pipeline.c */
/* Takes the list. To be finished also when it fails. */
tutti_status stage_plan_make(struct stage_plan *plan, const struct pipeline_shape *shape,
		       struct action_list list);
void stage_plan_finish(struct stage_plan *plan);

#endif
