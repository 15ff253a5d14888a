#include "train/mesh/grid.h"

#include <string.h>

enum { NODES_SHOWN = 4 };

static int grid_ranks_of(const struct axes *axes)
{
	return axes->axis[0].size * axes->axis[0].stride;
}

/* "dp=0 pp=1" of all axes but the last. */
static int print_place(FILE *file, const struct axes *axes, int rank)
{
	int width = 0;

	for (int i = 0; i < axes->count - 1; i++)
		width += fprintf(file, "%s=%-*d ", axes->axis[i].name,
				 snprintf(NULL, 0, "%d", axes->axis[i].size - 1),
				 axes_coord(axes, i, rank));
	return width;
}

static int place_width(const struct axes *axes)
{
	int width = 0;

	for (int i = 0; i < axes->count - 1; i++)
		width += snprintf(NULL, 0, "%s=%d ", axes->axis[i].name, axes->axis[i].size - 1);
	return width;
}

/* "nodes 0, 1", each once, in the order of ranks. */
static void print_nodes(FILE *file, const int *nodes, int count)
{
	int shown = 0;

	for (int i = 0; i < count; i++) {
		bool is_new = true;
		for (int j = 0; j < i; j++)
			is_new &= nodes[j] != nodes[i];
		if (is_new && shown++ < NODES_SHOWN)
			fprintf(file, "%s%d", shown > 1 ? ", " : "  node ", nodes[i]);
	}
	if (shown > NODES_SHOWN)
		fprintf(file, " and %d more", shown - NODES_SHOWN);
	fputc('\n', file);
}

static void grid_print_row(FILE *file, const struct axes *axes, int first, int column,
			   const int *nodes)
{
	const struct axis *last = &axes->axis[axes->count - 1];

	fputs("  ", file);
	print_place(file, axes, first);
	for (int i = 0; i < last->size; i++)
		fprintf(file, " %*d", column, first + i);
	print_nodes(file, nodes + first, last->size);
}

static bool crosses_nodes(const struct axes *axes, int axis, const int *nodes)
{
	const struct axis *a = &axes->axis[axis];

	for (int r = 0; r < grid_ranks_of(axes); r++)
		if (axes_coord(axes, axis, r) + 1 < a->size && nodes[r] != nodes[r + a->stride])
			return true;
	return false;
}

void grid_print(FILE *file, const struct axes *axes, const int *nodes)
{
	const struct axis *last = &axes->axis[axes->count - 1];
	int ranks = grid_ranks_of(axes);
	int column = snprintf(NULL, 0, "%s=%d", last->name, last->size - 1);
	char text[AXES_TEXT_BYTES];

	axes_write(text, axes);
	fprintf(file, "mesh %s: %d rank%s\n", text, ranks, ranks == 1 ? "" : "s");
	fprintf(file, "  %*s", place_width(axes), "");
	for (int i = 0; i < last->size; i++)
		fprintf(file, " %s=%-*d", last->name, column - (int)strlen(last->name) - 1, i);
	fputc('\n', file);
	for (int first = 0; first < ranks; first += last->size)
		grid_print_row(file, axes, first, column, nodes);
	for (int i = 0; i < axes->count; i++)
		fprintf(file, "  %s %s\n", axes->axis[i].name,
			axes->axis[i].size == 1         ? "has one rank"
			: crosses_nodes(axes, i, nodes) ? "crosses nodes"
							: "stays in a node");
}
