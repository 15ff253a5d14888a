/* The header of a safetensors file as JSON. */
#include "train/checkpoint/safetensors.h"

#include "train/base/base.h"
#include "train/base/jansson_values.h"

#include <stdlib.h>
#include <string.h>

tutti_status jansson_needed(void)
{
	return TUTTI_OK;
}

static tutti_status safetensors_json_no_memory(const char *path)
{
	return fail_no_memory("the header of '%s'", path_shown(path));
}

/* NULL if there is no memory, or the name is not UTF-8. */
static json_t *safetensors_json_header_of(const struct safetensors *file, const char *format,
					  const char **refused)
{
	json_t *header = json_object();

	if (header && format &&
	    json_object_set_new(header, "__metadata__", json_pack("{s:s}", "format", format)) != 0)
		json_decref(header), header = NULL;
	for (size_t i = 0; header && i < file->count; i++) {
		const struct safetensor *tensor = &file->tensors[i];
		json_t *entry =
			json_pack("{s:s, s:o, s:[I,I]}", "dtype", tensor->type->name, "shape",
				  value_of_shape(tensor->ndim, tensor->shape), "data_offsets",
				  (json_int_t)tensor->begin, (json_int_t)tensor->end);
		if (json_object_set_new(header, tensor->name, entry) != 0) {
			*refused = entry ? tensor->name : NULL;
			json_decref(header);
			header = NULL;
		}
	}
	return header;
}

/* Puts the length before the text, and pads it with spaces to a multiple of 8 bytes. */
static tutti_status safetensors_json_frame(struct safetensors *file, const char *path,
					   const char *text)
{
	uint64_t bytes = strlen(text), padded = (bytes + 7) / 8 * 8;

	if (padded > SAFETENSORS_HEADER_LIMIT)
		return fail_invalid("The header of '%s' would have %llu bytes; %d are allowed.",
				    path_shown(path), (unsigned long long)padded,
				    SAFETENSORS_HEADER_LIMIT);
	file->header = malloc((size_t)padded + 8);
	if (!file->header)
		return safetensors_json_no_memory(path);
	memcpy(file->header, &padded, 8);
	memcpy(file->header + 8, text, (size_t)bytes);
	memset(file->header + 8 + bytes, ' ', (size_t)(padded - bytes));
	file->data_at = padded + 8;
	return TUTTI_OK;
}

tutti_status safetensors_print(struct safetensors *file, const char *path, const char *format)
{
	const char *refused = NULL;
	json_t *header = safetensors_json_header_of(file, format, &refused);

	if (!header && refused)
		return fail_invalid("The name '%.128s' of a tensor of '%s' is not UTF-8, as the "
				    "format requires.",
				    refused, path_shown(path));
	char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
	tutti_status status =
		text ? safetensors_json_frame(file, path, text) : safetensors_json_no_memory(path);
	free(text);
	json_decref(header);
	return status;
}

static tutti_status safetensors_json_wrong(const char *path, const char *name, const char *what)
{
	return fail_invalid(
		"'%s': the header's entry '%.128s' %s: the file is damaged, or of an unknown kind.",
		path_shown(path), name, what);
}

static tutti_status safetensors_json_parse_tensor(struct safetensor *tensor, const char *path,
						  const char *name, const json_t *entry)
{
	const json_t *type = json_object_get(entry, "dtype");
	const json_t *offsets = json_object_get(entry, "data_offsets");

	if (!json_is_object(entry) || json_object_size(entry) != 3)
		return safetensors_json_wrong(path, name, "is not dtype, shape and data_offsets");
	tensor->type = json_is_string(type) ? stored_type_named(json_string_value(type)) : NULL;
	if (!tensor->type)
		return safetensors_json_wrong(path, name, "has an unknown dtype");
	if (!value_shape(&tensor->ndim, tensor->shape, MODEL_DIMS, json_object_get(entry, "shape")))
		return safetensors_json_wrong(path, name,
					      "has no shape of up to 8 numbers from 0 on");
	if (json_array_size(offsets) != 2 ||
	    !value_number(&tensor->begin, json_array_get(offsets, 0)) ||
	    !value_number(&tensor->end, json_array_get(offsets, 1)))
		return safetensors_json_wrong(path, name,
					      "does not have two data_offsets from 0 on");
	tensor->name = strdup(name);
	return tensor->name ? TUTTI_OK : safetensors_json_no_memory(path);
}

static tutti_status safetensors_json_check_metadata(const char *path, json_t *metadata)
{
	const char *key;
	json_t *value;

	if (!json_is_object(metadata))
		return safetensors_json_wrong(path, "__metadata__", "is no object");
	json_object_foreach(metadata, key, value)
	{
		if (!json_is_string(value))
			return safetensors_json_wrong(path, "__metadata__",
						      "has a value that is not a string");
	}
	return TUTTI_OK;
}

static tutti_status safetensors_json_parse_header(struct safetensors *file, const char *path,
						  json_t *header)
{
	const char *name;
	json_t *entry;
	size_t size = json_object_size(header);

	file->tensors = calloc(size ? size : 1, sizeof *file->tensors);
	if (!file->tensors)
		return safetensors_json_no_memory(path);
	json_object_foreach(header, name, entry)
	{
		if (strcmp(name, "__metadata__") == 0) {
			TRY(safetensors_json_check_metadata(path, entry));
			continue;
		}
		TRY(safetensors_json_parse_tensor(&file->tensors[file->count], path, name, entry));
		file->count++;
	}
	return TUTTI_OK;
}

tutti_status safetensors_parse(struct safetensors *file, const char *path, const char *json,
			       size_t bytes)
{
	char why[200] = "it does not begin with {";
	json_t *header = bytes > 0 && json[0] == '{' ? json_text_read(json, bytes, why) : NULL;

	if (!header)
		return fail_invalid("The header of '%s' cannot be read: %s. The file is damaged, "
				    "or not a safetensors file.",
				    path_shown(path), why);
	tutti_status status = safetensors_json_parse_header(file, path, header);
	json_decref(header);
	return status;
}
