/* The parts of a mesh that the trainer and tutti_mesh_continue need. */
#ifndef TRAIN_MESH_MESH_H
#define TRAIN_MESH_MESH_H

#include "train/mesh/axes.h"

#include <tutti/parallel.h>

/* The communicator that it was made of, the caller's. */
tutti_comm *mesh_all(const tutti_mesh *mesh);
/* As tutti_mesh_comm. */
tutti_status mesh_comm(tutti_mesh *mesh, const char *axes, tutti_comm **comm);
const struct axes *mesh_axes(const tutti_mesh *mesh);

#endif
