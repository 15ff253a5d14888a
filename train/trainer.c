/* tutti_trainer_create and tutti_trainer_destroy. */
#include "train/trainer.h"

#include "core/callback.h"
#include "train/mesh/mesh.h"
#include "train/base/base.h"
#include "train/checkpoint/checkpoint.h"
#include "train/model/model.h"
#include "train/optimizer/optimizer.h"
#include "train/precision/precision.h"
#include "train/strategies/strategies.h"

#include <stdlib.h>
#include <string.h>

/* The plan for the first micro-batch: forward in the order of registration, then backward. */
static void plan_units(struct unit_events *plan, int units)
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
	plan_units(&trainer->plan, model->unit_count);
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

static tutti_status check_memory(tutti_trainer *trainer)
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
static tutti_status agree_on_memory(tutti_trainer *trainer)
{
	TRY(job_agree(trainer, check_memory(trainer)));
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
static tutti_status check_shared_memory(const tutti_trainer *trainer)
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
static tutti_status agree_on_mapping(tutti_trainer *trainer)
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

static tutti_status plan_memory(tutti_trainer *trainer, int node)
{
	const tutti_train_config *config = &trainer->config;

	TRY(check_shared_memory(trainer));
	TRY(config_check_world(config, trainer->size, node));
	TRY(layout_make(&trainer->layout, &trainer->model, config, trainer->size, node));
	trainer->shard_rank = trainer->rank % trainer->layout.shard_size;
	trainer->replica_count = trainer->layout.replica_count;
	TRY(homes_open(trainer));
	TRY(memory_tables(trainer));
	return norm_create(trainer);
}

/* Leaves what this rank has of the model. */
static tutti_status divide_model(tutti_trainer *trainer, const tutti_mesh *mesh)
{
	if (!mesh)
		return TUTTI_OK;
	TRY(config_check_mesh(&trainer->config, &trainer->model));
	return mesh_divide(&trainer->mesh, &trainer->model, mesh_axes(mesh), trainer->job.rank);
}

/* Collective over the mesh. */
static tutti_status split_mesh(tutti_trainer *trainer)
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
	TRY(compare_models(trainer));
	TRY(job_agree(trainer, divide_model(trainer, mesh)));
	TRY(trainer_check_nodes(trainer, node));
	TRY(job_agree(trainer, plan_memory(trainer, node)));
	TRY(agree_on_memory(trainer));
	TRY(agree_on_mapping(trainer));
	TRY(homes_split(trainer));
	TRY(split_mesh(trainer));
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
