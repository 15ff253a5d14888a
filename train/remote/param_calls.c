/* The functions of rpc.h for parameters. */
#include "train/remote/remote.h"

#include "rpc/extension.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { LOCK_MS = 60000 }; /* tutti_rpc_param_lock's, where the caller names none */

static bool name_is_good(const char *name)
{
	size_t n = name ? strnlen(name, REMOTE_NAME_BYTES + 1) : 0;

	for (size_t i = 0; i < n; i++)
		if (!isprint((unsigned char)name[i]))
			return false;
	return n >= 1 && n <= REMOTE_NAME_BYTES;
}

static tutti_status param_calls_check_param(const tutti_rpc_param *param, const int *number)
{
	if (!param || !number)
		return fail_invalid("tutti_rpc_param_add: param or number is NULL.");
	if (!name_is_good(param->name))
		return fail_invalid("tutti_rpc_param_add: a parameter's name has 1 to %d "
				    "printable bytes.",
				    REMOTE_NAME_BYTES);
	if (!param->values && param->count > 0)
		return fail_invalid("tutti_rpc_param_add: parameter '%s' has %zu values at NULL.",
				    param->name, param->count);
	if (param->count > SIZE_MAX / sizeof(float))
		return fail_invalid("tutti_rpc_param_add: parameter '%s' has %zu values, more "
				    "than memory can have.",
				    param->name, param->count);
	if (param->group < 0 || (param->flags & ~TUTTI_PARAM_NO_DECAY))
		return fail_invalid("tutti_rpc_param_add: parameter '%s' has group %d and flags "
				    "0x%x; groups count from 0, and the only flag is "
				    "TUTTI_PARAM_NO_DECAY.",
				    param->name, param->group, (unsigned)param->flags);
	return TUTTI_OK;
}

tutti_status tutti_rpc_param_add(tutti_rpc *rpc, const tutti_rpc_param *param, int *number)
{
	tutti_status status;
	struct remote *remote = remote_of(rpc, "tutti_rpc_param_add", &status);

	if (!remote)
		return status;
	TRY(param_calls_check_param(param, number));
	struct remote_param *made = calloc(1, sizeof *made);
	if (!made)
		return fail_no_memory("parameter '%s'", param->name);
	*made = (struct remote_param){.values = param->values,
				      .count = param->count,
				      .group = param->group,
				      .flags = param->flags,
				      .release = param->release,
				      .release_arg = param->release_arg,
				      .kind = -1};
	snprintf(made->name, sizeof made->name, "%s", param->name);
	pthread_mutex_lock(&remote->lock);
	status = remote_params_insert(remote, made, number);
	pthread_mutex_unlock(&remote->lock);
	if (status != TUTTI_OK)
		free(made);
	return status;
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

static struct remote *check_lock(tutti_rpc *rpc, const char *call, const int *numbers, int count,
				 tutti_status *status)
{
	struct remote *remote = remote_of(rpc, call, status);

	if (!remote || (numbers && count >= 0))
		return remote;
	*status = fail_invalid("%s: %d parameters at %p.", call, count, (const void *)numbers);
	return NULL;
}

tutti_status tutti_rpc_param_lock(tutti_rpc *rpc, const int *numbers, int count, int timeout_ms)
{
	tutti_status status;
	struct remote *remote = check_lock(rpc, "tutti_rpc_param_lock", numbers, count, &status);

	if (!remote)
		return status;
	TRY(rpc_may_wait("tutti_rpc_param_lock"));
	return param_locks_take(remote, numbers, count, false,
				timeout_ms == 0 ? LOCK_MS : timeout_ms);
}

tutti_status tutti_rpc_param_unlock(tutti_rpc *rpc, const int *numbers, int count)
{
	tutti_status status;
	struct remote *remote = check_lock(rpc, "tutti_rpc_param_unlock", numbers, count, &status);

	return remote ? param_locks_drop(remote, numbers, count, false) : status;
}
