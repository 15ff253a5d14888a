/* A step of a pipeline as an SVG file: a row for each rank, time from left to right. */
#ifndef TUTTI_PLAN_PIPELINE_DRAWING_H
#define TUTTI_PLAN_PIPELINE_DRAWING_H

#include "train/pipeline/schedule/virtual_step.h"

#include <stdio.h>

struct pipeline_drawing {
	const struct pipeline_shape *shape;
	const struct action_list *lists;
	struct virtual_span *const *spans; /* [rank][action] */
	double time;
	const char *title, *subtitle;
};

void pipeline_draw(FILE *file, const struct pipeline_drawing *drawing);

#endif
