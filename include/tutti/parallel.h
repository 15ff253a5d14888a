/* Model parallelism on Tutti: meshes of named axes. docs/parallel.md says more. Conventions are
 * those of tutti.h and train.h. */
#ifndef TUTTI_PARALLEL_H
#define TUTTI_PARALLEL_H

#include <tutti/train.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* ---- meshes ------------------------------------------------------------------------------- */
/* The ranks of a communicator as a grid, numbered in C order: ranks that differ in the last axis
 * only are neighbours, so put first what may cross nodes and last what talks most. Names that the
 * trainer knows: "dp" (the strategy of train.h), "tp" (tensors split), "pp" (stages), "cp" (sequence
 * split), "ep" (experts). Others are the caller's own. One thread at a time per mesh. */
typedef struct tutti_mesh tutti_mesh;
typedef struct tutti_axis {
	const char *name;             /* 1 to 31 of a-z, 0-9, _                                  */
	int size;                     /* 0 on one axis at most: what the others leave            */
} tutti_axis;
/* Collective. Up to 8 axes; with num_axes 0 those of the environment's TUTTI_MESH, "dp=2,tp=4", as
 * tuttirun --mesh sets it. The mesh uses comm until it is destroyed. The same error on all ranks:
 * INVALID: the product is not the communicator's size (the message has both), or a bad axis;
 * MISMATCH: ranks pass different axes; else the communicator's, or MEMORY. */
tutti_status tutti_mesh_create(tutti_mesh **mesh, tutti_comm *comm, const tutti_axis *axes,
                               int num_axes);
/* Local; NULL is allowed. Its communicators go with it. */
void tutti_mesh_destroy(tutti_mesh *mesh);
/* The ranks that differ from this one in these axes only ("tp", or "dp,cp" as one), in mesh order;
 * "": this rank alone. The mesh's, until it is destroyed. Single axes exist from create on; a
 * combination is made at its first use, collectively over the mesh (MISMATCH: ranks ask for
 * different ones). NULL: tutti_comm_error(NULL) says why. */
tutti_comm *tutti_mesh_comm(tutti_mesh *mesh, const char *axes);
int tutti_mesh_size(const tutti_mesh *mesh, const char *axis);    /* 1 for an axis that is not there */
int tutti_mesh_coord(const tutti_mesh *mesh, const char *axis);   /* 0 for an axis that is not there */
/* The rank in comm at coords, one for each axis; -1: outside of the mesh. */
int tutti_mesh_rank(const tutti_mesh *mesh, const int *coords);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
