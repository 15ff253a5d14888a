/* Model parallelism: how a model is divided over a mesh, and what of it is on one rank. */
#include "train/base/base.h"
#include "train/model/model.h"

#include <tutti/parallel.h>

#include <stdlib.h>
#include <string.h>

bool axis_is_reduced(const char *name)
{
	return strcmp(name, "dp") == 0 || strcmp(name, "cp") == 0;
}

/* ---- registration ---- */

static tutti_status model_mesh_check_axis(const char *function, const char *axis)
{
	struct axes axes = {0};
	char why[AXES_WHY_BYTES];

	if (!axes_add(&axes, axis, 1, why))
		return fail_invalid("%s: %s.", function, why);
	if (axis_is_reduced(axis) || strcmp(axis, "pp") == 0)
		return fail_invalid("%s: axis '%s' divides %s.", function, axis,
				    strcmp(axis, "pp") == 0
					    ? "units: see tutti_model_unit_stage"
					    : "data, and gradients are summed over it "
					      "in any case");
	return TUTTI_OK;
}

tutti_status tutti_model_param_split(tutti_model *model, int param, const char *axis, int dim)
{
	TRY(model_check_param(model, "tutti_model_param_split", param));
	TRY(model_mesh_check_axis("tutti_model_param_split", axis));
	struct param *of = &model->params[param];
	if (dim < 0 || dim >= of->ndim)
		return fail_invalid("tutti_model_param_split: parameter '%s' has no dimension %d, "
				    "but %d of them.",
				    of->name, dim, of->ndim);
	strcpy(of->split_axis, axis);
	of->split_dim = dim;
	return TUTTI_OK;
}

/* Whether the list, "tp,ep,", has the axis. */
static bool model_mesh_list_has(const char *list, const char *axis)
{
	size_t bytes = strlen(axis);

	for (const char *at = list; *at; at += strcspn(at, ",") + 1)
		if (strncmp(at, axis, bytes) == 0 && at[bytes] == ',')
			return true;
	return false;
}

tutti_status tutti_model_param_partial(tutti_model *model, int param, const char *axis)
{
	TRY(model_check_param(model, "tutti_model_param_partial", param));
	TRY(model_mesh_check_axis("tutti_model_param_partial", axis));
	char *list = model->params[param].partial;
	if (model_mesh_list_has(list, axis))
		return TUTTI_OK;
	if (strlen(list) + strlen(axis) + 2 > MODEL_PARTIAL_BYTES)
		return fail_invalid(
			"tutti_model_param_partial: the axes of parameter '%s' have more "
			"than %d characters.",
			model->params[param].name, MODEL_PARTIAL_BYTES - 1);
	strcat(strcat(list, axis), ",");
	return TUTTI_OK;
}

tutti_status tutti_model_unit_stage(tutti_model *model, int unit, int stage)
{
	if (!model || unit < 0 || unit >= model->unit_count)
		return fail_invalid("tutti_model_unit_stage: there is no unit %d among %d.", unit,
				    model ? model->unit_count : 0);
	if (stage < 0)
		return fail_invalid("tutti_model_unit_stage: unit '%s' cannot have stage %d.",
				    model->units[unit].name, stage);
	model->units[unit].stage = stage;
	return TUTTI_OK;
}

/* ---- one rank's part ---- */

static int model_mesh_find(const struct axes *axes, const char *name)
{
	return axes_find(axes, name, strlen(name));
}

/* Stage s is on coordinate s modulo "pp"'s size. */
static int model_mesh_stage_place(const struct unit *unit, const struct axes *axes)
{
	int pp = model_mesh_find(axes, "pp");

	return pp < 0 ? 0 : unit->stage % axes->axis[pp].size;
}

bool unit_is_here(const struct unit *unit, const struct axes *axes, int rank)
{
	int pp = model_mesh_find(axes, "pp");

	return pp < 0 || model_mesh_stage_place(unit, axes) == axes_coord(axes, pp, rank);
}

/* The coordinates of "pp" that have the parameter, as bits. */
static uint64_t model_mesh_stages_of(const struct tutti_model *model, const struct axes *axes,
				     int param)
{
	uint64_t stages = 0;

	for (int i = 0; i < model->use_count; i++)
		if (model->uses[i].param == param)
			stages |= (uint64_t)1 << model_mesh_stage_place(
					  &model->units[model->uses[i].unit], axes);
	return stages;
}

static tutti_status model_mesh_check_stages(const struct tutti_model *model,
					    const struct axes *axes)
{
	int pp = model_mesh_find(axes, "pp");

	if (pp < 0)
		return TUTTI_OK;
	if (axes->axis[pp].size > MODEL_STAGES)
		return fail_invalid("'pp' has %d ranks; at most %d are allowed.",
				    axes->axis[pp].size, MODEL_STAGES);
	for (int u = 0; u < model->unit_count && axes->axis[pp].size > 1; u++)
		if (model->units[u].stage < 0)
			return fail_invalid("The mesh has %d stages, but unit '%s' has none: see "
					    "tutti_model_unit_stage.",
					    axes->axis[pp].size, model->units[u].name);
	return TUTTI_OK;
}

/* Sets the shape of this rank's piece. If the dimension is shorter than the axis, the last ranks
 * have no elements. */
static void model_mesh_take_piece(struct param *param, const struct axes *axes, int rank)
{
	int axis = param->split_axis[0] ? model_mesh_find(axes, param->split_axis) : -1;
	int parts = axis < 0 ? 1 : axes->axis[axis].size;
	struct mesh_part *part = &param->part;

	if (parts == 1)
		return;
	int64_t size = param->shape[param->split_dim];
	part->order = (struct tensor_order){param->split_dim, parts};
	part->piece = axes_coord(axes, axis, rank);
	part->first = order_first(part->order, param->ndim, param->shape, part->piece);
	if (size > 0)
		param->count =
			part->whole / (size_t)size * (size_t)split_count(size, parts, part->piece);
}

/* The axes over which its gradient is added up: those that were given, and "ep", whose ranks have
 * other data. */
static unsigned model_mesh_sum_axes(const struct param *param, const struct axes *axes)
{
	unsigned set = 0;

	for (int i = 0; i < axes->count; i++) {
		const char *name = axes->axis[i].name;
		bool is_data = strcmp(name, "ep") == 0;
		if (axes->axis[i].size > 1 && strcmp(name, param->split_axis) != 0 &&
		    (is_data || model_mesh_list_has(param->partial, name)))
			set |= 1u << i;
	}
	return set;
}

static tutti_status model_mesh_take_group(struct param *param, struct model_groups *groups,
					  unsigned axes, uint64_t stages)
{
	struct sum_group group = {axes, param->part.is_tied ? stages : 0};

	if (!param_is_trained(param) || (group.axes == 0 && group.stages == 0))
		return TUTTI_OK;
	for (int g = 0; g < groups->count; g++)
		if (groups->list[g].axes == group.axes && groups->list[g].stages == group.stages)
			param->part.sum_group = g;
	if (param->part.sum_group >= 0)
		return TUTTI_OK;
	if (groups->count == MODEL_SUM_GROUPS)
		return fail_invalid("More than %d sets of axes and stages have gradients that are "
				    "added up among them.",
				    MODEL_SUM_GROUPS);
	param->part.sum_group = groups->count;
	groups->list[groups->count++] = group;
	return TUTTI_OK;
}

/* Of several ranks with the same elements the first counts. */
static bool model_mesh_is_first(const struct param *param, const struct axes *axes, int rank,
				uint64_t stages)
{
	for (int i = 0; i < axes->count; i++) {
		const char *name = axes->axis[i].name;
		int coord = axes_coord(axes, i, rank);
		if (strcmp(name, "pp") == 0 ? (stages & (((uint64_t)1 << coord) - 1)) != 0
					    : coord > 0 && !axis_is_reduced(name) &&
						      strcmp(name, param->split_axis) != 0)
			return false;
	}
	return true;
}

/* The axis that divides it on this mesh. */
static const char *model_mesh_axis_of(const struct param *param)
{
	return param->part.order.parts > 1 ? param->split_axis : "";
}

/* Ranks that share a replicated tensor have the same spans of such tensors, whatever else they
 * have. So the kind is its axis and its group, numbered as the whole model has them. */
static void model_mesh_take_kind(struct tutti_model *model, int param)
{
	struct param *of = &model->params[param];

	of->part.kind = model->kind_count;
	for (int p = 0; p < param; p++) {
		const struct param *other = &model->params[p];
		if (other->part.sum_group == of->part.sum_group &&
		    other->part.is_tied == of->part.is_tied &&
		    strcmp(model_mesh_axis_of(other), model_mesh_axis_of(of)) == 0) {
			of->part.kind = other->part.kind;
			return;
		}
	}
	model->kind_count++;
}

static tutti_status model_mesh_divide(struct tutti_model *model, struct model_groups *groups,
				      const struct axes *axes, int rank)
{
	model->kind_count = 0;
	for (int p = 0; p < model->param_count; p++) {
		struct param *param = &model->params[p];
		uint64_t stages = model_mesh_stages_of(model, axes, p);
		model_mesh_take_piece(param, axes, rank);
		param->part.is_tied = (stages & (stages - 1)) != 0;
		TRY(model_mesh_take_group(param, groups, model_mesh_sum_axes(param, axes), stages));
		model_mesh_take_kind(model, p);
		param->part.is_counted = model_mesh_is_first(param, axes, rank, stages);
	}
	model->kind_count = model->kind_count > 0 ? model->kind_count : 1;
	return TUTTI_OK;
}

/* Removes what is on other stages; units stay, with their numbers. */
static void model_mesh_keep_own(struct tutti_model *model, int *locals, const struct axes *axes,
				int rank)
{
	int kept = 0, uses = 0;

	for (int p = 0; p < model->param_count; p++)
		locals[p] = -1;
	for (int i = 0; i < model->use_count; i++)
		if (unit_is_here(&model->units[model->uses[i].unit], axes, rank))
			locals[model->uses[i].param] = 0;
	model->elements = 0;
	for (int p = 0; p < model->param_count; p++) {
		if (locals[p] < 0)
			continue;
		locals[p] = kept;
		model->params[kept] = model->params[p];
		model->elements += model->params[kept++].count;
	}
	model->param_count = kept;
	for (int i = 0; i < model->use_count; i++) {
		struct unit_use use = model->uses[i];
		if (locals[use.param] >= 0 && unit_is_here(&model->units[use.unit], axes, rank))
			model->uses[uses++] = (struct unit_use){locals[use.param], use.unit};
	}
	model->use_count = uses;
}

tutti_status model_localize(struct tutti_model *model, int **locals, struct model_groups *groups,
			    const struct axes *axes, int rank)
{
	int pp = model_mesh_find(axes, "pp");

	*groups = (struct model_groups){.count = 0};
	model->is_pipelined = pp >= 0 && axes->axis[pp].size > 1;
	TRY(model_mesh_check_stages(model, axes));
	TRY(model_mesh_divide(model, groups, axes, rank));
	*locals = malloc(((size_t)model->param_count + 1) * sizeof **locals);
	if (!*locals)
		return fail_no_memory("a model's table");
	model_mesh_keep_own(model, *locals, axes, rank);
	return TUTTI_OK;
}
