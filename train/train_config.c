/* Checks of a config: by itself, for a model and for a number of ranks. */
#include "train/base/base.h"
#include "train/model/model.h"
#include "train/trainer.h"

#include <math.h>
#include <string.h>

static const char *const strategy_names[] = {"TUTTI_DDP",  "TUTTI_ZERO1", "TUTTI_ZERO2",
					     "TUTTI_FSDP", "TUTTI_HSDP",  "TUTTI_LOCAL_SGD"};

static tutti_status check_dtypes(const tutti_train_config *c)
{
	const struct {
		const char *name;
		tutti_dtype dtype;
	} types[] = {{"grad_dtype", c->grad_dtype}, {"reduce_dtype", c->reduce_dtype}};

	if (c->param_dtype != TUTTI_F32 && c->param_dtype != TUTTI_BF16 &&
	    c->param_dtype != TUTTI_F16)
		return fail_invalid("tutti_train_config: param_dtype %d is not TUTTI_F32, "
				    "TUTTI_BF16 or TUTTI_F16.",
				    (int)c->param_dtype);
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].dtype != TUTTI_F32 && types[i].dtype != c->param_dtype)
			return fail_invalid("tutti_train_config: %s %d is neither TUTTI_F32 nor "
					    "param_dtype (%d).",
					    types[i].name, (int)types[i].dtype,
					    (int)c->param_dtype);
	if (c->stochastic_rounding && c->param_dtype != TUTTI_BF16)
		return fail_invalid("tutti_train_config: stochastic_rounding needs param_dtype "
				    "TUTTI_BF16; it is %d.",
				    (int)c->param_dtype);
	if (c->deterministic == 2 && (c->grad_dtype != TUTTI_F32 || c->reduce_dtype != TUTTI_F32))
		return fail_invalid(
			"tutti_train_config: deterministic = 2 needs grad_dtype and reduce_dtype "
			"TUTTI_F32: sums of 16 bits depend on their order.");
	return TUTTI_OK;
}

static tutti_status train_config_check_counts(const tutti_train_config *c)
{
	const struct {
		const char *name;
		int value;
	} counts[] = {{"prefetch_units", c->prefetch_units},
		      {"check_replicas_every", c->check_replicas_every},
		      {"local_sgd_steps", c->local_sgd_steps},
		      {"shard_size", c->shard_size}};

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		if (counts[i].value < 0)
			return fail_invalid("tutti_train_config: %s is %d; it cannot be negative.",
					    counts[i].name, counts[i].value);
	if (c->shadow < 0 || c->shadow > 1)
		return fail_invalid("tutti_train_config: shadow is %d, not 0 or 1.", c->shadow);
	if (c->deterministic < 0 || c->deterministic > 2)
		return fail_invalid("tutti_train_config: deterministic is %d, not 0, 1 or 2.",
				    c->deterministic);
	if (c->strategy == TUTTI_LOCAL_SGD && c->local_sgd_steps == 0)
		return fail_invalid("tutti_train_config: TUTTI_LOCAL_SGD needs local_sgd_steps, "
				    "the steps between averages.");
	return TUTTI_OK;
}

static tutti_status train_config_check_device(const tutti_train_config *c)
{
	if (c->on_device < 0 || c->on_device > 1)
		return fail_invalid("tutti_train_config: on_device is %d, not 0 or 1.",
				    c->on_device);
	if (c->stream && !c->on_device)
		return fail_invalid("tutti_train_config: stream needs on_device.");
	return TUTTI_OK;
}

tutti_status config_check(const tutti_train_config *c)
{
	const tutti_train_config zero = {0};

	if (c->strategy < TUTTI_DDP || c->strategy > TUTTI_LOCAL_SGD)
		return fail_invalid("tutti_train_config: there is no strategy %d.",
				    (int)c->strategy);
	TRY(train_config_check_device(c));
	TRY(check_dtypes(c));
	TRY(train_config_check_counts(c));
	if (!(c->max_grad_norm >= 0) || isinf(c->max_grad_norm))
		return fail_invalid("tutti_train_config: max_grad_norm is %g; it must be finite "
				    "and at least 0 (no clipping).",
				    (double)c->max_grad_norm);
	if (!isfinite(c->loss_scale))
		return fail_invalid("tutti_train_config: loss_scale %g is not finite.",
				    (double)c->loss_scale);
	if (memcmp(c->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return fail_invalid("tutti_train_config.reserved is not zero: zero-initialise it.");
	return TUTTI_OK;
}

tutti_status config_check_model(const tutti_train_config *c, const struct tutti_model *model)
{
	bool keeps_all = c->strategy == TUTTI_DDP || c->strategy == TUTTI_ZERO1 ||
			 c->strategy == TUTTI_LOCAL_SGD;

	for (int u = 0; u < model->unit_count && !c->on_device; u++)
		if (model->units[u].stream)
			return fail_invalid("Unit '%s' has a stream, which needs on_device.",
					    model->units[u].name);
	for (int p = 0; p < model->param_count; p++) {
		const struct param *param = &model->params[p];
		if (!param->is_extern)
			continue;
		if (!keeps_all)
			return fail_invalid("Parameter '%s' lies in the caller's memory, which %s "
					    "cannot free: register it with tutti_model_param, or "
					    "use TUTTI_DDP or TUTTI_ZERO1.",
					    param->name, strategy_names[c->strategy]);
		if (param->dtype != c->param_dtype)
			return fail_invalid(
				"Parameter '%s' is registered with type %d, but param_dtype is %d.",
				param->name, (int)param->dtype, (int)c->param_dtype);
	}
	return TUTTI_OK;
}

tutti_status config_check_world(const tutti_train_config *c, int world_size, int node)
{
	if (c->strategy != TUTTI_HSDP)
		return TUTTI_OK;
	int shard_size = c->shard_size ? c->shard_size : node;
	if (world_size % shard_size != 0)
		return fail_invalid("TUTTI_HSDP cannot divide %d ranks into shard groups of %d "
				    "(%s): set shard_size to a divisor.",
				    world_size, shard_size,
				    c->shard_size ? "shard_size" : "the ranks of a node");
	return TUTTI_OK;
}

/* On a mesh ranks have different parts of the model. */
static tutti_status not_on_a_mesh(const char *what)
{
	return fail(TUTTI_ERR_UNSUPPORTED, "tutti_trainer_create_on: %s.", what);
}

tutti_status config_check_mesh(const tutti_train_config *config, const struct tutti_model *model)
{
	if (config->strategy == TUTTI_LOCAL_SGD)
		return not_on_a_mesh("TUTTI_LOCAL_SGD is for ranks that have the whole model");
	if (config->whole_tensors)
		return not_on_a_mesh("whole_tensors would divide ranks' parts differently: set "
				     "config.whole_tensors to 0");
	if (config->on_device && config->stochastic_rounding)
		return not_on_a_mesh("stochastic_rounding is for host memory there");
	for (int p = 0; p < model->param_count; p++)
		if (model->params[p].is_extern)
			return not_on_a_mesh("parameters are in the trainer's memory, and not in "
					     "that of tutti_model_param_extern");
	for (int u = 1; u < model->unit_count; u++)
		if (unit_leader(model, config, u) != 0)
			return not_on_a_mesh("a rank of a mesh has one GPU: give all units one "
					     "stream");
	return TUTTI_OK;
}
