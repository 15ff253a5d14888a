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

static int pipeline_first_of(const struct stages *s, int m)
{
	return (int)((int64_t)s->sequences * m / s->micro_batches);
}

static struct gpt_activations **pipeline_place(struct stages *s, int stage, int m)
{
	return &s->of[stage * s->micro_batches + m];
}

/* The list has room for all that were made. */
static void pipeline_give_back(struct stages *s, struct gpt_activations *set)
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
	pipeline_give_back(s, set);
}

static struct gpt_activations *pipeline_take(struct stages *s)
{
	if (s->free_count == 0)
		add_set(s, gpt_make_activations(&s->run->gpt, s->longest));
	return s->free[--s->free_count];
}

/* The arguments of a callback. */
struct turn {
	int stage, m;
	const void *in;
	void *out;
};

/* Of the window: nothing is kept. */
static void pipeline_evaluate(struct stages *s, const struct turn *t)
{
	gpt_stage_forward(&s->run->gpt, t->stage, s->run->tokens, 1, t->in, t->out);
}

static void run_forward(struct stages *s, const struct turn *t)
{
	struct run *run = s->run;
	int first = pipeline_first_of(s, t->m), count = pipeline_first_of(s, t->m + 1) - first;
	size_t row = (size_t)first * (size_t)gpt_length(&run->gpt);
	struct gpt_activations *set = pipeline_take(s);

	run->gpt.activations = *pipeline_place(s, t->stage, t->m) = set;
	gpt_stage_forward(&run->gpt, t->stage, run->tokens + row, count, t->in, t->out);
	if (t->stage + 1 == run->gpt.stages)
		gpt_loss(&run->gpt, run->targets + row, 1);
}

/* The set of a micro-batch whose last action this is. */
static void pipeline_let_go(struct stages *s, const struct turn *t)
{
	pipeline_give_back(s, *pipeline_place(s, t->stage, t->m));
	*pipeline_place(s, t->stage, t->m) = NULL;
}

static void run_backward(struct stages *s, const struct turn *t)
{
	struct gpt *gpt = &s->run->gpt;

	gpt->activations = *pipeline_place(s, t->stage, t->m);
	gpt_stage_backward(gpt, t->stage, t->in, t->out);
	if (!gpt->config.weights_later)
		pipeline_let_go(s, t);
}

static void run_weights(struct stages *s, const struct turn *t)
{
	s->run->gpt.activations = *pipeline_place(s, t->stage, t->m);
	gpt_stage_weights(&s->run->gpt, t->stage);
	pipeline_let_go(s, t);
}

/* No jump may leave the pipeline's run: a turn that hears of a death returns it. Other ranks may
 * wait for this one in another communicator of the mesh; they are told. */
static tutti_status pipeline_take_turn(struct stages *s,
				       void (*act)(struct stages *, const struct turn *),
				       struct turn turn)
{
	jmp_buf here, *outer = rescue;

	if (setjmp(here)) {
		rescue = outer;
		tutti_mesh_abort(s->run->mesh);
		return TUTTI_ERR_PEER;
	}
	rescue = outer ? &here : NULL;
	act(s, &turn);
	rescue = outer;
	return TUTTI_OK;
}

static tutti_status pipeline_forward(void *arg, int stage, int m, const void *in, void *out)
{
	struct stages *s = arg;

	return pipeline_take_turn(s, s->is_evaluation ? pipeline_evaluate : run_forward,
				  (struct turn){stage, m, in, out});
}

static tutti_status pipeline_backward(void *arg, int stage, int m, const void *out_grad,
				      void *in_grad)
{
	return pipeline_take_turn(arg, run_backward, (struct turn){stage, m, out_grad, in_grad});
}

static tutti_status backward_weights(void *arg, int stage, int m)
{
	return pipeline_take_turn(arg, run_weights, (struct turn){stage, m, NULL, NULL});
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
					 .forward = pipeline_forward,
					 .backward = pipeline_backward,
					 .backward_weights = backward_weights}));
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
