/* Registration of a model: units, parameters, buffers. All arguments are checked here, and the rest
 * of the training layer trusts the tables. */
#include "train/model/model.h"

#include "train/base/base.h"

#include <stdlib.h>
#include <string.h>

/* Names of units, parameters, buffers and states are used in messages, logs and files, which
 * are UTF-8. A file of tensors identifies parameters and buffers by name alone. */

/* INVALID: the name is not allowed. what: "unit", "state". */
static tutti_status model_check_name(const char *what, const char *name)
{
	if (!name || !*name)
		return fail_invalid("A %s needs a name.", what);
	if (strlen(name) >= MODEL_NAME_BYTES)
		return fail_invalid(
			"The name of %s '%.40s...' has %zu bytes, more than the %d allowed.", what,
			name, strlen(name), MODEL_NAME_BYTES - 1);
	for (const char *c = name; *c; c++)
		if ((unsigned char)*c < ' ')
			return fail_invalid("The name of a %s has a control character in it.",
					    what);
	if (!utf8_is_valid(name))
		return fail_invalid("The name '%s' of a %s is not UTF-8.", name, what);
	return TUTTI_OK;
}

/* As model_check_name for a "parameter" or "buffer"; no parameter or buffer may have that name yet.
 */
static tutti_status model_check_tensor_name(const struct tutti_model *model, const char *what,
					    const char *name)
{
	TRY(model_check_name(what, name));
	if (strcmp(name, "__metadata__") == 0)
		return fail_invalid("A %s cannot be named '%s': safetensors reserves that name.",
				    what, name);
	for (int i = 0; i < model->param_count; i++)
		if (strcmp(model->params[i].name, name) == 0)
			return fail_invalid(strcmp(what, "parameter") == 0
						    ? "There are two parameters '%s'."
						    : "A buffer cannot have the name of parameter "
						      "'%s': an exported file has both.",
					    name);
	for (int i = 0; i < model->buffer_count; i++)
		if (strcmp(model->buffers[i].name, name) == 0)
			return fail_invalid(strcmp(what, "buffer") == 0
						    ? "There are two buffers '%s'."
						    : "A parameter cannot have the name of buffer "
						      "'%s': an exported file has both.",
					    name);
	return TUTTI_OK;
}

#define ALL_FLAGS                                                                                  \
	(unsigned)(TUTTI_PARAM_NO_DECAY | TUTTI_PARAM_FROZEN | TUTTI_PARAM_MAY_BE_UNUSED |         \
		   TUTTI_PARAM_NO_SHARD)

tutti_status tutti_model_create(tutti_model **model)
{
	if (!model)
		return fail_invalid("tutti_model_create needs a place for the model, not NULL.");
	tutti_model *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("a model");
	made->kind_count = 1;
	*model = made;
	return TUTTI_OK;
}

void model_finish(struct tutti_model *model)
{
	free(model->units);
	free(model->params);
	free(model->uses);
	free(model->buffers);
	free(model->states);
	memset(model, 0, sizeof *model);
}

void tutti_model_destroy(tutti_model *model)
{
	if (!model)
		return;
	model_finish(model);
	free(model);
}

/* Returns a copy of count elements, or NULL if count is 0 or there is no memory. */
static void *model_duplicate(const void *from, int count, size_t size)
{
	if (count == 0)
		return NULL;
	void *to = malloc((size_t)count * size);
	return to ? memcpy(to, from, (size_t)count * size) : NULL;
}

tutti_status model_copy(struct tutti_model *to, const struct tutti_model *from)
{
	*to = *from;
	to->units = model_duplicate(from->units, from->unit_count, sizeof *to->units);
	to->params = model_duplicate(from->params, from->param_count, sizeof *to->params);
	to->uses = model_duplicate(from->uses, from->use_count, sizeof *to->uses);
	to->buffers = model_duplicate(from->buffers, from->buffer_count, sizeof *to->buffers);
	to->states = model_duplicate(from->states, from->state_count, sizeof *to->states);
	if ((from->unit_count && !to->units) || (from->param_count && !to->params) ||
	    (from->use_count && !to->uses) || (from->buffer_count && !to->buffers) ||
	    (from->state_count && !to->states)) {
		model_finish(to);
		return fail_no_memory("a copy of the model");
	}
	return TUTTI_OK;
}

/* array: one of the model's tables, of count elements. */
static tutti_status model_grow(void *array, int count, size_t size)
{
	if (count >= 1 << 24)
		return fail(TUTTI_ERR_MEMORY,
			    "A model has at most %d units, and as many "
			    "parameters, uses, buffers and states.",
			    1 << 24);
	return array_grow(array, (size_t)count, size, "a larger model");
}

static tutti_status model_append_unit(struct tutti_model *model, const char *name)
{
	if (!model)
		return fail_invalid("tutti_model_unit needs a model, not NULL.");
	TRY(model_check_name("unit", name));
	for (int i = 0; i < model->unit_count; i++)
		if (strcmp(model->units[i].name, name) == 0)
			return fail_invalid("There are two units '%s'.", name);
	TRY(model_grow(&model->units, model->unit_count, sizeof *model->units));
	struct unit *added = &model->units[model->unit_count++];
	*added = (struct unit){.stage = -1};
	strcpy(added->name, name);
	return TUTTI_OK;
}

int tutti_model_unit(tutti_model *model, const char *name)
{
	return model_append_unit(model, name) == TUTTI_OK ? model->unit_count - 1 : -1;
}

tutti_status tutti_model_unit_stream(tutti_model *model, int unit, void *stream)
{
	if (!model || unit < 0 || unit >= model->unit_count)
		return fail_invalid("tutti_model_unit_stream: there is no unit %d among %d.", unit,
				    model ? model->unit_count : 0);
	model->units[unit].stream = stream;
	return TUTTI_OK;
}

/* The limit for all parameters of a model. A parameter takes at most some 150 bytes an element
 * (with deterministic = 2), so all sums of bytes fit a size_t. */
#define MOST_ELEMENTS ((size_t)1 << 48)

static tutti_status model_check_shape(const struct tutti_model *model, struct param *param,
				      int ndim, const int64_t *shape)
{
	size_t left = MOST_ELEMENTS - model->elements, product = 1;

	if (ndim < 0 || ndim > MODEL_DIMS || (ndim > 0 && !shape))
		return fail_invalid("Parameter '%s' has %d dimensions%s; 0 to %d are allowed.",
				    param->name, ndim, shape ? "" : " and a NULL shape",
				    MODEL_DIMS);
	param->ndim = ndim;
	param->count = 1;
	for (int i = 0; i < ndim; i++) {
		if (shape[i] < 0)
			return fail_invalid("Dimension %d of parameter '%s' is %lld, but must be "
					    "at least 0.",
					    i, param->name, (long long)shape[i]);
		if ((uint64_t)shape[i] > left / product)
			return fail_invalid("Parameter '%s' makes the model larger than %zu "
					    "elements (a dimension of 0 counts as 1).",
					    param->name, MOST_ELEMENTS);
		param->shape[i] = shape[i];
		param->count *= (size_t)shape[i];
		product *= shape[i] > 0 ? (size_t)shape[i] : 1;
	}
	return TUTTI_OK;
}

/* Stands in for the data of a parameter without elements whose caller passes NULL: elsewhere NULL
 * means that this rank does not have the values. */
static _Alignas(64) char no_elements[64];

static void model_param_place_no_elements(struct param *param)
{
	param->data = param->data ? param->data : no_elements;
	if (param_is_trained(param) && !param->grad)
		param->grad = no_elements;
}

static tutti_status model_param_check(struct tutti_model *model, const struct param *param)
{
	if (param->unit < 0 || param->unit >= model->unit_count)
		return fail_invalid(
			"Parameter '%s' belongs to unit %d, but the model has %d units.",
			param->name, param->unit, model->unit_count);
	if (param->flags & ~ALL_FLAGS)
		return fail_invalid("Parameter '%s' has unknown flags 0x%x.", param->name,
				    param->flags & ~ALL_FLAGS);
	if (param->is_extern && !param->data)
		return fail_invalid("The values of parameter '%s' are at NULL.", param->name);
	uintptr_t odd = param->is_extern ? ((uintptr_t)param->data | (uintptr_t)param->grad) %
						   dtype_bytes(param->dtype)
					 : 0;
	if (odd)
		return fail_invalid(
			"The values or gradients of parameter '%s' are not aligned to %zu bytes.",
			param->name, dtype_bytes(param->dtype));
	if (param->is_extern && param_is_trained(param) && !param->grad)
		return fail_invalid("The gradient of parameter '%s' is at NULL, but the parameter "
				    "is not frozen.",
				    param->name);
	return TUTTI_OK;
}

static tutti_status model_add_use(struct tutti_model *model, int param, int unit)
{
	TRY(model_grow(&model->uses, model->use_count, sizeof *model->uses));
	model->uses[model->use_count++] = (struct unit_use){param, unit};
	return TUTTI_OK;
}

/* param has unit, flags, is_extern, data and grad. Fills in the rest. */
static tutti_status model_add_param(struct tutti_model *model, struct param *param,
				    const char *name, int ndim, const int64_t *shape)
{
	if (!model)
		return fail_invalid("A parameter needs a model, not NULL.");
	TRY(model_check_tensor_name(model, "parameter", name));
	strcpy(param->name, name);
	TRY(model_check_shape(model, param, ndim, shape));
	if (param->is_extern && param->count == 0)
		model_param_place_no_elements(param);
	TRY(model_param_check(model, param));
	TRY(model_grow(&model->params, model->param_count, sizeof *model->params));
	TRY(model_add_use(model, model->param_count, param->unit));
	param->part = (struct mesh_part){.whole = param->count,
					 .index = model->param_count,
					 .sum_group = -1,
					 .is_counted = true};
	model->params[model->param_count++] = *param;
	model->elements += param->count;
	return TUTTI_OK;
}

int tutti_model_param(tutti_model *model, int unit, const char *name, int ndim,
		      const int64_t *shape, unsigned flags)
{
	struct param param = {.unit = unit, .flags = flags};
	tutti_status status = model_add_param(model, &param, name, ndim, shape);
	return status == TUTTI_OK ? model->param_count - 1 : -1;
}

int tutti_model_param_extern(tutti_model *model, int unit, const char *name, int ndim,
			     const int64_t *shape, tutti_dtype dtype, void *data, void *grad,
			     unsigned flags)
{
	if (dtype != TUTTI_F32 && dtype != TUTTI_BF16 && dtype != TUTTI_F16) {
		fail_invalid("Parameter '%s' has type %d; only TUTTI_F32, TUTTI_BF16 and "
			     "TUTTI_F16 can be trained.",
			     name ? name : "", (int)dtype);
		return -1;
	}
	struct param param = {.unit = unit,
			      .flags = flags,
			      .is_extern = true,
			      .dtype = dtype,
			      .data = data,
			      .grad = grad};
	if (flags & TUTTI_PARAM_FROZEN)
		param.grad = NULL;
	tutti_status status = model_add_param(model, &param, name, ndim, shape);
	return status == TUTTI_OK ? model->param_count - 1 : -1;
}

tutti_status model_check_param(const struct tutti_model *model, const char *function, int param)
{
	if (!model)
		return fail_invalid("%s needs a model, not NULL.", function);
	if (param < 0 || param >= model->param_count)
		return fail_invalid("%s: there is no parameter %d among %d.", function, param,
				    model->param_count);
	return TUTTI_OK;
}

tutti_status tutti_model_unit_uses(tutti_model *model, int unit, int param)
{
	TRY(model_check_param(model, "tutti_model_unit_uses", param));
	if (unit < 0 || unit >= model->unit_count)
		return fail_invalid("tutti_model_unit_uses: there is no unit %d among %d.", unit,
				    model->unit_count);
	for (int i = 0; i < model->use_count; i++)
		if (model->uses[i].unit == unit && model->uses[i].param == param)
			return TUTTI_OK;
	return model_add_use(model, param, unit);
}

tutti_status tutti_model_param_group(tutti_model *model, int param, int group)
{
	TRY(model_check_param(model, "tutti_model_param_group", param));
	if (group < 0)
		return fail_invalid("Group %d of parameter '%s' is negative.", group,
				    model->params[param].name);
	model->params[param].group = group;
	return TUTTI_OK;
}

static tutti_status model_add_buffer(struct tutti_model *model, const char *name,
				     struct buffer buffer)
{
	if (!model || (!buffer.data && buffer.count))
		return fail_invalid("tutti_model_buffer needs a model and data, not NULL.");
	TRY(model_check_tensor_name(model, "buffer", name));
	if (buffer.dtype < TUTTI_F32 || buffer.dtype > TUTTI_U64)
		return fail_invalid("Buffer '%s' has an unknown type %d.", name, (int)buffer.dtype);
	TRY(model_grow(&model->buffers, model->buffer_count, sizeof buffer));
	strcpy(buffer.name, name);
	model->buffers[model->buffer_count++] = buffer;
	return TUTTI_OK;
}

int tutti_model_buffer(tutti_model *model, const char *name, tutti_dtype dtype, size_t count,
		       void *data)
{
	struct buffer buffer = {.dtype = dtype, .count = count, .data = data};
	return model_add_buffer(model, name, buffer) == TUTTI_OK ? model->buffer_count - 1 : -1;
}

static tutti_status model_add_state(struct tutti_model *model, const char *name, struct state state)
{
	if (!model || (!state.data && state.bytes))
		return fail_invalid("tutti_model_state needs a model and data, not NULL.");
	TRY(model_check_name("state", name));
	for (int i = 0; i < model->state_count; i++)
		if (strcmp(model->states[i].name, name) == 0)
			return fail_invalid("There are two states '%s'.", name);
	TRY(model_grow(&model->states, model->state_count, sizeof state));
	strcpy(state.name, name);
	model->states[model->state_count++] = state;
	return TUTTI_OK;
}

int tutti_model_state(tutti_model *model, const char *name, void *data, size_t bytes, int per_rank)
{
	struct state state = {.data = data, .bytes = bytes, .per_rank = per_rank != 0};
	return model_add_state(model, name, state) == TUTTI_OK ? model->state_count - 1 : -1;
}
