/* A model whose tensors are split, replicated, partial or tied over the axes of a mesh. Gradients are
 * small integers, so sums are exact and every mesh gives the same bits. */
#ifndef TESTS_TRAIN_MESH_TOY_H
#define TESTS_TRAIN_MESH_TOY_H

#include <tutti/parallel.h>

enum { MESH_UNITS = 4, MESH_PARAMS = 14, MESH_ELEMENTS = 13 * 12 };

/* "dp=2,tp=2" as an array. */
struct mesh_text {
	char text[128];
	tutti_axis axes[8];
	int count;
};
void mesh_text_read(struct mesh_text *mesh, const char *text);

struct mesh_toy {
	tutti_mesh *mesh; /* NULL: a trainer without one */
	tutti_trainer *trainer;
	int rank, size; /* in its communicator */
	int chunks;     /* of a pipeline; 1 */
};

/* The model, for so many stages. The caller destroys it. */
tutti_model *mesh_toy_register(int stages);
/* axes "": without a mesh. Values are drawn from the config's seed. */
tutti_status mesh_toy_try_chunks(struct mesh_toy *toy, tutti_comm *comm, const char *axes,
				 int chunks, const tutti_train_config *config);
tutti_status mesh_toy_try(struct mesh_toy *toy, tutti_comm *comm, const char *axes,
			  const tutti_train_config *config);
/* On a mesh that is there, and goes with the toy if this is OK. */
tutti_status mesh_toy_try_on(struct mesh_toy *toy, tutti_mesh *mesh,
			     const tutti_train_config *config);
/* As mesh_toy_try; a failure is a failed check. */
void mesh_toy_make(struct mesh_toy *toy, tutti_comm *comm, const char *axes,
		   const tutti_train_config *config);
void mesh_toy_destroy(struct mesh_toy *toy);
/* This rank's hooks of a step on the samples of global batch number batch, in micro-batches. */
void mesh_toy_backward(struct mesh_toy *toy, int batch, int micro_batches);
/* The same, which ends with the first call that fails. */
tutti_status mesh_toy_try_backward(struct mesh_toy *toy, int batch, int micro_batches);
/* And the update, by AdamW. */
tutti_status mesh_toy_step(struct mesh_toy *toy, int batch, int micro_batches,
			   tutti_step_info *info);
size_t mesh_toy_count(int param);
/* Collective: all values, MESH_PARAMS * MESH_ELEMENTS of them. */
void mesh_toy_read(struct mesh_toy *toy, float *values);
/* For pipelines: one unit's hooks, and what micro-batch m of the batch adds. */
void mesh_toy_forward(struct mesh_toy *toy, int unit);
void mesh_toy_unit_backward(struct mesh_toy *toy, int unit, int batch, int m, int micro_batches);
/* Items of this rank in a step. */
double mesh_toy_items(const struct mesh_toy *toy, int batch);
/* The units of the step run forward after backward, with held gradients. */
void mesh_toy_hold(struct mesh_toy *toy, int batch, int micro_batches);

#endif
