/* tutti-plan pipeline: the order in which ranks do a step, what it costs, and whether it ends. */
#include "arguments.h"
#include "pipeline_drawing.h"
#include "tools/must.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define CELLS_MAX 400 /* of a row; longer steps are printed without gaps */

struct schedule_run {
	const struct arguments *a;
	struct action_list *lists;
	struct schedule_buffers *buffers;
	struct virtual_rank *ranks;
	struct virtual_span **spans;
	struct virtual_step step;
};

static void pipeline_verb_run_create(struct schedule_run *run, const struct arguments *a)
{
	size_t ranks = (size_t)a->shape.ranks;

	run->a = a;
	run->lists = must_alloc(ranks, sizeof *run->lists);
	run->buffers = must_alloc(ranks, sizeof *run->buffers);
	run->ranks = must_alloc(ranks, sizeof *run->ranks);
	run->spans = must_alloc(ranks, sizeof *run->spans);
	for (int r = 0; r < a->shape.ranks; r++) {
		run->lists[r] = schedule_list(&a->shape, r);
		must_have(run->lists[r].at);
		run->buffers[r] = schedule_buffers_of(&a->shape, &run->lists[r], r);
		run->spans[r] = must_alloc((size_t)run->lists[r].count, sizeof **run->spans);
	}
	run->step = virtual_step_run(&a->shape, run->lists, run->buffers, &a->times, 1, run->ranks,
				     run->spans);
	must_have(run->step.has_memory ? run : NULL);
}

static void run_destroy(struct schedule_run *run)
{
	for (int r = 0; r < run->a->shape.ranks; r++) {
		free(run->lists[r].at);
		free(run->spans[r]);
	}
	free(run->lists);
	free(run->buffers);
	free(run->ranks);
	free(run->spans);
}

/* "F3", or "F3.1" of chunk 1. */
static void action_in_words(const struct schedule_run *run, const struct action *action,
			    char text[32])
{
	const struct pipeline_shape *shape = &run->a->shape;
	static const char letters[] = {[ACTION_FORWARD] = 'F',
				       [ACTION_BACKWARD] = 'B',
				       [ACTION_BACKWARD_INPUTS] = 'B',
				       [ACTION_BACKWARD_WEIGHTS] = 'W'};

	if (shape->chunks > 1)
		snprintf(text, 32, "%c%d.%d", letters[action->kind], action->micro_batch,
			 action->stage / shape->ranks);
	else
		snprintf(text, 32, "%c%d", letters[action->kind], action->micro_batch);
}

/* A cell for each unit of time, if times are whole numbers and not too many. */
static bool has_cells(const struct schedule_run *run)
{
	const struct action_times *t = &run->a->times;

	return run->step.ends && run->step.time <= CELLS_MAX && t->forward == floor(t->forward) &&
	       t->inputs == floor(t->inputs) && t->weights == floor(t->weights) &&
	       t->transfer == floor(t->transfer);
}

static void print_cells(const struct schedule_run *run, int rank, int width)
{
	const struct action_list *list = &run->lists[rank];
	int now = 0;
	char text[32];

	for (int i = 0; i < list->count; i++) {
		const struct virtual_span *span = &run->spans[rank][i];
		for (; now < (int)span->start; now++)
			printf(" %-*s", width, ".");
		action_in_words(run, &list->at[i], text);
		for (; now < (int)span->end; now++, strcpy(text, "="))
			printf(" %-*s", width, text);
	}
	for (; now < (int)run->step.time; now++)
		printf(" %-*s", width, ".");
}

static void print_order(const struct schedule_run *run, int rank, int width)
{
	char text[32];

	for (int i = 0; i < run->lists[rank].count; i++) {
		action_in_words(run, &run->lists[rank].at[i], text);
		printf(" %-*s", width, text);
	}
}

static void pipeline_verb_print_ranks(const struct schedule_run *run)
{
	const struct pipeline_shape *shape = &run->a->shape;
	struct action longest = {ACTION_FORWARD, schedule_stages(shape) - 1,
				 shape->micro_batches - 1};
	bool cells = has_cells(run);
	char text[32];

	action_in_words(run, &longest, text);
	puts(cells ? "A column is a unit of time: F forward, B backward, W backward of weights, = "
		     "goes "
		     "on, . idle"
		   : "F forward, B backward, W backward of weights, in order");
	for (int r = 0; r < shape->ranks; r++) {
		printf("rank %-*d", snprintf(NULL, 0, "%d", shape->ranks - 1), r);
		if (cells)
			print_cells(run, r, (int)strlen(text));
		else
			print_order(run, r, (int)strlen(text));
		puts("");
	}
}

static void print_costs(const struct schedule_run *run)
{
	const struct pipeline_shape *shape = &run->a->shape;
	double formula = schedule_step_time(shape, &run->a->times);

	printf("%6s %10s %7s %7s %9s %16s\n", "rank", "work", "idle", "held", "messages",
	       "receive buffers");
	for (int r = 0; r < shape->ranks; r++)
		printf("%6d %10g %6.1f%% %7d %9lld %9d and %d\n", r, run->ranks[r].busy,
		       100 * (1 - run->ranks[r].busy / run->step.time), run->ranks[r].peak,
		       (long long)schedule_messages(shape, r), run->buffers[r].activations,
		       run->buffers[r].gradients);
	printf("A step takes %g; the bubble is %.1f%% of it.", run->step.time,
	       100 * run->step.bubble);
	if (run->a->times.transfer > 0)
		puts("");
	else if (formula >= 0)
		printf(" The formula says %g.\n", formula);
	else
		puts(" There is no formula for it.");
	printf("held: activations at a time, of a %s and a micro-batch each; receive buffers: of "
	       "activations and of gradients\n",
	       shape->chunks > 1 ? "chunk" : "stage");
}

static int pipeline_verb_draw(const struct schedule_run *run)
{
	const struct pipeline_shape *shape = &run->a->shape;
	const struct action_times *t = &run->a->times;
	char title[128], subtitle[160];
	struct pipeline_drawing drawing = {shape,          run->lists, run->spans,
					   run->step.time, title,      subtitle};
	FILE *file = fopen(run->a->svg, "w");

	snprintf(title, sizeof title, "%s: %d ranks, %d micro-batches, %d chunk%s",
		 schedule_name(shape->schedule), shape->ranks, shape->micro_batches, shape->chunks,
		 shape->chunks > 1 ? "s" : "");
	snprintf(subtitle, sizeof subtitle,
		 "forward %g, inputs %g, weights %g, message %g: step %g, bubble %.1f%%, at most "
		 "%d held",
		 t->forward, t->inputs, t->weights, t->transfer, run->step.time,
		 100 * run->step.bubble, run->ranks[0].peak);
	if (file)
		pipeline_draw(file, &drawing);
	if (!file || (ferror(file) | fclose(file))) {
		fprintf(stderr, "tutti-plan: '%s' could not be written: %s.\n", run->a->svg,
			strerror(errno));
		return 1;
	}
	return 0;
}

/* Names each rank that waits, and for what. */
static int print_deadlock(const struct schedule_run *run)
{
	char text[32];

	for (int r = 0; r < run->a->shape.ranks; r++) {
		if (run->ranks[r].done == run->lists[r].count)
			continue;
		action_in_words(run, &run->lists[r].at[run->ranks[r].done], text);
		fprintf(stderr, "tutti-plan: Rank %d waits for ever before %s, its action %d.\n", r,
			text, run->ranks[r].done);
	}
	return 1;
}

int plan_pipeline(const struct arguments *a)
{
	struct schedule_run run;
	double formula = schedule_step_time(&a->shape, &a->times);
	int code;

	pipeline_verb_run_create(&run, a);
	pipeline_verb_print_ranks(&run);
	if (!run.step.ends) {
		code = print_deadlock(&run);
	} else {
		print_costs(&run);
		code = a->svg ? pipeline_verb_draw(&run) : 0;
	}
	if (run.step.ends && a->times.transfer == 0 && formula >= 0 &&
	    fabs(formula - run.step.time) > 1e-9 * formula) {
		fprintf(stderr, "tutti-plan: The step takes %g, but its formula says %g.\n",
			run.step.time, formula);
		code = 1;
	}
	run_destroy(&run);
	return code;
}
