/* A stage's life: its layers and their parameters are made when another rank asks for them, and go
 * with the last reference. */
#include "stage_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tutti_status stage_no_memory(void)
{
	return tutti_set_error(TUTTI_ERR_MEMORY, "There is no memory for a stage.");
}

void kept_free(struct kept *kept)
{
	if (kept)
		free(kept->block);
	free(kept);
}

struct kept *kept_make(const struct stage *stage, int rows)
{
	struct kept *kept = calloc(1, sizeof *kept);
	size_t floats = (size_t)stage->layers[0].inputs;

	for (int l = 0; l < stage->num_layers; l++)
		floats += HIDDEN + (size_t)stage->layers[l].outputs;
	if (!kept || !(kept->block = malloc(floats * (size_t)rows * sizeof(float)))) {
		free(kept);
		return NULL;
	}
	float *next = kept->block;
	kept->rows = rows;
	kept->x[0] = next;
	next += rows * stage->layers[0].inputs;
	for (int l = 0; l < stage->num_layers; l++) {
		kept->hidden[l] = next;
		kept->x[l + 1] = next + rows * HIDDEN;
		next = kept->x[l + 1] + rows * stage->layers[l].outputs;
	}
	return kept;
}

struct kept *kept_exchange(struct stage *stage, int part, struct kept *kept)
{
	pthread_mutex_lock(&stage->lock);
	struct kept *before = stage->kept[part];
	stage->kept[part] = kept;
	pthread_mutex_unlock(&stage->lock);
	return before;
}

/* ---- making and ending -------------------------------------------------------------------- */
/* Called when the last reference has gone; the library frees the values when no step uses them. */
static void stage_destroy(void *object)
{
	struct stage *stage = object;

	for (int p = 0; p < stage->num_params; p++)
		tutti_rpc_param_remove(stage->rpc, stage->params[p]);
	for (int part = 0; part < PARTS_MOST; part++)
		kept_free(stage->kept[part]);
	pthread_mutex_destroy(&stage->lock);
	free(stage);
}

/* From here on the values are the library's, if it is OK. */
static tutti_status add_params(struct stage *stage, struct layer *layer)
{
	tutti_status status = TUTTI_OK;

	for (int p = 0; p < LAYER_PARAMS && layer->param[p]; p++) {
		char name[32];
		snprintf(name, sizeof name, "layer %d.%d", layer->number, p);
		if (status == TUTTI_OK)
			status = tutti_rpc_param_add(
				stage->rpc,
				&(tutti_rpc_param){.name = name,
						   .values = layer->param[p],
						   .count = layer->count[p],
						   .release = free,
						   .release_arg = layer->param[p]},
				&stage->params[stage->num_params]);
		if (status == TUTTI_OK)
			stage->num_params++;
		else
			free(layer->param[p]);
	}
	return status;
}

static tutti_status stage_add_layer(struct stage *stage, int number)
{
	struct layer *layer = &stage->layers[stage->num_layers++];

	if (layer_make(layer, number))
		return add_params(stage, layer);
	for (int p = 0; p < LAYER_PARAMS; p++)
		free(layer->param[p]);
	return stage_no_memory();
}

static tutti_status stage_make(tutti_rpc *rpc, const struct stage_layers *layers,
			       struct stage **stage)
{
	struct stage *made = calloc(1, sizeof *made);
	tutti_status status = TUTTI_OK;

	if (!made)
		return stage_no_memory();
	made->rpc = rpc;
	pthread_mutex_init(&made->lock, NULL);
	for (int number = layers->first; status == TUTTI_OK && number <= layers->last; number++)
		status = stage_add_layer(made, number);
	if (status == TUTTI_OK)
		*stage = made;
	else
		stage_destroy(made);
	return status;
}

static tutti_status on_make(void *arg, const tutti_rpc_request *request, tutti_rpc_reply *reply)
{
	tutti_rpc *rpc = request->rpc;
	struct stage_layers layers;
	struct stage *stage = NULL;
	tutti_rpc_ref ref;

	(void)arg;
	if (request->bytes != sizeof layers)
		return tutti_set_error(TUTTI_ERR_INVALID, "This is no list of layers.");
	memcpy(&layers, request->data, sizeof layers);
	if (layers.first < 0 || layers.last < layers.first || layers.last >= LAYERS)
		return tutti_set_error(TUTTI_ERR_INVALID, "There are no such layers.");
	TRY(stage_make(rpc, &layers, &stage));
	tutti_status status = tutti_rpc_ref_create(rpc, stage, stage_destroy, &ref);
	if (status != TUTTI_OK) {
		stage_destroy(stage);
		return status;
	}
	/* The caller's count instead of this rank's. */
	status = tutti_rpc_ref_share(rpc, &ref, request->rank);
	if (status == TUTTI_OK)
		status = tutti_rpc_reply_copy(reply, &ref, sizeof ref);
	tutti_rpc_ref_release(rpc, &ref);
	return status;
}

const tutti_rpc_function stage_functions[STAGE_FUNCTIONS] = {
	{.name = "stage.make", .fn = on_make},
	{.name = "stage.forward", .fn = stage_on_forward},
	{.name = "stage.backward", .fn = stage_on_backward},
};
