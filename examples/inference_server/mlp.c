/* See mlp.h. A batch is faster than its requests one by one because the weights, megabytes of them,
 * come from memory once for all of them. */
#include "mlp.h"

#include <stdio.h>
#include <string.h>

enum { AT_ONCE = 4 }; /* inputs whose weights are in the first-level cache while requests go by */

static const int sizes[LAYERS + 1] = {INPUTS, HIDDEN, HIDDEN, OUTPUTS};

static tutti_status register_layers(tutti_model *model)
{
	char name[32];
	int last = 0;

	for (int l = 0; l < LAYERS && last >= 0; l++) {
		snprintf(name, sizeof name, "layer.%d", l);
		int unit = tutti_model_unit(model, name);
		snprintf(name, sizeof name, "layer.%d.weight", l);
		tutti_model_param(model, unit, name, 2, (int64_t[]){sizes[l], sizes[l + 1]},
				  TUTTI_PARAM_FROZEN);
		snprintf(name, sizeof name, "layer.%d.bias", l);
		last = tutti_model_param(model, unit, name, 1, (int64_t[]){sizes[l + 1]},
					 TUTTI_PARAM_FROZEN);
	}
	return last < 0 ? TUTTI_ERR_MEMORY : TUTTI_OK;
}

static tutti_status mlp_create_trainer(struct mlp *mlp)
{
	tutti_model *model;

	TRY(tutti_model_create(&model));
	tutti_status status = register_layers(model);
	if (status == TUTTI_OK)
		status = tutti_trainer_create(&mlp->trainer, model, mlp->alone, NULL);
	tutti_model_destroy(model);
	return status;
}

static tutti_status mlp_set_values(struct mlp *mlp, const char *file)
{
	if (file)
		return tutti_import_safetensors(mlp->trainer, file);
	for (int p = 0; p < 2 * LAYERS; p++)
		TRY(tutti_param_init_normal(mlp->trainer, p, 0, 0.05f));
	return TUTTI_OK;
}

tutti_status mlp_create(struct mlp *mlp, const char *file)
{
	memset(mlp, 0, sizeof *mlp);
	TRY(tutti_init(&mlp->alone, &(tutti_config){.world_size = 1}));
	TRY(mlp_create_trainer(mlp));
	TRY(mlp_set_values(mlp, file));
	for (int l = 0; l < LAYERS; l++) {
		mlp->weight[l] = tutti_param_data(mlp->trainer, 2 * l);
		mlp->bias[l] = tutti_param_data(mlp->trainer, 2 * l + 1);
	}
	return TUTTI_OK;
}

tutti_status mlp_export(const struct mlp *mlp, const char *file)
{
	return tutti_export_safetensors(mlp->trainer, file);
}

void mlp_destroy(struct mlp *mlp)
{
	tutti_trainer_destroy(mlp->trainer);
	tutti_comm_destroy(mlp->alone);
}

/* out[0..n) += the weights of AT_ONCE inputs times these inputs. */
static void add_products(float *restrict out, const float *restrict weight,
			 const float *restrict input, int n)
{
	const float *w0 = weight, *w1 = w0 + n, *w2 = w1 + n, *w3 = w2 + n;

	for (int o = 0; o < n; o++) {
		float sum = out[o] + w0[o] * input[0];
		sum += w1[o] * input[1];
		sum += w2[o] * input[2];
		out[o] = sum + w3[o] * input[3];
	}
}

static void run_layer(const struct mlp *mlp, int l, const float *const *inputs,
		      float *const *outputs, int count)
{
	size_t n = (size_t)sizes[l + 1];

	for (int b = 0; b < count; b++)
		memcpy(outputs[b], mlp->bias[l], n * sizeof(float));
	for (int i = 0; i < sizes[l]; i += AT_ONCE) {
		for (int b = 0; b < count; b++)
			add_products(outputs[b], mlp->weight[l] + (size_t)i * n, inputs[b] + i,
				     (int)n);
	}
	for (int b = 0; b < count && l + 1 < LAYERS; b++) {
		for (size_t o = 0; o < n; o++)
			outputs[b][o] = outputs[b][o] > 0 ? outputs[b][o] : 0;
	}
}

void mlp_infer(const struct mlp *mlp, const float *const *inputs, float *const *outputs, int count,
	       float *scratch)
{
	float *first[MOST_BATCH], *second[MOST_BATCH];

	for (int b = 0; b < count; b++) {
		first[b] = scratch + (size_t)(2 * b) * HIDDEN;
		second[b] = first[b] + HIDDEN;
	}
	run_layer(mlp, 0, inputs, first, count);
	run_layer(mlp, 1, (const float *const *)first, second, count);
	run_layer(mlp, 2, (const float *const *)second, outputs, count);
}
