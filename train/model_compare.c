/* Compares the model of all ranks: the config, every parameter and every buffer is a line of text.
 */
#include "train/base/base.h"
#include "train/trainer.h"

#include <stdio.h>
#include <string.h>

/* The fields that change the collectives or the update. */
static void describe_config(FILE *text, const tutti_train_config *c)
{
	fprintf(text,
		"config with strategy %d, types %d %d %d, stochastic_rounding %d, loss_scale %a, "
		"max_grad_norm %a, "
		"bucket_bytes %zu, prefetch_units %d, keep_after_forward %d, whole_tensors %d\n",
		(int)c->strategy, (int)c->param_dtype, (int)c->grad_dtype, (int)c->reduce_dtype,
		c->stochastic_rounding, (double)c->loss_scale, (double)c->max_grad_norm,
		c->bucket_bytes, c->prefetch_units, c->keep_after_forward, c->whole_tensors);
	fprintf(text,
		"config with deterministic %d, check_replicas_every %d, memory_limit %zu, "
		"local_sgd_steps %d, local_sgd_state %d, shard_size %d, seed %llu, shadow %d, "
		"on_device %d\n",
		c->deterministic, c->check_replicas_every, c->memory_limit, c->local_sgd_steps,
		c->local_sgd_state, c->shard_size, (unsigned long long)c->seed, c->shadow,
		c->on_device);
}

static void describe_param(FILE *text, const struct tutti_model *model, int p)
{
	const struct param *param = &model->params[p];

	static const char *const types[] = {
		[TUTTI_F32] = "f32", [TUTTI_F16] = "f16", [TUTTI_BF16] = "bf16"};

	fprintf(text, "%s '%s' of unit '%s': %s [",
		param->is_extern ? "extern parameter" : "parameter", param->name,
		model->units[param->unit].name, types[param->dtype]);
	for (int i = 0; i < param->ndim; i++)
		fprintf(text, "%s%lld", i ? ", " : "", (long long)param->shape[i]);
	fprintf(text, "], flags 0x%x, group %d", param->flags, param->group);
	for (int i = 0; i < model->use_count; i++)
		if (model->uses[i].param == p && model->uses[i].unit != param->unit)
			fprintf(text, ", used by '%s'", model->units[model->uses[i].unit].name);
	if (param->split_axis[0])
		fprintf(text, ", split over '%s' along %d", param->split_axis, param->split_dim);
	if (param->partial[0])
		fprintf(text, ", partial over %.*s", (int)strlen(param->partial) - 1,
			param->partial);
	fprintf(text, "\n");
}

/* Units of one stream lie in one place, and ranks call the same home's collectives. */
static void describe_unit(FILE *text, const tutti_trainer *trainer, int u)
{
	int leader = unit_leader(&trainer->model, &trainer->config, u);

	fprintf(text, "unit '%s'", trainer->model.units[u].name);
	if (trainer->model.units[u].stage >= 0)
		fprintf(text, " of stage %d", trainer->model.units[u].stage);
	if (leader > 0)
		fprintf(text, " in the stream of unit '%s'", trainer->model.units[leader].name);
	fprintf(text, "\n");
}

static void model_compare_describe(FILE *text, const void *of)
{
	const tutti_trainer *trainer = of;

	describe_config(text, &trainer->config);
	for (int p = 0; p < trainer->model.param_count; p++)
		describe_param(text, &trainer->model, p);
	for (int b = 0; b < trainer->model.buffer_count; b++) {
		const struct buffer *buffer = &trainer->model.buffers[b];
		fprintf(text, "buffer '%s': %zu of type %d\n", buffer->name, buffer->count,
			(int)buffer->dtype);
	}
	for (int s = 0; s < trainer->model.state_count; s++) {
		const struct state *state = &trainer->model.states[s];
		fprintf(text, "state '%s': %zu bytes%s\n", state->name, state->bytes,
			state->per_rank ? " of each rank" : "");
	}
	for (int u = 0; u < trainer->model.unit_count; u++)
		describe_unit(text, trainer, u);
}

tutti_status compare_models(tutti_trainer *trainer)
{
	return texts_compare(trainer->job.comm, "models",
			     "register the same model in the same order on every rank",
			     model_compare_describe, trainer);
}
