/* Homes of a trainer: their GPUs and communicators, and the order of their streams; and its part of
 * a mesh, with its communicators. */
#include "train/state/homes.h"

#include "train/base/base.h"
#include "train/state/trainer_state.h"

#include <stdlib.h>
#include <string.h>

static tutti_status homes_check_place(bool is_there, const char *what, const char *name)
{
	return is_there ? TUTTI_OK
			: fail_invalid("With on_device %s '%s' must lie in %s memory.", what, name,
				       strcmp(what, "buffer") == 0 ? "host" : "device");
}

/* Pointers of the caller's parameter are of its unit's GPU. */
static tutti_status homes_check_param(const tutti_trainer *trainer, const struct param *param)
{
	int home = trainer->layout.unit_homes[param->unit];
	const struct train_device *device = trainer->homes[home].device;
	const void *const pointers[] = {param->data, param->grad};
	int own = train_device_ordinal(device), other;

	for (int i = 0; i < (param_is_trained(param) ? 2 : 1); i++) {
		other = train_device_of(pointers[i]);
		TRY(homes_check_place(other >= 0, "parameter", param->name));
		if (other != own)
			return fail_invalid("Parameter '%s' is memory of CUDA device %d, but the "
					    "stream of its unit '%s' is of device %d: see "
					    "tutti_model_unit_stream.",
					    param->name, other,
					    trainer->model.units[param->unit].name, own);
	}
	return TUTTI_OK;
}

/* The caller's memory must be where the trainer reads it. */
static tutti_status homes_check_places(const tutti_trainer *trainer)
{
	for (int p = 0; p < trainer->model.param_count; p++)
		if (trainer->model.params[p].is_extern && trainer->model.params[p].count > 0)
			TRY(homes_check_param(trainer, &trainer->model.params[p]));
	for (int b = 0; b < trainer->model.buffer_count; b++) {
		const struct buffer *buffer = &trainer->model.buffers[b];
		TRY(homes_check_place(train_device_of(buffer->data) < 0, "buffer", buffer->name));
	}
	return TUTTI_OK;
}

static const char *homes_name_of(const tutti_trainer *trainer, int home)
{
	return trainer->model.units[home_unit(&trainer->layout, &trainer->model, home)].name;
}

/* Two streams of a GPU would be two sets of communicators on it. */
static tutti_status homes_check_gpu(const tutti_trainer *trainer, int home)
{
	int ordinal = train_device_ordinal(trainer->homes[home].device);

	for (int h = 0; h < home; h++)
		if (train_device_ordinal(trainer->homes[h].device) == ordinal)
			return fail_invalid("Units '%s' and '%s' have two streams of CUDA device "
					    "%d: all units of a GPU have one stream.",
					    homes_name_of(trainer, h), homes_name_of(trainer, home),
					    ordinal);
	return TUTTI_OK;
}

static tutti_status homes_open_gpus(tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++) {
		struct home *home = &trainer->homes[h];
		int unit = home_unit(&trainer->layout, &trainer->model, h);
		home->stream = unit < 0 ? trainer->config.stream
					: unit_stream(&trainer->model, &trainer->config, unit);
		TRY(train_device_open(&home->device, home->stream));
		TRY(homes_check_gpu(trainer, h));
	}
	return homes_check_places(trainer);
}

tutti_status homes_open(tutti_trainer *trainer)
{
	int count = trainer->layout.home_count;

	trainer->homes = calloc((size_t)count, sizeof *trainer->homes);
	if (!trainer->homes)
		return fail_no_memory("a trainer's tables");
	trainer->home_count = count;
	for (int h = 0; h < count; h++)
		trainer->homes[h].data_pool.home = trainer->homes[h].grad_pool.home =
			&trainer->homes[h];
	return trainer->config.on_device ? homes_open_gpus(trainer) : TUTTI_OK;
}

static tutti_status homes_split_one(const tutti_trainer *trainer, struct home *home,
				    const tutti_config *config)
{
	int shards = trainer->layout.shard_size, group = trainer->rank / shards;

	if (shards > 1) {
		TRY(tutti_comm_split(trainer->comm, group, trainer->rank, config, &home->gather));
		TRY(tutti_comm_split(trainer->comm, group, trainer->rank, config, &home->reduce));
	}
	if (shards > 1 && trainer->replica_count == 1)
		return TUTTI_OK;
	return tutti_comm_split(trainer->comm, trainer->shard_rank, trainer->rank, config,
				&home->replicas);
}

/* Without a named device a communicator would have that of the caller's, or the current one. */
tutti_status homes_split(tutti_trainer *trainer)
{
	tutti_config config;

	TRY(tutti_comm_config(trainer->comm, &config));
	config.deterministic |= trainer->config.deterministic != 0;
	for (int h = 0; h < trainer->home_count; h++) {
		struct home *home = &trainer->homes[h];
		if (home->device)
			config.device = train_device_ordinal(home->device) + 1;
		TRY(homes_split_one(trainer, home, &config));
	}
	return TUTTI_OK;
}

void homes_close(tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++) {
		train_device_close(trainer->homes[h].device);
		tutti_comm_destroy(trainer->homes[h].gather);
		tutti_comm_destroy(trainer->homes[h].reduce);
		tutti_comm_destroy(trainer->homes[h].replicas);
	}
	free(trainer->homes);
}

tutti_status homes_failure(const tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++)
		if (trainer->homes[h].device)
			TRY(train_device_failure(trainer->homes[h].device));
	return TUTTI_OK;
}

void homes_wait(const tutti_trainer *trainer)
{
	for (int h = 0; h < trainer->home_count; h++)
		if (trainer->homes[h].device)
			train_device_wait(trainer->homes[h].device);
}

/* The later work of this home's stream waits for what the other one has now. */
static void home_follow(const struct home *home, const struct home *other)
{
	if (home != other)
		train_device_follow(home->device, other->device);
}

void homes_join(const tutti_trainer *trainer)
{
	for (int h = 1; h < trainer->home_count; h++)
		home_follow(&trainer->homes[0], &trainer->homes[h]);
}

void homes_enter_unit(const tutti_trainer *trainer, int unit)
{
	const struct home *own = &trainer->homes[trainer->layout.unit_homes[unit]];

	for (const int *span = trainer->layout.unit_spans[unit]; *span >= 0; span++)
		home_follow(own, trainer->buckets[*span].home);
}

void homes_leave_unit(const tutti_trainer *trainer, int unit)
{
	const struct home *own = &trainer->homes[trainer->layout.unit_homes[unit]];

	for (const int *span = trainer->layout.unit_spans[unit]; *span >= 0; span++)
		home_follow(trainer->buckets[*span].home, own);
}

/* ---- a trainer's part of a mesh ---- */

tutti_status mesh_divide(struct trainer_mesh **mesh, struct tutti_model *model,
			 const struct axes *axes, int rank)
{
	struct trainer_mesh *made = calloc(1, sizeof *made);

	if (!made)
		return fail_no_memory("a trainer's tables");
	*mesh = made;
	made->axes = *axes;
	made->rank = rank;
	made->other_count = 1;
	for (int i = 0; i < axes->count; i++)
		if (!axis_is_reduced(axes->axis[i].name))
			made->other_count *= axes->axis[i].size;
	made->conclusions = calloc((size_t)made->other_count, sizeof *made->conclusions);
	if (!made->conclusions)
		return fail_no_memory("a trainer's tables");
	TRY(model_copy(&made->whole, model));
	return model_localize(model, &made->locals, &made->groups, axes, rank);
}

/* Of a tied parameter: whether this rank is on one of its stages. */
static tutti_status homes_split_group(struct trainer_mesh *mesh, int g, tutti_comm *job,
				      const tutti_config *config)
{
	const struct sum_group *group = &mesh->groups.list[g];
	int pp = axes_find(&mesh->axes, "pp", 2);
	bool is_of_it =
		!group->stages || group->stages >> axes_coord(&mesh->axes, pp, mesh->rank) & 1;
	unsigned set = group->axes | (group->stages ? 1u << pp : 0);

	return tutti_comm_split(job, is_of_it ? axes_first(&mesh->axes, mesh->rank, set) : -1,
				mesh->rank, config, &mesh->sums[g]);
}

tutti_status mesh_split(struct trainer_mesh *mesh, tutti_comm *job, const tutti_config *config)
{
	tutti_config named = *config;
	unsigned others = 0;

	named.name = "sums of gradients";
	for (int g = 0; g < mesh->groups.count; g++)
		TRY(homes_split_group(mesh, g, job, &named));
	for (int i = 0; i < mesh->axes.count; i++)
		if (!axis_is_reduced(mesh->axes.axis[i].name))
			others |= 1u << i;
	named.name = "parts of the model";
	named.device = 0;
	if (mesh->other_count == 1)
		return TUTTI_OK;
	TRY(tutti_comm_split(job, axes_first(&mesh->axes, mesh->rank, others), mesh->rank, &named,
			     &mesh->others));
	mesh->other_rank = tutti_rank(mesh->others);
	return TUTTI_OK;
}

void mesh_abort(const struct trainer_mesh *mesh)
{
	if (!mesh)
		return;
	for (int g = 0; g < mesh->groups.count; g++)
		if (mesh->sums[g])
			tutti_comm_abort(mesh->sums[g]);
	if (mesh->others)
		tutti_comm_abort(mesh->others);
}

bool mesh_has_failed(const struct trainer_mesh *mesh)
{
	bool has = mesh && comm_is_broken(mesh->others);

	for (int g = 0; mesh && g < mesh->groups.count; g++)
		has |= comm_is_broken(mesh->sums[g]);
	return has;
}

void mesh_close(struct trainer_mesh *mesh)
{
	if (!mesh)
		return;
	for (int g = 0; g < mesh->groups.count; g++)
		tutti_comm_destroy(mesh->sums[g]);
	tutti_comm_destroy(mesh->others);
	model_finish(&mesh->whole);
	free(mesh->conclusions);
	free(mesh->locals);
	free(mesh);
}

bool mesh_counts_items(const struct trainer_mesh *mesh)
{
	for (int i = 0; mesh && i < mesh->axes.count; i++) {
		const char *name = mesh->axes.axis[i].name;
		if (!axis_is_reduced(name) && strcmp(name, "ep") != 0 &&
		    axes_coord(&mesh->axes, i, mesh->rank) > 0)
			return false;
	}
	return true;
}

int mesh_data(const struct trainer_mesh *mesh)
{
	int ep = axes_find(&mesh->axes, "ep", 2);

	return ep < 0 ? 0 : axes_coord(&mesh->axes, ep, mesh->rank);
}

const struct tutti_model *trainer_whole(const tutti_trainer *trainer)
{
	return trainer->mesh ? &trainer->mesh->whole : &trainer->model;
}
