/* Locks of parameters: read by several threads at once, updated by one. A thread takes all that it
 * needs at once or waits with none, so no two threads wait for each other. A step that waits keeps
 * new readers out. */
#include "train/remote/remote.h"

#include <errno.h>
#include <time.h>

static bool param_locks_is_free(const struct remote_param *param, bool updates)
{
	if (updates)
		return !param->is_updated && param->readers == 0;
	return !param->is_updated && param->steps_waiting == 0;
}

/* The first that is not to be had; -1: all are free. INVALID: one is not there. */
static tutti_status find_busy(const struct remote *remote, const int *numbers, int count,
			      bool updates, int *busy)
{
	*busy = -1;
	for (int i = 0; i < count; i++) {
		const struct remote_param *param = remote_param_of(remote, numbers[i]);
		if (!param)
			return remote_param_unknown(
				remote, updates ? "tutti_rpc_context_step" : "tutti_rpc_param_lock",
				numbers[i]);
		if (*busy < 0 && !param_locks_is_free(param, updates))
			*busy = numbers[i];
	}
	return TUTTI_OK;
}

static void note_waiting(const struct remote *remote, const int *numbers, int count, int more)
{
	for (int i = 0; i < count; i++) {
		struct remote_param *param = remote_param_of(remote, numbers[i]);
		if (param)
			param->steps_waiting += more;
	}
}

static void param_locks_hold(const struct remote *remote, const int *numbers, int count,
			     bool updates)
{
	for (int i = 0; i < count; i++) {
		struct remote_param *param = remote->params[numbers[i]];
		if (updates)
			param->is_updated = true;
		else
			param->readers++;
	}
}

static tutti_status param_locks_late(const struct remote *remote, int busy, int timeout_ms)
{
	const struct remote_param *param = remote->params[busy];

	return fail(TUTTI_ERR_TIMEOUT,
		    "parameter '%s' of rank %d is still locked by %s after %d ms: call "
		    "tutti_rpc_param_unlock before a function waits for others.",
		    param->name, remote->rank,
		    param->is_updated ? "a step" : "a reader, or a step that waits for one",
		    timeout_ms);
}

/* Waits, with the lock, until all are free. */
static tutti_status await_free(struct remote *remote, const int *numbers, int count, bool updates,
			       int timeout_ms)
{
	struct timespec deadline = {0};
	int busy, error = 0;

	if (timeout_ms > 0)
		cond_deadline(&deadline, timeout_ms);
	for (;;) {
		TRY(find_busy(remote, numbers, count, updates, &busy));
		if (busy < 0)
			return TUTTI_OK;
		if (error == ETIMEDOUT)
			return param_locks_late(remote, busy, timeout_ms);
		error = timeout_ms > 0 ? pthread_cond_clockwait(&remote->unlocked, &remote->lock,
								CLOCK_MONOTONIC, &deadline)
				       : pthread_cond_wait(&remote->unlocked, &remote->lock);
	}
}

tutti_status param_locks_take(struct remote *remote, const int *numbers, int count, bool updates,
			      int timeout_ms)
{
	tutti_status status;

	pthread_mutex_lock(&remote->lock);
	if (updates)
		note_waiting(remote, numbers, count, 1);
	status = await_free(remote, numbers, count, updates, timeout_ms);
	if (updates) {
		note_waiting(remote, numbers, count, -1);
		if (status != TUTTI_OK) /* readers that it kept out */
			pthread_cond_broadcast(&remote->unlocked);
	}
	if (status == TUTTI_OK)
		param_locks_hold(remote, numbers, count, updates);
	pthread_mutex_unlock(&remote->lock);
	return status;
}

static bool param_locks_is_held(const struct remote *remote, int number, bool updates)
{
	const struct remote_param *param =
		number >= 0 && number < remote->num_params ? remote->params[number] : NULL;

	return param && (updates ? param->is_updated : param->readers > 0);
}

static tutti_status drop_one(struct remote *remote, int number, bool updates)
{
	struct remote_param *gone = NULL;
	bool held;

	pthread_mutex_lock(&remote->lock);
	held = param_locks_is_held(remote, number, updates);
	if (held) {
		if (updates)
			remote->params[number]->is_updated = false;
		else
			remote->params[number]->readers--;
		gone = remote_params_look(remote, number);
		pthread_cond_broadcast(&remote->unlocked);
	}
	pthread_mutex_unlock(&remote->lock);
	remote_param_end(gone);
	return held ? TUTTI_OK
		    : fail_invalid("tutti_rpc_param_unlock: parameter %d of rank %d is not "
				   "locked.",
				   number, remote->rank);
}

tutti_status param_locks_drop(struct remote *remote, const int *numbers, int count, bool updates)
{
	struct kept_error first = {0};

	for (int i = 0; i < count; i++)
		kept_error_note(&first, drop_one(remote, numbers[i], updates));
	return kept_error_return(&first);
}
