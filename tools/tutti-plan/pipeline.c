/* tutti-plan pipeline: the order in which ranks do a step, what it costs, and whether it ends. */
#include "arguments.h"
#include "tools/must.h"
#include "train/pipeline/schedule/virtual_step.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LEFT      70
#define TOP       66
#define ROW       26
#define WIDTH_MAX 1400.0 /* of the boxes */
#define UNIT      26.0   /* wide at most: so is the shortest action's box */

#define CELLS_MAX 400 /* of a row; longer steps are printed without gaps */

struct schedule_run {
	const struct arguments *a;
	struct action_list *lists;
	struct schedule_buffers *buffers;
	struct virtual_rank *ranks;
	struct virtual_span **spans;
	struct virtual_step step;
};

static void pipeline_run_create(struct schedule_run *run, const struct arguments *a)
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

static void pipeline_run_destroy(struct schedule_run *run)
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
static void pipeline_action(const struct schedule_run *run, const struct action *action,
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
static bool pipeline_has_cells(const struct schedule_run *run)
{
	const struct action_times *t = &run->a->times;

	return run->step.ends && run->step.time <= CELLS_MAX && t->forward == floor(t->forward) &&
	       t->inputs == floor(t->inputs) && t->weights == floor(t->weights) &&
	       t->transfer == floor(t->transfer);
}

static void pipeline_print_cells(const struct schedule_run *run, int rank, int width)
{
	const struct action_list *list = &run->lists[rank];
	int now = 0;
	char text[32];

	for (int i = 0; i < list->count; i++) {
		const struct virtual_span *span = &run->spans[rank][i];
		for (; now < (int)span->start; now++)
			printf(" %-*s", width, ".");
		pipeline_action(run, &list->at[i], text);
		for (; now < (int)span->end; now++, strcpy(text, "="))
			printf(" %-*s", width, text);
	}
	for (; now < (int)run->step.time; now++)
		printf(" %-*s", width, ".");
}

static void pipeline_print_order(const struct schedule_run *run, int rank, int width)
{
	char text[32];

	for (int i = 0; i < run->lists[rank].count; i++) {
		pipeline_action(run, &run->lists[rank].at[i], text);
		printf(" %-*s", width, text);
	}
}

static void pipeline_print_ranks(const struct schedule_run *run)
{
	const struct pipeline_shape *shape = &run->a->shape;
	struct action longest = {ACTION_FORWARD, schedule_stages(shape) - 1,
				 shape->micro_batches - 1};
	bool cells = pipeline_has_cells(run);
	char text[32];

	pipeline_action(run, &longest, text);
	puts(cells ? "A column is a unit of time: F forward, B backward, W backward of weights, = "
		     "goes "
		     "on, . idle"
		   : "F forward, B backward, W backward of weights, in order");
	for (int r = 0; r < shape->ranks; r++) {
		printf("rank %-*d", snprintf(NULL, 0, "%d", shape->ranks - 1), r);
		if (cells)
			pipeline_print_cells(run, r, (int)strlen(text));
		else
			pipeline_print_order(run, r, (int)strlen(text));
		puts("");
	}
}

static void pipeline_print_costs(const struct schedule_run *run)
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

/* The drawing: a colour for each kind of action, paler for each further chunk, with the number of
 * the micro-batch where it fits. */

static const struct {
	const char *name, *fill;
} looks[] = {
	[ACTION_FORWARD] = {"forward", "#56b4e9"},
	[ACTION_BACKWARD] = {"backward", "#e69f00"},
	[ACTION_BACKWARD_INPUTS] = {"backward, inputs", "#e69f00"},
	[ACTION_BACKWARD_WEIGHTS] = {"backward, weights", "#009e73"},
};

static double pipeline_shortest(const struct schedule_run *run)
{
	double least = run->step.time;

	for (int r = 0; r < run->a->shape.ranks; r++)
		for (int i = 0; i < run->lists[r].count; i++) {
			double t = run->spans[r][i].end - run->spans[r][i].start;
			if (t > 0)
				least = fmin(least, t);
		}
	return least;
}

static void pipeline_draw_box(FILE *f, const struct action *action,
			      const struct pipeline_shape *shape, double x, double y, double width)
{
	double opacity = 1 - 0.7 * (action->stage / shape->ranks) / shape->chunks;

	fprintf(f,
		"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" fill=\"%s\" "
		"fill-opacity=\"%.2f\" stroke=\"#fff\"/>\n",
		x, y, width, ROW - 4, looks[action->kind].fill, opacity);
	if (width >= 8 * (1 + floor(log10(fmax(action->micro_batch, 1)))))
		fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%d</text>\n",
			x + width / 2, y + 15, action->micro_batch);
}

static void pipeline_draw_legend(FILE *f, const struct schedule_run *run, double y)
{
	bool is_there[sizeof looks / sizeof *looks] = {false};
	double x = LEFT;

	for (int i = 0; i < run->lists[0].count; i++)
		is_there[run->lists[0].at[i].kind] = true;
	for (size_t k = 0; k < sizeof looks / sizeof *looks; k++) {
		if (!is_there[k])
			continue;
		fprintf(f,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n"
			"<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			x, y, looks[k].fill, x + 20, y + 12, looks[k].name);
		x += 40 + 7.0 * (double)strlen(looks[k].name);
	}
	if (run->a->shape.chunks > 1)
		fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">later chunks are paler</text>\n", x,
			y + 12);
}

static void pipeline_draw(FILE *f, const struct schedule_run *run, const char *title,
			  const char *subtitle)
{
	double unit = fmin(UNIT / pipeline_shortest(run), WIDTH_MAX / run->step.time);
	double width = run->step.time * unit, height = run->a->shape.ranks * ROW;

	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
		"<text x=\"%d\" y=\"24\" font-size=\"16\">%s</text>\n"
		"<text x=\"%d\" y=\"46\">%s</text>\n"
		"<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%.1f\" fill=\"#f2f2f2\"/>\n",
		fmax(LEFT + width + 20, 640), TOP + height + 50, LEFT, title, LEFT, subtitle, LEFT,
		TOP, width, height);
	for (int r = 0; r < run->a->shape.ranks; r++) {
		double y = TOP + r * ROW + 2;
		fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n",
			LEFT - 8, y + 15, r);
		for (int i = 0; i < run->lists[r].count; i++) {
			const struct virtual_span *span = &run->spans[r][i];
			pipeline_draw_box(f, &run->lists[r].at[i], &run->a->shape,
					  LEFT + span->start * unit, y,
					  (span->end - span->start) * unit);
		}
	}
	pipeline_draw_legend(f, run, TOP + height + 16);
	fputs("</svg>\n", f);
}

static int pipeline_write(const struct schedule_run *run)
{
	const struct pipeline_shape *shape = &run->a->shape;
	const struct action_times *t = &run->a->times;
	char title[128], subtitle[160];
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
		pipeline_draw(file, run, title, subtitle);
	if (!file || (ferror(file) | fclose(file))) {
		fprintf(stderr, "tutti-plan: '%s' could not be written: %s.\n", run->a->svg,
			strerror(errno));
		return 1;
	}
	return 0;
}

/* Names each rank that waits, and for what. */
static int pipeline_print_deadlock(const struct schedule_run *run)
{
	char text[32];

	for (int r = 0; r < run->a->shape.ranks; r++) {
		if (run->ranks[r].done == run->lists[r].count)
			continue;
		pipeline_action(run, &run->lists[r].at[run->ranks[r].done], text);
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

	pipeline_run_create(&run, a);
	pipeline_print_ranks(&run);
	if (!run.step.ends) {
		code = pipeline_print_deadlock(&run);
	} else {
		pipeline_print_costs(&run);
		code = a->svg ? pipeline_write(&run) : 0;
	}
	if (run.step.ends && a->times.transfer == 0 && formula >= 0 &&
	    fabs(formula - run.step.time) > 1e-9 * formula) {
		fprintf(stderr, "tutti-plan: The step takes %g, but its formula says %g.\n",
			run.step.time, formula);
		code = 1;
	}
	pipeline_run_destroy(&run);
	return code;
}
