#include "train/mesh/axes.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";

__attribute__((format(printf, 2, 3))) static bool axes_refuse(char *why, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	vsnprintf(why, AXES_WHY_BYTES, format, list);
	va_end(list);
	return false;
}

bool axes_add(struct axes *axes, const char *name, int size, char why[AXES_WHY_BYTES])
{
	size_t bytes = name ? strlen(name) : 0;

	if (bytes == 0 || bytes >= AXIS_NAME_BYTES || strspn(name, letters) != bytes)
		return axes_refuse(
			why, "an axis has the name '%.40s', but names are 1 to %d of a-z, 0-9, _",
			name ? name : "", AXIS_NAME_BYTES - 1);
	if (axes_find(axes, name, bytes) >= 0)
		return axes_refuse(why, "axis '%s' is named twice", name);
	if (axes->count == AXES_MAX)
		return axes_refuse(why, "there are more than %d axes", AXES_MAX);
	if (size < 0)
		return axes_refuse(why, "axis '%s' has size %d", name, size);
	for (int i = 0; size == 0 && i < axes->count; i++)
		if (axes->axis[i].size == 0)
			return axes_refuse(
				why,
				"axes '%s' and '%s' both have size 0, which one axis may "
				"have: what the others leave",
				axes->axis[i].name, name);
	struct axis *axis = &axes->axis[axes->count++];
	memcpy(axis->name, name, bytes + 1);
	axis->size = size;
	return true;
}

bool axes_read(struct axes *axes, const char *text, char why[AXES_WHY_BYTES])
{
	*axes = (struct axes){0};
	for (const char *at = text;; at++) {
		char name[AXIS_NAME_BYTES + 1] = "", *end = NULL;
		size_t bytes = strcspn(at, "=,");
		long size = 0;

		errno = 0;
		if (at[bytes] == '=')
			size = strtol(at + bytes + 1, &end, 10);
		if (!end || end == at + bytes + 1 || (*end && *end != ',') || errno ||
		    size > INT_MAX || size < INT_MIN)
			return axes_refuse(
				why, "'%.100s' is no mesh: it has to look like dp=2,tp=4", text);
		memcpy(name, at, bytes < AXIS_NAME_BYTES ? bytes : AXIS_NAME_BYTES);
		if (!axes_add(axes, name, (int)size, why))
			return false;
		at = end;
		if (!*at)
			return true;
	}
}

bool axes_fit(struct axes *axes, int ranks, char why[AXES_WHY_BYTES])
{
	char text[AXES_TEXT_BYTES];
	struct axis *open = NULL;
	int64_t product = 1;

	axes_write(text, axes);
	for (int i = 0; i < axes->count; i++) {
		if (axes->axis[i].size == 0)
			open = &axes->axis[i];
		else if (product <= INT_MAX)
			product *= axes->axis[i].size;
	}
	if (product > INT_MAX)
		return axes_refuse(why, "the mesh %s has more ranks than there can be", text);
	if (open && (ranks % product != 0 || ranks < product))
		return axes_refuse(
			why, "the mesh %s leaves no size for '%s': %d ranks are no multiple of %d",
			text, open->name, ranks, (int)product);
	if (!open && product != ranks)
		return axes_refuse(why, "the mesh %s has %d ranks, but there are %d", text,
				   (int)product, ranks);
	if (open)
		open->size = (int)(ranks / product);
	for (int i = axes->count - 1, stride = 1; i >= 0; stride *= axes->axis[i--].size)
		axes->axis[i].stride = stride;
	return true;
}

void axes_write(char text[AXES_TEXT_BYTES], const struct axes *axes)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < axes->count; i++)
		used += (size_t)snprintf(text + used, AXES_TEXT_BYTES - used, "%s%s=%d",
					 i ? "," : "", axes->axis[i].name, axes->axis[i].size);
}

int axes_find(const struct axes *axes, const char *name, size_t bytes)
{
	for (int i = 0; i < axes->count; i++)
		if (strlen(axes->axis[i].name) == bytes &&
		    memcmp(axes->axis[i].name, name, bytes) == 0)
			return i;
	return -1;
}

int axes_coord(const struct axes *axes, int axis, int rank)
{
	return rank / axes->axis[axis].stride % axes->axis[axis].size;
}

int axes_first(const struct axes *axes, int rank, unsigned set)
{
	int first = rank;

	for (int i = 0; i < axes->count; i++)
		if (set >> i & 1)
			first -= axes_coord(axes, i, rank) * axes->axis[i].stride;
	return first;
}

/* ---- the table of ranks ---- */

enum { NODES_SHOWN = 4 };

static int axes_grid_ranks_of(const struct axes *axes)
{
	return axes->axis[0].size * axes->axis[0].stride;
}

/* "dp=0 pp=1" of all axes but the last. */
static int axes_print_place(FILE *file, const struct axes *axes, int rank)
{
	int width = 0;

	for (int i = 0; i < axes->count - 1; i++)
		width += fprintf(file, "%s=%-*d ", axes->axis[i].name,
				 snprintf(NULL, 0, "%d", axes->axis[i].size - 1),
				 axes_coord(axes, i, rank));
	return width;
}

static int axes_place_width(const struct axes *axes)
{
	int width = 0;

	for (int i = 0; i < axes->count - 1; i++)
		width += snprintf(NULL, 0, "%s=%d ", axes->axis[i].name, axes->axis[i].size - 1);
	return width;
}

/* "nodes 0, 1", each once, in the order of ranks. */
static void axes_print_nodes(FILE *file, const int *nodes, int count)
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

static void axes_grid_print_row(FILE *file, const struct axes *axes, int first, int column,
				const int *nodes)
{
	const struct axis *last = &axes->axis[axes->count - 1];

	fputs("  ", file);
	axes_print_place(file, axes, first);
	for (int i = 0; i < last->size; i++)
		fprintf(file, " %*d", column, first + i);
	axes_print_nodes(file, nodes + first, last->size);
}

static bool axes_crosses_nodes(const struct axes *axes, int axis, const int *nodes)
{
	const struct axis *a = &axes->axis[axis];

	for (int r = 0; r < axes_grid_ranks_of(axes); r++)
		if (axes_coord(axes, axis, r) + 1 < a->size && nodes[r] != nodes[r + a->stride])
			return true;
	return false;
}

void grid_print(FILE *file, const struct axes *axes, const int *nodes)
{
	const struct axis *last = &axes->axis[axes->count - 1];
	int ranks = axes_grid_ranks_of(axes);
	int column = snprintf(NULL, 0, "%s=%d", last->name, last->size - 1);
	char text[AXES_TEXT_BYTES];

	axes_write(text, axes);
	fprintf(file, "mesh %s: %d rank%s\n", text, ranks, ranks == 1 ? "" : "s");
	fprintf(file, "  %*s", axes_place_width(axes), "");
	for (int i = 0; i < last->size; i++)
		fprintf(file, " %s=%-*d", last->name, column - (int)strlen(last->name) - 1, i);
	fputc('\n', file);
	for (int first = 0; first < ranks; first += last->size)
		axes_grid_print_row(file, axes, first, column, nodes);
	for (int i = 0; i < axes->count; i++)
		fprintf(file, "  %s %s\n", axes->axis[i].name,
			axes->axis[i].size == 1              ? "has one rank"
			: axes_crosses_nodes(axes, i, nodes) ? "crosses nodes"
							     : "stays in a node");
}
