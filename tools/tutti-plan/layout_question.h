/* The question that tutti-plan layout answers, and one way to place a model on ranks. */
#ifndef TUTTI_PLAN_LAYOUT_QUESTION_H
#define TUTTI_PLAN_LAYOUT_QUESTION_H

#include "clock.h"
#include "layout_model.h"

#include "train/pipeline/schedule/schedule.h"

struct layout_question {
	struct gpt_sizes model;
	int ranks, nodes;    /* equally many on each */
	int batch;           /* sequences of a step, of all ranks */
	int micro_batches;   /* 0: all that are possible */
	tutti_dtype dtype;   /* of parameters and activations; those of 16 bits have a master copy */
	bool has_weights;    /* attention keeps its weights for backward, as examples/gpt does */
	double memory;       /* bytes of a rank; 0: no limit */
	double rate;         /* operations of a rank in a second */
	double overhead;     /* seconds of a layer's forward whatever its size; backward: twice */
	const struct machine *machine;
	struct price_book *prices; /* layout_links.h; NULL: each is worked out again */
};

/* Axes in this order: dp, cp, pp, tp. */
struct candidate {
	int dp, cp, pp, tp;
	tutti_strategy strategy;
	int shard_size;      /* of HSDP; else 0 */
	tutti_schedule schedule;
	int chunks, micro_batches;
	bool recomputes;     /* forward of a layer again in backward, from its input */
};

/* Tokens of a micro-batch on a rank. */
static inline double candidate_tokens(const struct layout_question *q, const struct candidate *c)
{
	return (double)q->batch / c->dp / c->micro_batches * q->model.length / c->cp;
}

/* The ranks that reduce gradients with each other. */
static inline int candidate_replicas(const struct candidate *c)
{
	return c->dp * c->cp;
}

static inline struct pipeline_shape candidate_shape(const struct candidate *c)
{
	return (struct pipeline_shape){c->schedule, c->pp, c->micro_batches, c->chunks};
}

#endif
