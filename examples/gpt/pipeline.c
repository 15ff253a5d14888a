/* The callbacks of a pipeline. A micro-batch has activations of its own from its forward to its
 * backward; those that are free are used again, so there are as many as the schedule holds at a
 * time.
 */
#include "pipeline.h"

#include "activations.h"

#include <stdio.h>
#include <stdlib.h>

struct stages {
	struct run *run;
	tutti_pipeline *pipeline;
	int sequences, micro_batches;  /* of this rank; parts of them                  */
	int longest;                   /* sequences in a micro-batch, at most          */
	struct gpt_activations **of;   /* [stage][micro-batch]; NULL: not held         */
	struct gpt_activations **free; /* free_count of count; the first is gpt's own  */
	int free_count, count;
	int is_evaluation;
};

static int first_of(const struct stages *s, int m)
{
	return s->sequences * m / s->micro_batches;
}

static struct gpt_activations **place(struct stages *s, int stage, int m)
{
	return &s->of[stage * s->micro_batches + m];
}

/* The list has room for all that were made. */
static void give_back(struct stages *s, struct gpt_activations *set)
{
	s->free[s->free_count++] = set;
}

static void add_set(struct stages *s, struct gpt_activations *set)
{
	s->free = realloc(s->free, (size_t)++s->count * sizeof(void *));
	if (!s->free) {
		fprintf(stderr, "gpt: there is no memory for a list\n");
		exit(1);
	}
	give_back(s, set);
}

static struct gpt_activations *take(struct stages *s)
{
	if (s->free_count == 0)
		add_set(s, gpt_make_activations(&s->run->gpt, s->longest));
	return s->free[--s->free_count];
}

/* Of the window: nothing is kept. */
static tutti_status evaluate(struct stages *s, int stage, const void *in, void *out)
{
	gpt_stage_forward(&s->run->gpt, stage, s->run->tokens, 1, in, out);
	return TUTTI_OK;
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	struct stages *s = arg;

	if (s->is_evaluation)
		return evaluate(s, stage, in, out);
	struct run *run = s->run;
	int first = first_of(s, m), count = first_of(s, m + 1) - first;
	size_t row = (size_t)first * (size_t)gpt_length(&run->gpt);
	struct gpt_activations *set = take(s);

	run->gpt.activations = *place(s, stage, m) = set;
	gpt_stage_forward(&run->gpt, stage, run->tokens + row, count, in, out);
	if (stage + 1 == run->gpt.stages)
		gpt_loss(&run->gpt, run->targets + row, 1);
	return TUTTI_OK;
}

/* The set of a micro-batch whose last action this is. */
static void let_go(struct stages *s, int stage, int m)
{
	give_back(s, *place(s, stage, m));
	*place(s, stage, m) = NULL;
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct stages *s = arg;
	struct gpt *gpt = &s->run->gpt;

	gpt->activations = *place(s, stage, m);
	gpt_stage_backward(gpt, stage, out_grad, in_grad);
	if (!gpt->config.weights_later)
		let_go(s, stage, m);
	return TUTTI_OK;
}

static tutti_status backward_weights(void *arg, int stage, int m)
{
	struct stages *s = arg;

	s->run->gpt.activations = *place(s, stage, m);
	gpt_stage_weights(&s->run->gpt, stage);
	let_go(s, stage, m);
	return TUTTI_OK;
}

/* A callback that hears of a death returns it: no jump may leave the pipeline's run. */
static tutti_status jump_ends(jmp_buf *outer)
{
	rescue = outer;
	return TUTTI_ERR_PEER;
}

static tutti_status safe_forward(void *arg, int stage, int m, const void *in, void *out)
{
	jmp_buf here, *outer = rescue;

	if (setjmp(here))
		return jump_ends(outer);
	rescue = outer ? &here : NULL;
	tutti_status status = forward(arg, stage, m, in, out);
	rescue = outer;
	return status;
}

static tutti_status safe_backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	jmp_buf here, *outer = rescue;

	if (setjmp(here))
		return jump_ends(outer);
	rescue = outer ? &here : NULL;
	tutti_status status = backward(arg, stage, m, out_grad, in_grad);
	rescue = outer;
	return status;
}

static tutti_status safe_backward_weights(void *arg, int stage, int m)
{
	jmp_buf here, *outer = rescue;

	if (setjmp(here))
		return jump_ends(outer);
	rescue = outer ? &here : NULL;
	tutti_status status = backward_weights(arg, stage, m);
	rescue = outer;
	return status;
}

struct stages *stages_create(struct run *run)
{
	const struct options *o = &run->options;
	struct stages *s = calloc(1, sizeof *s);
	size_t held = (size_t)run->gpt.stages * (size_t)o->micro_batches;

	if (s)
		s->of = calloc(held, sizeof *s->of);
	if (!s || !s->of) {
		fprintf(stderr, "gpt: there is no memory for a pipeline\n");
		exit(1);
	}
	s->run = run;
	s->micro_batches = o->micro_batches;
	s->longest = run->gpt.config.max_sequences;
	add_set(s, run->gpt.activations);
	must(tutti_pipeline_create(
		&s->pipeline, run->mesh,
		&(tutti_pipeline_config){.schedule = o->schedule,
					 .micro_batches = o->micro_batches,
					 .chunks = o->chunks,
					 .count = gpt_stream_count(&run->gpt, s->longest),
					 .trainer = run->trainer,
					 .arg = s,
					 .forward = safe_forward,
					 .backward = safe_backward,
					 .backward_weights = safe_backward_weights}));
	return s;
}

void stages_destroy(struct stages *s)
{
	if (!s)
		return;
	tutti_pipeline_destroy(s->pipeline);
	for (int i = 0; i < s->free_count; i++)
		if (s->free[i] != s->run->gpt.activations)
			gpt_free_activations(s->free[i]);
	free(s->free);
	free(s->of);
	free(s);
}

void stages_run(struct stages *s, int sequences)
{
	struct gpt *gpt = &s->run->gpt;
	struct gpt_activations *own = gpt->activations;

	s->sequences = sequences;
	must(tutti_pipeline_run(s->pipeline));
	gpt->activations = own;
}

void stages_evaluate(struct stages *s)
{
	s->is_evaluation = 1;
	must(tutti_pipeline_forward(s->pipeline, 1));
	s->is_evaluation = 0;
}
