/* The axes of a mesh: names and sizes, which rank lies where, and the text "dp=2,tp=4". Plain
 * values without communication, and a table to print: tuttirun and tools are compiled with this
 * file, too. */
#ifndef TRAIN_MESH_AXES_H
#define TRAIN_MESH_AXES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
	AXES_MAX = 8,
	AXIS_NAME_BYTES = 32,
	AXES_TEXT_BYTES = 384, /* of any axes */
	AXES_WHY_BYTES = 512,
};

struct axis {
	char name[AXIS_NAME_BYTES];
	int size;   /* 0 on one axis at most, until axes_fit */
	int stride; /* between ranks that are neighbours along the axis */
};

/* Ranks are numbered in C order: the last axis has stride 1. */
struct axes {
	struct axis axis[AXES_MAX];
	int count;
};

/* Each returns false with the reason in why, without a full stop. */
bool axes_add(struct axes *axes, const char *name, int size, char why[AXES_WHY_BYTES]);
/* text: "dp=2,tp=0". */
bool axes_read(struct axes *axes, const char *text, char why[AXES_WHY_BYTES]);
/* Sets the size that was left open, and the strides, for so many ranks. */
bool axes_fit(struct axes *axes, int ranks, char why[AXES_WHY_BYTES]);

void axes_write(char text[AXES_TEXT_BYTES], const struct axes *axes);
/* The axis of this name, of so many bytes; -1: there is none. */
int axes_find(const struct axes *axes, const char *name, size_t bytes);
int axes_coord(const struct axes *axes, int axis, int rank);
/* The least rank that differs from this one in the axes of the set only; bit i: axis i. */
int axes_first(const struct axes *axes, int rank, unsigned set);

/* Prints the ranks as a table: the last axis from left to right, a line for each place on the
 * others. nodes[r]: the node of rank r. Also prints for each axis whether it leaves a node. */
void grid_print(FILE *file, const struct axes *axes, const int *nodes);

#endif
