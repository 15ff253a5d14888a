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
	struct gpt_activations **of;   /* [stage][micro-batch]                        */
	struct gpt_activations **free; /* so many; the first that was there is gpt's  */
	int free_count;
};

static int pipeline_first_sequence(const struct stages *s, int m)
{
	return (int)((int64_t)s->sequences * m / s->run->options.micro_batches);
}

/* what: gradients to make; 0: a forward */
static void pipeline_act(struct stages *s, int what, int stage, int m, const void *in, void *out)
{
	struct run *run = s->run;
	struct gpt *gpt = &run->gpt;
	struct gpt_activations **held = &s->of[stage * run->options.micro_batches + m];
	int first = pipeline_first_sequence(s, m), next = pipeline_first_sequence(s, m + 1);
	int row = first * gpt->context.length;

	if (what == 0)
		*held = s->free_count > 0 ? s->free[--s->free_count]
					  : gpt_make_activations(gpt, gpt->config.max_sequences);
	gpt->activations = *held;
	if (what != 0)
		gpt_stage_backward(gpt, stage, what, in, out);
	else
		gpt_stage_forward(gpt, stage, run->tokens + row, next - first, in, out);
	if (what == 0 && stage + 1 == gpt->stages)
		gpt_loss(gpt, run->targets + row, 1);
	if (what & GPT_WEIGHTS)
		s->free[s->free_count++] = *held;
}

/* No jump may leave the pipeline's run: a turn that hears of a death returns it. Other ranks may
 * wait for this one in another communicator of the mesh; they are told. */
static tutti_status pipeline_turn(struct stages *s, int what, int stage, int m, const void *in,
				  void *out)
{
	jmp_buf here, *outer = rescue;

	if (setjmp(here)) {
		rescue = outer;
		tutti_mesh_abort(s->run->mesh);
		return TUTTI_ERR_PEER;
	}
	rescue = outer ? &here : NULL;
	if (s->is_evaluation)
		gpt_stage_forward(&s->run->gpt, stage, s->run->tokens, 1, in, out);
	else
		pipeline_act(s, what, stage, m, in, out);
	rescue = outer;
	return TUTTI_OK;
}

static tutti_status pipeline_forward(void *arg, int stage, int m, const void *in, void *out)
{
	return pipeline_turn(arg, 0, stage, m, in, out);
}

static tutti_status pipeline_backward(void *arg, int stage, int m, const void *out_grad,
				      void *in_grad)
{
	struct stages *s = arg;
	int weights = s->run->gpt.config.weights_later ? 0 : GPT_WEIGHTS;

	return pipeline_turn(s, GPT_INPUTS | weights, stage, m, out_grad, in_grad);
}

static tutti_status pipeline_backward_weights(void *arg, int stage, int m)
{
	return pipeline_turn(arg, GPT_WEIGHTS, stage, m, NULL, NULL);
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
