/* Names of units, parameters, buffers and states. Names are used in messages, logs and files, which
 * are UTF-8. A file of tensors identifies parameters and buffers by name alone. */
#include "train/base/base.h"
#include "train/model/model.h"

#include <string.h>

tutti_status model_check_name(const char *what, const char *name)
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

tutti_status model_check_tensor_name(const struct tutti_model *model, const char *what,
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
