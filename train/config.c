/* The config: what is good, what is built, and what it costs in memory. */
#include "train/bucket.h"
#include "train/explain.h"

#include <math.h>
#include <string.h>

/* Fields that would change what DDP does, but are not built yet. Fields that speak of other
 * strategies (prefetch_units, shard_size, local_sgd_steps ...) mean nothing to DDP and are left
 * alone, so that the strategy can be changed by its one number. */
static tutti_status check_built(const tutti_train_config *c)
{
	const struct {
		const char *name;
		bool is_set;
	} fields[] = {
		{"param_dtype other than TUTTI_F32", c->param_dtype != TUTTI_F32},
		{"grad_dtype other than TUTTI_F32", c->grad_dtype != TUTTI_F32},
		{"reduce_dtype other than TUTTI_F32", c->reduce_dtype != TUTTI_F32},
		{"stochastic_rounding", c->stochastic_rounding != 0},
		{"loss_scale", c->loss_scale != 0},
		{"offload_optimizer", c->offload_optimizer != 0},
		{"offload_dir", c->offload_dir != NULL},
		{"on_device", c->on_device != 0},
		{"stream", c->stream != NULL},
		{"deterministic", c->deterministic != 0},
	};

	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
		if (fields[i].is_set)
			return train_fail(TUTTI_ERR_UNSUPPORTED,
					  "tutti_train_config: %s is not built yet.",
					  fields[i].name);
	return TUTTI_OK;
}

tutti_status config_check(const tutti_train_config *c)
{
	static const char *const names[] = {"TUTTI_DDP",  "TUTTI_ZERO1", "TUTTI_ZERO2",
					    "TUTTI_FSDP", "TUTTI_HSDP",  "TUTTI_LOCAL_SGD"};
	const tutti_train_config zero = {0};

	if (c->strategy < TUTTI_DDP || c->strategy > TUTTI_LOCAL_SGD)
		return train_fail(TUTTI_ERR_INVALID, "There is no strategy %d.", (int)c->strategy);
	if (c->strategy != TUTTI_DDP)
		return train_fail(TUTTI_ERR_UNSUPPORTED,
				  "Strategy %s is not built yet; TUTTI_DDP is.",
				  names[c->strategy]);
	TRY(check_built(c));
	if (!(c->max_grad_norm >= 0) || isinf(c->max_grad_norm))
		return train_fail(TUTTI_ERR_INVALID,
				  "max_grad_norm %g is no norm; 0 means no clipping.",
				  (double)c->max_grad_norm);
	if (c->check_replicas_every < 0)
		return train_fail(TUTTI_ERR_INVALID,
				  "check_replicas_every %d is negative; 0 means never.",
				  c->check_replicas_every);
	if (memcmp(c->reserved, zero.reserved, sizeof zero.reserved) != 0)
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_train_config.reserved is not zero: zero-initialise it.");
	return TUTTI_OK;
}

void trainer_memory(const struct tutti_model *model, tutti_train_stats *stats)
{
	stats->param_bytes = stats->grad_bytes = stats->optimizer_bytes = 0;
	for (int p = 0; p < model->param_count; p++) {
		const struct param *param = &model->params[p];
		size_t bytes = param->count * sizeof(float);
		stats->param_bytes += bytes;
		if (!param_is_trained(param))
			continue;
		bool is_copied = param->is_extern && !param_reduced_in_place(param);
		stats->grad_bytes += is_copied ? 2 * bytes : bytes;
		stats->optimizer_bytes += 2 * bytes;
	}
}

tutti_status tutti_memory_estimate(const tutti_model *model, int world_size,
				   const tutti_train_config *config, tutti_train_stats *stats)
{
	const tutti_train_config zero = {0};

	if (!model || !stats || world_size < 1)
		return train_fail(TUTTI_ERR_INVALID,
				  "tutti_memory_estimate needs a model, a world of 1 or more and "
				  "stats; the world has %d.",
				  world_size);
	TRY(config_check(config ? config : &zero));
	memset(stats, 0, sizeof *stats);
	trainer_memory(model, stats);
	return TUTTI_OK;
}
