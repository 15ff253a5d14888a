/* Draws a chart: axes, curves, dots and a legend. */
#include "chart.h"

#include "units.h"

#include <math.h>

#define WIDTH  860
#define HEIGHT 490
#define LEFT   84
#define RIGHT  640
#define TOP    74
#define BOTTOM 430

/* Told apart by the colour-blind too (Okabe, Ito); after eight the dots change. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
				      "#000000", "#e69f00", "#56b4e9", "#8a6d00"};
#define COLOURS ((int)(sizeof colours / sizeof colours[0]))

struct scale {
	double x0, x1, y0, y1; /* logarithms */
};

static double x_of(const struct scale *s, double ranks)
{
	return LEFT + (RIGHT - LEFT) * (log2(ranks) - s->x0) / (s->x1 - s->x0);
}

static double y_of(const struct scale *s, double seconds)
{
	return BOTTOM - (BOTTOM - TOP) * (log10(seconds) - s->y0) / (s->y1 - s->y0);
}

static bool chart_is_shown(const struct point *p)
{
	return p->how != HOW_NOT && p->seconds > 0;
}

/* All points, and to the next mark above and below. */
static struct scale chart_fit(const struct chart *c)
{
	struct scale s = {INFINITY, -INFINITY, INFINITY, -INFINITY};

	for (int i = 0; i < c->curve_count; i++)
		for (int k = 0; k < c->point_count; k++) {
			const struct point *p = &c->curves[i].points[k];
			s.x0 = fmin(s.x0, log2(p->ranks));
			s.x1 = fmax(s.x1, log2(p->ranks));
			if (chart_is_shown(p)) {
				s.y0 = fmin(s.y0, log10(p->seconds));
				s.y1 = fmax(s.y1, log10(p->seconds));
			}
		}
	if (s.y0 > s.y1)
		s.y0 = -6, s.y1 = -5;
	s.y0 = floor(s.y0 * 3 - 0.05) / 3;
	s.y1 = ceil(s.y1 * 3 + 0.05) / 3;
	if (s.x0 >= s.x1)
		s.x1 = s.x0 + 1;
	return s;
}

static void chart_line(FILE *f, double x0, double y0, double x1, double y1)
{
	fprintf(f, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"#ddd\"/>\n", x0, y0, x1, y1);
}

static void chart_text(FILE *f, double x, double y, const char *anchor, const char *words)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
		words);
}

/* 1, 2, 5, 10 us ... where decades are few, decades alone where they are many. */
static void draw_time_axis(FILE *f, const struct scale *s)
{
	static const double marks[] = {1, 2, 5};
	int n = s->y1 - s->y0 > 3 ? 1 : 3;
	char words[32];

	for (int decade = (int)floor(s->y0); decade <= (int)ceil(s->y1); decade++)
		for (int i = 0; i < n; i++) {
			double seconds = marks[i] * pow(10, decade), at = log10(seconds);
			if (at < s->y0 - 1e-9 || at > s->y1 + 1e-9)
				continue;
			double y = y_of(s, seconds);
			chart_line(f, LEFT, y, RIGHT, y);
			if (seconds >= 1)
				snprintf(words, sizeof words, "%g s", seconds);
			else if (seconds >= 0.9e-3)
				snprintf(words, sizeof words, "%g ms", seconds * 1e3);
			else if (seconds >= 0.9e-6)
				snprintf(words, sizeof words, "%g us", seconds * 1e6);
			else
				snprintf(words, sizeof words, "%g ns", seconds * 1e9);
			chart_text(f, LEFT - 8, y + 4, "end", words);
		}
}

static void draw_rank_axis(FILE *f, const struct scale *s)
{
	int every = s->x1 - s->x0 > 9 ? 2 : 1;
	char words[32];

	for (int at = (int)ceil(s->x0); at <= (int)floor(s->x1); at++) {
		double x = x_of(s, ldexp(1, at));
		chart_line(f, x, TOP, x, BOTTOM);
		if ((at - (int)ceil(s->x0)) % every)
			continue;
		if (at < 10)
			snprintf(words, sizeof words, "%d", 1 << at);
		else
			snprintf(words, sizeof words, "%d,%03d", (1 << at) / 1000,
				 (1 << at) % 1000);
		chart_text(f, x, BOTTOM + 18, "middle", words);
	}
	chart_text(f, (LEFT + RIGHT) / 2.0, BOTTOM + 40, "middle", "ranks");
}

/* A run of points: through if the stretch to a point is drawn like the point. */
static void draw_stretches(FILE *f, const struct chart *c, const struct scale *s, int curve,
			   enum how how)
{
	const struct point *p = c->curves[curve].points;
	bool open = false, pen = false;

	for (int k = 1; k < c->point_count; k++) {
		if (!chart_is_shown(&p[k]) || !chart_is_shown(&p[k - 1]) || p[k].how != how) {
			pen = false;
			continue;
		}
		if (!open)
			fputs("<path fill=\"none\" d=\"", f);
		open = true;
		if (!pen)
			fprintf(f, "M%.1f %.1f", x_of(s, p[k - 1].ranks),
				y_of(s, p[k - 1].seconds));
		pen = true;
		fprintf(f, "L%.1f %.1f", x_of(s, p[k].ranks), y_of(s, p[k].seconds));
	}
	if (open)
		fprintf(f, "\" stroke=\"%s\" stroke-width=\"2\"%s/>\n", colours[curve % COLOURS],
			how == HOW_FORMULA ? " stroke-dasharray=\"5 4\"" : "");
}

static void draw_dot(FILE *f, double x, double y, int curve, enum how how)
{
	const char *colour = colours[curve % COLOURS];
	const char *fill = how == HOW_FORMULA ? "#fff" : colour;

	if (curve / COLOURS % 2)
		fprintf(f,
			"<rect x=\"%.1f\" y=\"%.1f\" width=\"6\" height=\"6\" fill=\"%s\" "
			"stroke=\"%s\"/>\n",
			x - 3, y - 3, fill, colour);
	else
		fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\" stroke=\"%s\"/>\n",
			x, y, fill, colour);
}

static void draw_curve(FILE *f, const struct chart *c, const struct scale *s, int curve)
{
	draw_stretches(f, c, s, curve, HOW_SIMULATED);
	draw_stretches(f, c, s, curve, HOW_FORMULA);
	for (int k = 0; k < c->point_count; k++) {
		const struct point *p = &c->curves[curve].points[k];
		if (chart_is_shown(p))
			draw_dot(f, x_of(s, p->ranks), y_of(s, p->seconds), curve, p->how);
	}
}

static const struct point *last_shown(const struct chart *c, int curve)
{
	for (int k = c->point_count - 1; k >= 0; k--)
		if (chart_is_shown(&c->curves[curve].points[k]))
			return &c->curves[curve].points[k];
	return NULL;
}

/* From top to bottom as the curves end on the right, slowest first; then those that end before. */
static bool goes_before(const struct chart *c, int a, int b)
{
	const struct point *x = last_shown(c, a), *y = last_shown(c, b);
	if (!x || !y)
		return x && !y;
	return x->ranks != y->ranks ? x->ranks > y->ranks : x->seconds > y->seconds;
}

static void chart_draw_legend(FILE *f, const struct chart *c)
{
	bool extrapolated = false, cut = false;
	int last = c->curves[0].points[c->point_count - 1].ranks;

	for (int i = 0; i < c->curve_count; i++) {
		int row = 0;
		const struct point *end = last_shown(c, i);
		for (int k = 0; k < c->curve_count; k++)
			row += k != i && (goes_before(c, k, i) || (!goes_before(c, i, k) && k < i));
		double y = TOP + 12 + 22.0 * row;
		fprintf(f, "<path d=\"M%d %.1fh26\" stroke=\"%s\" stroke-width=\"2\"/>\n",
			RIGHT + 20, y, colours[i % COLOURS]);
		draw_dot(f, RIGHT + 33, y, i, HOW_SIMULATED);
		chart_text(f, RIGHT + 54, y + 4, "start", c->curves[i].name);
		extrapolated |= end && end->how == HOW_FORMULA;
		cut |= !end || end->ranks < last;
	}
	double y = TOP + 24 + 22.0 * c->curve_count;
	if (extrapolated) {
		chart_text(f, RIGHT + 20, y, "start", "dashed: extrapolated by");
		chart_text(f, RIGHT + 20, y + 16, "start", "the cost formula");
	}
	if (cut) {
		chart_text(f, RIGHT + 20, y + 38, "start", "a curve that ends early:");
		chart_text(f, RIGHT + 20, y + 54, "start", "not for so many ranks");
	}
}

void chart_draw(FILE *f, const struct chart *c)
{
	struct scale s = chart_fit(c);

	fprintf(f,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
		"viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
		"<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
		"<text x=\"%d\" y=\"24\" font-size=\"16\">%s</text>\n",
		WIDTH, HEIGHT, WIDTH, HEIGHT, LEFT, c->title);
	chart_text(f, LEFT, 44, "start", c->subtitle[0]);
	chart_text(f, LEFT, 62, "start", c->subtitle[1]);
	draw_time_axis(f, &s);
	draw_rank_axis(f, &s);
	fprintf(f,
		"<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
		"stroke=\"#888\"/>\n"
		"<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\">predicted "
		"time</text>\n",
		LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP, (TOP + BOTTOM) / 2);
	for (int i = 0; i < c->curve_count; i++)
		draw_curve(f, c, &s, i);
	chart_draw_legend(f, c);
	fputs("</svg>\n", f);
}
