/* tutti-info --mesh: the job's ranks as a grid. */
#ifndef TUTTI_INFO_MESH_H
#define TUTTI_INFO_MESH_H

#include <tutti/tutti.h>

/* Collective. Rank 0 prints the grid to stdout. Returns the exit code. */
int mesh_show(tutti_comm *comm, const char *axes);

#endif
