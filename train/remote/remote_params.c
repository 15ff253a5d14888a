/* Parameters: registered, found by their number, removed. */
#include "train/remote/remote.h"

#include <ctype.h>
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
		return train_invalid("%s: parameter %d of rank %d was removed.", call, number,
				     remote->rank);
	return train_invalid("%s: rank %d has no parameter %d; %d were registered there.", call,
			     remote->rank, number, remote->num_params);
}

static bool name_is_good(const char *name)
{
	size_t n = name ? strnlen(name, REMOTE_NAME_BYTES + 1) : 0;

	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)name[i]))
			return false;
	return n >= 1 && n <= REMOTE_NAME_BYTES;
}

static tutti_status check_param(const tutti_rpc_param *param, const int *number)
{
	if (!param || !number)
		return train_invalid("tutti_rpc_param_add: param or number is NULL.");
	if (!name_is_good(param->name))
		return train_invalid("tutti_rpc_param_add: a parameter's name has 1 to %d "
				     "printable bytes.",
				     REMOTE_NAME_BYTES);
	if (!param->values && param->count > 0)
		return train_invalid("tutti_rpc_param_add: parameter '%s' has %zu values at NULL.",
				     param->name, param->count);
	if (param->count > SIZE_MAX / sizeof(float))
		return train_invalid("tutti_rpc_param_add: parameter '%s' has %zu values, more "
				     "than memory can have.",
				     param->name, param->count);
	if (param->group < 0 || (param->flags & ~TUTTI_PARAM_NO_DECAY))
		return train_invalid("tutti_rpc_param_add: parameter '%s' has group %d and flags "
				     "0x%x; groups count from 0, and the only flag is "
				     "TUTTI_PARAM_NO_DECAY.",
				     param->name, param->group, (unsigned)param->flags);
	return TUTTI_OK;
}

static tutti_status insert(struct remote *remote, struct remote_param *made, int *number)
{
	for (int i = 0; i < remote->num_params; i++) {
		const struct remote_param *other = remote_param_of(remote, i);
		if (other && strcmp(other->name, made->name) == 0)
			return train_invalid("tutti_rpc_param_add: rank %d has a parameter '%s' "
					     "already, number %d.",
					     remote->rank, made->name, i);
	}
	TRY(array_grow(&remote->params, (size_t)remote->num_params, sizeof(struct remote_param *),
		       "an rpc's parameters"));
	remote->params[remote->num_params] = made;
	*number = remote->num_params++;
	return TUTTI_OK;
}

tutti_status tutti_rpc_param_add(tutti_rpc *rpc, const tutti_rpc_param *param, int *number)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_param_add", &status);

	if (!remote)
		return status;
	TRY(check_param(param, number));
	struct remote_param *made = calloc(1, sizeof *made);
	if (!made)
		return train_no_memory("parameter '%s'", param->name);
	*made = (struct remote_param){.values = param->values,
				      .count = param->count,
				      .group = param->group,
				      .flags = param->flags,
				      .release = param->release,
				      .release_arg = param->release_arg,
				      .kind = -1};
	snprintf(made->name, sizeof made->name, "%s", param->name);
	pthread_mutex_lock(&remote->lock);
	status = insert(remote, made, number);
	pthread_mutex_unlock(&remote->lock);
	if (status != TUTTI_OK)
		free(made);
	return status;
}

static void param_free(struct remote_param *param)
{
	if (param->release)
		param->release(param->release_arg);
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

tutti_status tutti_rpc_param_remove(tutti_rpc *rpc, int number)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_param_remove", &status);
	struct remote_param *gone = NULL;

	if (!remote)
		return status;
	pthread_mutex_lock(&remote->lock);
	struct remote_param *param = remote_param_of(remote, number);
	if (param) {
		param->is_removed = true;
		gone = remote_params_look(remote, number);
		pthread_cond_broadcast(&remote->unlocked); /* what waits for it gets INVALID */
	} else {
		status = remote_param_unknown(remote, "tutti_rpc_param_remove", number);
	}
	pthread_mutex_unlock(&remote->lock);
	remote_param_end(gone);
	return status;
}

void remote_params_free(struct remote *remote)
{
	for (int i = 0; i < remote->num_params; i++)
		remote_param_end(remote->params[i]);
	free(remote->params);
}
