/* Draws boxes: a colour for each kind of action, paler for each further chunk, with the number of
 * the micro-batch where it fits. */
#include "pipeline_drawing.h"

#include <math.h>
#include <string.h>

#define LEFT      70
#define TOP       66
#define ROW       26
#define WIDTH_MAX 1400.0 /* of the boxes */
#define UNIT      26.0   /* wide at most: so is the shortest action's box */

static const struct {
	const char *name, *fill;
} looks[] = {
	[ACTION_FORWARD] = {"forward", "#56b4e9"},
	[ACTION_BACKWARD] = {"backward", "#e69f00"},
	[ACTION_BACKWARD_INPUTS] = {"backward, inputs", "#e69f00"},
	[ACTION_BACKWARD_WEIGHTS] = {"backward, weights", "#009e73"},
};

static double pipeline_drawing_shortest(const struct pipeline_drawing *d)
{
	double least = d->time;

	for (int r = 0; r < d->shape->ranks; r++)
		for (int i = 0; i < d->lists[r].count; i++) {
			double t = d->spans[r][i].end - d->spans[r][i].start;
			if (t > 0)
				least = fmin(least, t);
		}
	return least;
}

static void draw_box(FILE *f, const struct action *action, const struct pipeline_shape *shape,
		     double x, double y, double width)
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

static void pipeline_drawing_draw_legend(FILE *f, const struct pipeline_drawing *d, double y)
{
	bool is_there[sizeof looks / sizeof *looks] = {false};
	double x = LEFT;

	for (int i = 0; i < d->lists[0].count; i++)
		is_there[d->lists[0].at[i].kind] = true;
	for (size_t k = 0; k < sizeof looks / sizeof *looks; k++) {
		if (!is_there[k])
			continue;
		fprintf(f,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"14\" height=\"14\" fill=\"%s\"/>\n"
			"<text x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			x, y, looks[k].fill, x + 20, y + 12, looks[k].name);
		x += 40 + 7.0 * (double)strlen(looks[k].name);
	}
	if (d->shape->chunks > 1)
		fprintf(f, "<text x=\"%.1f\" y=\"%.1f\">later chunks are paler</text>\n", x,
			y + 12);
}

void pipeline_draw(FILE *f, const struct pipeline_drawing *d)
{
	double unit = fmin(UNIT / pipeline_drawing_shortest(d), WIDTH_MAX / d->time);
	double width = d->time * unit, height = d->shape->ranks * ROW;

	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
		"font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
		"<text x=\"%d\" y=\"24\" font-size=\"16\">%s</text>\n"
		"<text x=\"%d\" y=\"46\">%s</text>\n"
		"<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%.1f\" fill=\"#f2f2f2\"/>\n",
		fmax(LEFT + width + 20, 640), TOP + height + 50, LEFT, d->title, LEFT, d->subtitle,
		LEFT, TOP, width, height);
	for (int r = 0; r < d->shape->ranks; r++) {
		double y = TOP + r * ROW + 2;
		fprintf(f, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">rank %d</text>\n",
			LEFT - 8, y + 15, r);
		for (int i = 0; i < d->lists[r].count; i++) {
			const struct virtual_span *span = &d->spans[r][i];
			draw_box(f, &d->lists[r].at[i], d->shape, LEFT + span->start * unit, y,
				 (span->end - span->start) * unit);
		}
	}
	pipeline_drawing_draw_legend(f, d, TOP + height + 16);
	fputs("</svg>\n", f);
}
