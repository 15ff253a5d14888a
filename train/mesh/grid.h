/* A mesh as a table of ranks: the last axis from left to right, a line for each place on the
 * others. tuttirun and tools are compiled with this file, too. */
#ifndef TRAIN_MESH_GRID_H
#define TRAIN_MESH_GRID_H

#include "train/mesh/axes.h"

#include <stdio.h>

/* nodes[r]: the node of rank r. Also prints for each axis whether it leaves a node. */
void grid_print(FILE *file, const struct axes *axes, const int *nodes);

#endif
