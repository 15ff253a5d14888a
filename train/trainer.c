/* tutti_trainer_create and tutti_trainer_destroy; and the checks of a config, and of the model of
 * all ranks. */
#include "train/trainer.h"

#include "core/callback.h"
#include "train/base/base.h"
#include "train/checkpoint/checkpoint.h"
#include "train/mesh/mesh.h"
#include "train/model/model.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the model of all ranks ---- */

/* The config, every parameter and every buffer is a line of text.
 */

/* The fields that change the collectives or the update. */
static void trainer_describe_config(FILE *text, const tutti_train_config *c)
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

static void trainer_describe_param(FILE *text, const struct tutti_model *model, int p)
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
static void trainer_describe_unit(FILE *text, const tutti_trainer *trainer, int u)
{
	int leader = unit_leader(&trainer->model, &trainer->config, u);

	fprintf(text, "unit '%s'", trainer->model.units[u].name);
	if (trainer->model.units[u].stage >= 0)
		fprintf(text, " of stage %d", trainer->model.units[u].stage);
	if (leader > 0)
		fprintf(text, " in the stream of unit '%s'", trainer->model.units[leader].name);
	fprintf(text, "\n");
}

static void trainer_compare_describe(FILE *text, const void *of)
{
	const tutti_trainer *trainer = of;

	trainer_describe_config(text, &trainer->config);
	for (int p = 0; p < trainer->model.param_count; p++)
		trainer_describe_param(text, &trainer->model, p);
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
		trainer_describe_unit(text, trainer, u);
}

/* Collective: OK if model, buffers and config are the same on all ranks. Otherwise MISMATCH with
 * the same message on all ranks. */
static tutti_status trainer_compare_models(tutti_trainer *trainer)
{
	return texts_compare(trainer->job.comm, "models",
			     "register the same model in the same order on every rank",
			     trainer_compare_describe, trainer);
}

/* ---- the config ---- */

/* Checks: by itself, for a model and for a number of ranks. */

static const char *const strategy_names[] = {"TUTTI_DDP",  "TUTTI_ZERO1", "TUTTI_ZERO2",
					     "TUTTI_FSDP", "TUTTI_HSDP",  "TUTTI_LOCAL_SGD"};

static tutti_status trainer_check_dtypes(const tutti_train_config *c)
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

static tutti_status trainer_config_check_counts(const tutti_train_config *c)
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

static tutti_status trainer_config_check_device(const tutti_train_config *c)
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
	TRY(trainer_config_check_device(c));
	TRY(trainer_check_dtypes(c));
	TRY(trainer_config_check_counts(c));
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
static tutti_status trainer_not_on_a_mesh(const char *what)
{
	return fail(TUTTI_ERR_UNSUPPORTED, "tutti_trainer_create_on: %s.", what);
}

tutti_status config_check_mesh(const tutti_train_config *config, const struct tutti_model *model)
{
	if (config->strategy == TUTTI_LOCAL_SGD)
		return trainer_not_on_a_mesh(
			"TUTTI_LOCAL_SGD is for ranks that have the whole model");
	if (config->whole_tensors)
		return trainer_not_on_a_mesh(
			"whole_tensors would divide ranks' parts differently: set "
			"config.whole_tensors to 0");
	if (config->on_device && config->stochastic_rounding)
		return trainer_not_on_a_mesh("stochastic_rounding is for host memory there");
	for (int p = 0; p < model->param_count; p++)
		if (model->params[p].is_extern)
			return trainer_not_on_a_mesh(
				"parameters are in the trainer's memory, and not in "
				"that of tutti_model_param_extern");
	for (int u = 1; u < model->unit_count; u++)
		if (unit_leader(model, config, u) != 0)
			return trainer_not_on_a_mesh(
				"a rank of a mesh has one GPU: give all units one "
				"stream");
	return TUTTI_OK;
}

/* ---- trainers ---- */

/* The plan for the first micro-batch: forward in the order of registration, then backward. */
static void trainer_plan_units(struct unit_events *plan, int units)
{
	plan->room = 2 * units;
	for (int u = 0; u < units; u++)
		plan->list[plan->count++] = unit_event(u, UNIT_FORWARD);
	for (int u = units - 1; u >= 0; u--)
		plan->list[plan->count++] = unit_event(u, UNIT_BACKWARD);
}

static tutti_status trainer_make_tables(tutti_trainer *trainer, const tutti_model *model)
{
	size_t params = (size_t)model->param_count, units = (size_t)model->unit_count;

	TRY(model_copy(&trainer->model, model));
	if (trainer->config.offload_dir) {
		trainer->offload_dir = strdup(trainer->config.offload_dir);
		if (!trainer->offload_dir)
			return fail_no_memory("a trainer's tables");
		trainer->config.offload_dir = trainer->offload_dir;
	}
	trainer->tensors = calloc(params + 1, sizeof *trainer->tensors);
	trainer->units = calloc(units + 1, sizeof *trainer->units);
	trainer->step.reports = calloc((size_t)trainer->size, sizeof *trainer->step.reports);
	trainer->step.met = calloc((size_t)trainer->size, sizeof *trainer->step.met);
	trainer->plan.list = malloc((2 * units + 1) * sizeof *trainer->plan.list);
	if (!trainer->tensors || !trainer->units || !trainer->step.reports || !trainer->step.met ||
	    !trainer->plan.list)
		return fail_no_memory("a trainer's tables");
	for (size_t p = 0; p < params; p++)
		trainer->tensors[p].optimizer = -1;
	trainer_plan_units(&trainer->plan, model->unit_count);
	return TUTTI_OK;
}

/* Parameters of the trainer's own memory are zero on every rank until they are initialised. */
static tutti_status broadcast_values(tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		if (trainer->model.params[p].is_extern && trainer->model.params[p].count > 0)
			TRY(trainer_broadcast_values(
				trainer, bucket_of(trainer, p)->home, trainer->model.params[p].data,
				trainer->model.params[p].count, trainer->config.param_dtype, 0));
	return TUTTI_OK;
}

static tutti_status trainer_check_memory(tutti_trainer *trainer)
{
	tutti_train_stats needed = {0};

	memory_resident(&trainer->layout, &trainer->model, &trainer->config,
			trainer->rank % trainer->layout.shard_size, &needed);
	needed.gathered_peak_bytes = memory_of_slots(trainer);
	TRY(memory_check(&trainer->config, &needed));
	trainer->stats.param_bytes = needed.param_bytes;
	trainer->stats.grad_bytes = needed.grad_bytes;
	trainer->memory.held_bytes =
		needed.param_bytes + needed.grad_bytes + needed.optimizer_bytes;
	trainer->memory.planned_bytes = trainer->memory.held_bytes + needed.gathered_peak_bytes;
	return TUTTI_OK; /* optimizer state counts when it is made */
}

/* Ranks need different numbers of bytes if shards differ. They fail together. */
static tutti_status trainer_agree_on_memory(tutti_trainer *trainer)
{
	TRY(job_agree(trainer, trainer_check_memory(trainer)));
	double most = (double)trainer->memory.planned_bytes;
	TRY(trainer_all_reduce(trainer, &most, 1, TUTTI_MAX));
	size_t more = (size_t)most - trainer->memory.planned_bytes;
	trainer->memory.planned_bytes += more;
	/* Beyond the plan all ranks make the same slots, and fail together. */
	if (trainer->layout.by_unit)
		trainer->memory.held_bytes += more;
	return TUTTI_OK;
}

/* A shard group is a row of ranks. If it is to be a node, all nodes have the same number of ranks,
 * in a row. */
static tutti_status trainer_check_nodes(tutti_trainer *trainer, int node)
{
	double ends[2] = {node, -node};

	if (trainer->config.strategy != TUTTI_HSDP || trainer->config.shard_size)
		return TUTTI_OK;
	TRY(job_all_reduce(trainer, ends, 2, TUTTI_MIN));
	if (ends[0] != -ends[1])
		return fail_invalid(
			"TUTTI_HSDP without shard_size makes the ranks of a node a shard group, "
			"but nodes have from %d to %d ranks: set shard_size.",
			(int)ends[0], (int)-ends[1]);
	double is_apart = trainer->rank % node != tutti_local_rank(trainer->comm);
	TRY(job_all_reduce(trainer, &is_apart, 1, TUTTI_MAX));
	if (is_apart > 0)
		return fail_invalid(
			"TUTTI_HSDP without shard_size makes the ranks of a node a shard group, "
			"but a node's ranks are not in a row: start ranks node by node (srun "
			"--distribution=block), or set shard_size.");
	return TUTTI_OK;
}

/* tutti_mem_alloc gives a GPU's memory there. */
static tutti_status trainer_check_shared_memory(const tutti_trainer *trainer)
{
	tutti_config config;

	TRY(tutti_comm_config(trainer->comm, &config));
	if (config.device && !trainer->config.on_device)
		return fail_invalid("The communicator was made with config.device, so the memory "
				    "that its ranks share is their GPUs': set "
				    "tutti_train_config.on_device, or make one without device.");
	return TUTTI_OK;
}

/* Memory that others map comes in large units, and some of it is never given back to the driver: so
 * the caller has to ask for it. */
static tutti_status trainer_agree_on_mapping(tutti_trainer *trainer)
{
	tutti_config config;

	if (!trainer->config.on_device)
		return TUTTI_OK;
	TRY(tutti_comm_config(trainer->comm, &config));
	double all_have = config.device > 0;
	TRY(trainer_all_reduce(trainer, &all_have, 1, TUTTI_MIN));
	trainer->memory.is_mapped = all_have > 0;
	return TUTTI_OK;
}

static tutti_status trainer_plan_memory(tutti_trainer *trainer, int node)
{
	const tutti_train_config *config = &trainer->config;

	TRY(trainer_check_shared_memory(trainer));
	TRY(config_check_world(config, trainer->size, node));
	TRY(layout_make(&trainer->layout, &trainer->model, config, trainer->size, node));
	trainer->shard_rank = trainer->rank % trainer->layout.shard_size;
	trainer->replica_count = trainer->layout.replica_count;
	TRY(homes_open(trainer));
	TRY(memory_tables(trainer));
	return norm_create(trainer);
}

/* Leaves what this rank has of the model. */
static tutti_status trainer_divide_model(tutti_trainer *trainer, const tutti_mesh *mesh)
{
	if (!mesh)
		return TUTTI_OK;
	TRY(config_check_mesh(&trainer->config, &trainer->model));
	return mesh_divide(&trainer->mesh, &trainer->model, mesh_axes(mesh), trainer->job.rank);
}

/* Collective over the mesh. */
static tutti_status trainer_split_mesh(tutti_trainer *trainer)
{
	tutti_config config;

	if (!trainer->mesh)
		return TUTTI_OK;
	TRY(tutti_comm_config(trainer->comm, &config));
	config.deterministic |= trainer->config.deterministic != 0;
	if (trainer->homes[0].device)
		config.device = train_device_ordinal(trainer->homes[0].device) + 1;
	return mesh_split(trainer->mesh, trainer->job.comm, &config);
}

/* If one rank fails, all fail. */
static tutti_status trainer_build(tutti_trainer *trainer, const tutti_model *model,
				  const tutti_mesh *mesh)
{
	int node = tutti_local_size(trainer->comm);

	TRY(job_agree(trainer, trainer_make_tables(trainer, model)));
	TRY(trainer_compare_models(trainer));
	TRY(job_agree(trainer, trainer_divide_model(trainer, mesh)));
	TRY(trainer_check_nodes(trainer, node));
	TRY(job_agree(trainer, trainer_plan_memory(trainer, node)));
	TRY(trainer_agree_on_memory(trainer));
	TRY(trainer_agree_on_mapping(trainer));
	TRY(homes_split(trainer));
	TRY(trainer_split_mesh(trainer));
	tutti_status made = memory_place(trainer);
	if (made == TUTTI_OK)
		made = pieces_make(trainer);
	TRY(job_agree(trainer, made == TUTTI_OK ? shadow_make(trainer) : made));
	loss_scale_init(&trainer->scale, &trainer->config);
	trainer->skipped_param = trainer->local.missed = -1;
	TRY(broadcast_values(trainer));
	pieces_widen(trainer); /* master copies begin with the broadcast values */
	return trainer->config.on_device ? job_agree(trainer, homes_failure(trainer)) : TUTTI_OK;
}

static tutti_status trainer_check_arguments(tutti_trainer **trainer, const tutti_model *model,
					    const tutti_train_config *config)
{
	if (!trainer || !model)
		return fail_invalid("tutti_trainer_create needs a place for the trainer and a "
				    "model, not NULL.");
	TRY(config_check(config));
	return config_check_model(config, model);
}

/* The ranks that the strategy divides and reduces over: of a mesh those of "dp" and "cp". */
static tutti_status trainer_find_ranks(tutti_trainer *trainer, tutti_mesh *mesh)
{
	const struct axes *axes = mesh ? mesh_axes(mesh) : NULL;
	char names[2 * AXIS_NAME_BYTES] = "";

	for (int i = 0; mesh && i < axes->count; i++)
		if (axis_is_reduced(axes->axis[i].name))
			strcat(strcat(names, names[0] ? "," : ""), axes->axis[i].name);
	trainer->comm = trainer->job.comm;
	if (mesh)
		TRY(mesh_comm(mesh, names, &trainer->comm));
	trainer->rank = tutti_rank(trainer->comm);
	trainer->size = tutti_size(trainer->comm);
	return TUTTI_OK;
}

/* Collective over the mesh, or comm. */
static tutti_status trainer_create(tutti_trainer **trainer, const tutti_model *model,
				   tutti_comm *comm, tutti_mesh *mesh,
				   const tutti_train_config *config)
{
	const tutti_train_config zero = {0};

	config = config ? config : &zero;
	tutti_trainer first = {.job = {comm, tutti_rank(comm), tutti_size(comm)},
			       .config = *config};
	tutti_status local = trainer_check_arguments(trainer, model, config);
	tutti_trainer *made = local == TUTTI_OK ? malloc(sizeof *made) : NULL;
	if (local == TUTTI_OK && !made)
		local = fail_no_memory("a trainer");
	tutti_status status = job_agree(&first, local);
	if (status == TUTTI_OK)
		status = trainer_find_ranks(&first, mesh);
	if (status != TUTTI_OK) {
		struct kept_error why = kept_error_of(status);
		free(made);
		return kept_error_return(&why);
	}
	*made = first;
	status = trainer_build(made, model, mesh);
	if (status != TUTTI_OK) {
		struct kept_error why = kept_error_of(status);
		tutti_trainer_destroy(made);
		return kept_error_return(&why);
	}
	*trainer = made;
	return TUTTI_OK;
}

tutti_status tutti_trainer_create(tutti_trainer **trainer, tutti_model *model, tutti_comm *comm,
				  const tutti_train_config *config)
{
	if (!comm)
		return fail_invalid("tutti_trainer_create needs a communicator, not NULL.");
	return trainer_create(trainer, model, comm, NULL, config);
}

tutti_status tutti_trainer_create_on(tutti_trainer **trainer, tutti_model *model, tutti_mesh *mesh,
				     const tutti_train_config *config)
{
	if (!mesh)
		return fail_invalid("tutti_trainer_create_on needs a mesh, not NULL.");
	return trainer_create(trainer, model, mesh_all(mesh), mesh, config);
}

void tutti_trainer_destroy(tutti_trainer *trainer)
{
	if (!trainer || callback_refuses("tutti_trainer_destroy"))
		return;
	trainer->comm = trainer->job.comm = NULL; /* may be gone by now: tutti_recover, for one */
	checkpoint_abandon(trainer);
	if (trainer->step.state != STEP_CLOSED) /* other ranks may never join what is in flight */
		trainer_abort(trainer);
	if (trainer->flights.count > 0)
		grads_wait(trainer);
	if (trainer->pieces) { /* without pieces nothing is in flight */
		publish_wait_all(trainer);
		params_drop(trainer);
	}
	memory_free(trainer);
	homes_close(trainer);
	mesh_close(trainer->mesh);
	layout_finish(&trainer->layout);
	free(trainer->tensors);
	free(trainer->units);
	free(trainer->step.reports);
	free(trainer->shares);
	free(trainer->other_shares);
	free(trainer->step.met);
	free(trainer->offload_dir);
	free(trainer->checkpoint_dir);
	free(trainer->last.groups);
	free(trainer->plan.list);
	free(trainer->seen.list);
	model_finish(&trainer->model);
	free(trainer);
}

tutti_status tutti_trainer_stats(const tutti_trainer *trainer, tutti_train_stats *stats)
{
	TRY(trainer_check(trainer, "tutti_trainer_stats"));
	if (!stats)
		return fail_invalid("tutti_trainer_stats needs stats, not NULL.");
	*stats = trainer->stats;
	return TUTTI_OK;
}

int tutti_skipped_param(const tutti_trainer *trainer)
{
	return trainer ? trainer->skipped_param : -1;
}
