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
	struct gpt_activations **free; /* free_count of them                           */
	int free_count, count;
};

static int first_of(const struct stages *s, int m)
{
	return s->sequences * m / s->micro_batches;
}

static struct gpt_activations **place(struct stages *s, int stage, int m)
{
	return &s->of[stage * s->micro_batches + m];
}

/* All sets add to one loss. */
static struct gpt_activations *take(struct stages *s)
{
	struct gpt *gpt = &s->run->gpt;

	if (s->free_count > 0)
		return s->free[--s->free_count];
	struct gpt_activations *made = gpt_more_activations(gpt, s->longest);
	s->free = realloc(s->free, (size_t)++s->count * sizeof(void *));
	if (!s->free) {
		fprintf(stderr, "gpt: there is no memory for a list\n");
		exit(1);
	}
	return made;
}

static tutti_status forward(void *arg, int stage, int m, const void *in, void *out)
{
	struct stages *s = arg;
	struct run *run = s->run;
	int first = first_of(s, m), count = first_of(s, m + 1) - first;
	size_t row = (size_t)first * (size_t)run->options.length;

	run->gpt.activations = *place(s, stage, m) = take(s);
	gpt_stage_forward(&run->gpt, stage, run->tokens + row, count, in, out);
	if (stage + 1 == run->gpt.stages)
		gpt_loss(&run->gpt, run->targets + row, 1);
	return TUTTI_OK;
}

static tutti_status backward(void *arg, int stage, int m, const void *out_grad, void *in_grad)
{
	struct stages *s = arg;
	struct gpt_activations **held = place(s, stage, m);

	s->run->gpt.activations = *held;
	gpt_stage_backward(&s->run->gpt, stage, out_grad, in_grad);
	s->free[s->free_count++] = *held;
	*held = NULL;
	return TUTTI_OK;
}

struct stages *stages_create(struct run *run, int max_sequences)
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
	s->longest = (max_sequences + o->micro_batches - 1) / o->micro_batches;
	must(tutti_pipeline_create(
		&s->pipeline, run->mesh,
		&(tutti_pipeline_config){.schedule = o->schedule,
					 .micro_batches = o->micro_batches,
					 .chunks = o->chunks,
					 .count = (size_t)s->longest * (size_t)o->length *
						  (size_t)o->channels,
					 .trainer = run->trainer,
					 .arg = s,
					 .forward = forward,
					 .backward = backward}));
	return s;
}

void stages_destroy(struct stages *s)
{
	if (!s)
		return;
	tutti_pipeline_destroy(s->pipeline);
	while (s->free_count > 0)
		gpt_free_activations(s->free[--s->free_count]);
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
