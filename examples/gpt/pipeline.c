/* Pipeline parallelism: the layers in stages, through which a step's micro-batches go. A
 * micro-batch has activations of its own from its forward to its last backward; those that are free
 * are used again, so there are as many as the schedule holds at a time. */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

struct stages {
	struct run *run;
	tutti_pipeline *pipeline;
	int sequences;                 /* of this rank in a step                      */
	bool is_evaluation;            /* of one sequence: nothing is kept            */
	struct gpt_activations **of;   /* [stage][micro-batch]; NULL: not held        */
	struct gpt_activations **free; /* so many; the first that was there is gpt's  */
	int free_count;
};

enum turn { FORWARD, BACKWARD, BACKWARD_WEIGHTS };

static int pipeline_first_sequence(const struct stages *s, int m)
{
	return (int)((int64_t)s->sequences * m / s->run->options.micro_batches);
}

static void pipeline_forward_now(struct stages *s, struct gpt_activations **held, int stage, int m,
				 const void *in, void *out)
{
	struct run *run = s->run;
	struct gpt *gpt = &run->gpt;
	int first = pipeline_first_sequence(s, m),
	    count = pipeline_first_sequence(s, m + 1) - first;
	size_t row = (size_t)first * (size_t)gpt->context.length;

	*held = s->free_count > 0 ? s->free[--s->free_count]
				  : gpt_make_activations(gpt, gpt->config.max_sequences);
	gpt->activations = *held;
	gpt_stage_forward(gpt, stage, run->tokens + row, count, in, out);
	if (stage + 1 == gpt->stages)
		gpt_loss(gpt, run->targets + row, 1);
}

static void pipeline_backward_now(struct stages *s, struct gpt_activations **held, enum turn turn,
				  int stage, const void *out_grad, void *in_grad)
{
	struct gpt *gpt = &s->run->gpt;
	int what = turn == BACKWARD_WEIGHTS    ? GPT_WEIGHTS
		   : gpt->config.weights_later ? GPT_INPUTS
					       : GPT_INPUTS | GPT_WEIGHTS;

	gpt->activations = *held;
	gpt_stage_backward(gpt, stage, what, out_grad, in_grad);
	if (what & GPT_WEIGHTS) {
		s->free[s->free_count++] = *held;
		*held = NULL;
	}
}

/* No jump may leave the pipeline's run: a turn that hears of a death returns it. Other ranks may
 * wait for this one in another communicator of the mesh; they are told. */
static tutti_status pipeline_turn(struct stages *s, enum turn turn, int stage, int m,
				  const void *in, void *out)
{
	struct gpt_activations **held = &s->of[stage * s->run->options.micro_batches + m];
	jmp_buf here, *outer = rescue;

	if (setjmp(here)) {
		rescue = outer;
		tutti_mesh_abort(s->run->mesh);
		return TUTTI_ERR_PEER;
	}
	rescue = outer ? &here : NULL;
	if (s->is_evaluation)
		gpt_stage_forward(&s->run->gpt, stage, s->run->tokens, 1, in, out);
	else if (turn == FORWARD)
		pipeline_forward_now(s, held, stage, m, in, out);
	else
		pipeline_backward_now(s, held, turn, stage, in, out);
	rescue = outer;
	return TUTTI_OK;
}

static tutti_status pipeline_forward(void *arg, int stage, int m, const void *in, void *out)
{
	return pipeline_turn(arg, FORWARD, stage, m, in, out);
}

static tutti_status pipeline_backward(void *arg, int stage, int m, const void *out_grad,
				      void *in_grad)
{
	return pipeline_turn(arg, BACKWARD, stage, m, out_grad, in_grad);
}

static tutti_status pipeline_backward_weights(void *arg, int stage, int m)
{
	return pipeline_turn(arg, BACKWARD_WEIGHTS, stage, m, NULL, NULL);
}

struct stages *stages_create(struct run *run)
{
	const struct options *o = &run->options;
	struct stages *s = calloc(1, sizeof *s);
	size_t most = (size_t)run->gpt.stages * (size_t)o->micro_batches;

	if (s) {
		s->of = calloc(most, sizeof(void *));
		s->free = calloc(most, sizeof(void *));
	}
	if (!s || !s->of || !s->free) {
		fprintf(stderr, "gpt: there is no memory for a pipeline\n");
		exit(1);
	}
	s->run = run;
	s->free[s->free_count++] = run->gpt.activations;
	size_t count = gpt_stream_count(&run->gpt, run->gpt.config.max_sequences);
	must(tutti_pipeline_create(
		&s->pipeline, run->mesh,
		&(tutti_pipeline_config){.schedule = o->schedule,
					 .micro_batches = o->micro_batches,
					 .chunks = o->chunks,
					 .count = count,
					 .trainer = run->trainer,
					 .arg = s,
					 .forward = pipeline_forward,
					 .backward = pipeline_backward,
					 .backward_weights = pipeline_backward_weights}));
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
	s->is_evaluation = true;
	must(tutti_pipeline_forward(s->pipeline, 1));
	s->is_evaluation = false;
}
