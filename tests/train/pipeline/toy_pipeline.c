/* A pipeline over the toy model of meshes. */
#include "tests/train/pipeline/toy_pipeline.h"

#include "tests/train/ranks.h"
#include "tests/train/toy.h"

void toy_pipeline_create(struct toy_pipeline *p, tutti_comm *comm, const char *axes,
			 const tutti_train_config *train, const tutti_pipeline_config *config)
{
	tutti_pipeline_config own = *config;

	*p = (struct toy_pipeline){.micro_batches = config->micro_batches};
	CHECK(mesh_toy_try_chunks(&p->toy, comm, axes, config->chunks, train) == TUTTI_OK);
	p->stages = tutti_mesh_size(p->toy.mesh, "pp") * config->chunks;
	own.trainer = p->toy.trainer;
	if (config->micro_batches)
		CHECK(tutti_pipeline_create(&p->pipeline, p->toy.mesh, &own) == TUTTI_OK);
}

void toy_pipeline_destroy(struct toy_pipeline *p)
{
	tutti_pipeline_destroy(p->pipeline);
	mesh_toy_destroy(&p->toy);
}

bool toy_pipeline_has(const struct toy_pipeline *p, int stage, int unit)
{
	return unit * p->stages / MESH_UNITS == stage;
}

void toy_pipeline_backward(struct toy_pipeline *p, int stage, int batch, int m)
{
	for (int u = MESH_UNITS - 1; u >= 0; u--)
		if (toy_pipeline_has(p, stage, u))
			mesh_toy_unit_backward(&p->toy, u, batch, m, p->micro_batches);
}

void toy_pipeline_step(struct toy_pipeline *p, int batch)
{
	CHECK(tutti_micro_batch(p->toy.trainer, TUTTI_PASS_LAST, mesh_toy_items(&p->toy, batch),
				NULL) == TUTTI_OK);
	CHECK(tutti_pipeline_run(p->pipeline) == TUTTI_OK);
	CHECK(tutti_step(p->toy.trainer, &toy_adamw, 1, NULL) == TUTTI_OK);
}
