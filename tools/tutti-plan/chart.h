/* Time against ranks, both logarithmic, as an SVG file. */
#ifndef TUTTI_PLAN_CHART_H
#define TUTTI_PLAN_CHART_H

#include "predict.h"

#include <stdio.h>

struct curve {
	const char *name;
	struct point *points;
};

struct chart {
	const char *title, *subtitle[2]; /* the second may be empty */
	struct curve *curves;
	int curve_count, point_count; /* every curve has the same ranks */
};

void chart_draw(FILE *file, const struct chart *chart);

#endif
