/* The table of parameters: they are found by their numbers, and freed when nothing uses them. */
#include "train/remote/remote.h"

#include "core/callback.h"

#include <stdlib.h>
#include <string.h>

struct remote_param *remote_param_of(const struct remote *remote, int number)
{
	if (number < 0 || number >= remote->num_params || !remote->params[number] ||
	    remote->params[number]->is_removed)
		return NULL;
	return remote->params[number];
}

tutti_status remote_param_unknown(const struct remote *remote, const char *call, int number)
{
	if (number >= 0 && number < remote->num_params)
		return fail_invalid("%s: parameter %d of rank %d was removed.", call, number,
				    remote->rank);
	return fail_invalid("%s: rank %d has no parameter %d; %d were registered there.", call,
			    remote->rank, number, remote->num_params);
}

tutti_status remote_params_insert(struct remote *remote, struct remote_param *made, int *number)
{
	for (int i = 0; i < remote->num_params; i++) {
		const struct remote_param *other = remote_param_of(remote, i);
		if (other && strcmp(other->name, made->name) == 0)
			return fail_invalid("tutti_rpc_param_add: rank %d has a parameter '%s' "
					    "already, number %d.",
					    remote->rank, made->name, i);
	}
	TRY(array_grow(&remote->params, (size_t)remote->num_params, sizeof(struct remote_param *),
		       "an rpc's parameters"));
	remote->params[remote->num_params] = made;
	*number = remote->num_params++;
	return TUTTI_OK;
}

static void param_free(struct remote_param *param)
{
	if (param->release)
		callback_call("release", "tutti_rpc_param", -1, param->release(param->release_arg));
	free(param->m);
	free(param->v);
	free(param);
}

struct remote_param *remote_params_look(struct remote *remote, int number)
{
	struct remote_param *param = remote->params[number];

	if (!param || !param->is_removed || param->readers || param->is_updated)
		return NULL;
	remote->params[number] = NULL;
	return param;
}

void remote_param_end(struct remote_param *param)
{
	if (param)
		param_free(param);
}

void remote_params_free(struct remote *remote)
{
	for (int i = 0; i < remote->num_params; i++)
		remote_param_end(remote->params[i]);
	free(remote->params);
}
