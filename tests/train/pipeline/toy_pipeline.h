/* A pipeline over the toy model of meshes, with its trainer. */
#ifndef TESTS_TOY_PIPELINE_H
#define TESTS_TOY_PIPELINE_H

#include "tests/train/mesh_toy.h"

#include <stdbool.h>

struct toy_pipeline {
	struct mesh_toy toy;
	tutti_pipeline *pipeline; /* NULL: a trainer without one */
	int stages, micro_batches;
};

/* A failure is a failed check. The pipeline has this config, with the trainer; of one without
 * micro-batches there is only the trainer. */
void toy_pipeline_create(struct toy_pipeline *p, tutti_comm *comm, const char *axes,
			 const tutti_train_config *train, const tutti_pipeline_config *config);
void toy_pipeline_destroy(struct toy_pipeline *p);
/* Units are divided over stages evenly. */
bool toy_pipeline_has(const struct toy_pipeline *p, int stage, int unit);
/* What a callback of that stage and micro-batch has to do: its units' backward. */
void toy_pipeline_backward(struct toy_pipeline *p, int stage, int batch, int m);
/* A whole step on the samples of that global batch. */
void toy_pipeline_step(struct toy_pipeline *p, int batch);

#endif
