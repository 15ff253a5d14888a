/* A trainer's part of a mesh, and its communicators. */
#include "train/state/trainer_state.h"

#include "train/base/base.h"

#include <stdlib.h>
#include <string.h>

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

/* The least rank that differs from this one in the axes of the set only. */
static int trainer_mesh_first_of(const struct trainer_mesh *mesh, unsigned set)
{
	int first = mesh->rank;

	for (int i = 0; i < mesh->axes.count; i++)
		if (set >> i & 1)
			first -= axes_coord(&mesh->axes, i, mesh->rank) * mesh->axes.axis[i].stride;
	return first;
}

/* Of a tied parameter: whether this rank is on one of its stages. */
static tutti_status split_group(struct trainer_mesh *mesh, int g, tutti_comm *job,
				const tutti_config *config)
{
	const struct sum_group *group = &mesh->groups.list[g];
	int pp = axes_find(&mesh->axes, "pp", 2);
	bool is_of_it =
		!group->stages || group->stages >> axes_coord(&mesh->axes, pp, mesh->rank) & 1;
	unsigned set = group->axes | (group->stages ? 1u << pp : 0);

	return tutti_comm_split(job, is_of_it ? trainer_mesh_first_of(mesh, set) : -1, mesh->rank,
				config, &mesh->sums[g]);
}

tutti_status mesh_split(struct trainer_mesh *mesh, tutti_comm *job, const tutti_config *config)
{
	tutti_config named = *config;
	unsigned others = 0;

	named.name = "sums of gradients";
	for (int g = 0; g < mesh->groups.count; g++)
		TRY(split_group(mesh, g, job, &named));
	for (int i = 0; i < mesh->axes.count; i++)
		if (!axis_is_reduced(mesh->axes.axis[i].name))
			others |= 1u << i;
	named.name = "parts of the model";
	named.device = 0;
	if (mesh->other_count == 1)
		return TUTTI_OK;
	TRY(tutti_comm_split(job, trainer_mesh_first_of(mesh, others), mesh->rank, &named,
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
